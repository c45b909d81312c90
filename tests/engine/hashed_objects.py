"""Objects of other packages: how to build each, and how to use it; what it caches, counts or opens by that is no value of it."""

import asyncio
import collections
import contextvars
import functools
import importlib
import io
import itertools
import logging
import queue
import random
import re
import socket
import sqlite3
import sys
import tempfile
import threading
import types
import weakref
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
from PIL import Image

from highway.engine.hashing import Hasher

PACKAGE = '''
import threading, weakref

class Lookup:
    """Keeps its parameters under private names, and fills caches that no method that runs is seen to fill."""

    names = {"a", "b", "c"}

    def __init__(self, table, size=1):
        self._table, self.__size = table, size
        self._cache, self._lock, self._owner = {}, threading.Lock(), weakref.ref(self)
        self._order = dict.fromkeys(self.names)

    def find(self, key):
        self._fill(self._cache, key)
        return self._table[key]

    def _fill(self, cache, key):
        cache[key] = len(cache)

class Pickled(Lookup):
    def __getstate__(self):
        return dict(self.__dict__, _lock=None, _owner=None)

class Wrapped:
    """Keeps nothing under the name of its parameter."""

    def __init__(self, source):
        self._read = list(source)

class Scaler:
    def __init__(self, by=1):
        self.by = by

    def fit(self, mean):
        self.mean_ = mean
        return self

    def transform(self, value):
        self.seen = value
        return value
'''


def other_package(folder):
    """Return a module that counts as installed."""
    path = folder / "site-packages"
    path.mkdir(exist_ok=True)
    (path / "other_package.py").write_text(PACKAGE)
    sys.path.insert(0, str(path))
    try:
        return importlib.import_module("other_package")
    finally:
        sys.path.remove(str(path))


class Owner:
    pass


def objects(folder):
    """Return functions that build an object, and use it, by name."""
    other, owner = other_package(Path(folder)), Owner()
    photo = io.BytesIO()
    Image.fromarray(np.arange(48, dtype=np.uint8).reshape(4, 4, 3)).save(photo, "png")
    found = {
        "sqlite": (lambda: sqlite3.connect(":memory:"), lambda one: one.execute("select 1")),
        "logger": (lambda: logging.getLogger("objects"), lambda one: one.isEnabledFor(10)),
        "adapter": (lambda: logging.LoggerAdapter(logging.getLogger("objects")), lambda one: one.debug("")),
        "handler": (logging.NullHandler, lambda one: one.addFilter(logging.Filter())),
        "lock": (threading.Lock, lambda one: one.acquire()),
        "event": (threading.Event, lambda one: one.set()),
        "queue": (queue.Queue, lambda one: one.put(1)),
        "pool": (lambda: ThreadPoolExecutor(1), lambda one: (one.submit(int).result(), one.shutdown())),
        "file": (functools.partial(open, __file__), lambda one: one.read(3)),
        "bytes in memory": (lambda: io.BytesIO(b"abc"), lambda one: one.read(1)),
        "temporary file": (tempfile.NamedTemporaryFile, lambda one: one.write(b"1")),
        "temporary folder": (tempfile.TemporaryDirectory, lambda one: one.cleanup()),
        "socket": (socket.socket, lambda one: one.settimeout(1)),
        "event loop": (asyncio.new_event_loop, lambda one: one.call_soon(int)),
        "variable": (lambda: contextvars.ContextVar("one"), lambda one: one.set(1)),
        "reference": (lambda: weakref.ref(owner), lambda one: one()),
        "proxy": (lambda: weakref.proxy(owner), repr),
        "weak values": (weakref.WeakValueDictionary, lambda one: one.setdefault(1, owner)),
        "weak keys": (weakref.WeakKeyDictionary, lambda one: one.setdefault(owner, 1)),
        "cached function": (lambda: functools.lru_cache(abs), lambda one: one(-1)),
        "generator of NumPy": (lambda: np.random.default_rng(1), lambda one: one.random()),
        "the same without a seed": (np.random.default_rng, lambda one: one.random()),
        "old generator of NumPy": (np.random.RandomState, lambda one: one.rand()),
        "generator": (random.Random, lambda one: one.random()),
        "count": (itertools.count, next),
        "iterator": (lambda: iter([1, 2]), next),
        "pattern": (lambda: re.compile("a+"), lambda one: one.match("a")),
        "namespace": (lambda: types.SimpleNamespace(a={"a", "b", "c", ("d", 1)}), repr),
        "mapping": (lambda: types.MappingProxyType({"a": 1}), len),
        "chain": (lambda: collections.ChainMap({"a": 1}), len),
        "image that is loaded when it is needed": (lambda: Image.open(io.BytesIO(photo.getvalue())), lambda one: one.load()),
        "lookup": (lambda: other.Lookup({"k": 1}), lambda one: one.find("k")),
        "pickled": (lambda: other.Pickled({"k": 1}), lambda one: one.find("k")),
        "wrapped": (lambda: other.Wrapped("ab"), repr),
        "scaler": (lambda: other.Scaler().fit(3), lambda one: one.transform(5)),
    }
    try:
        import torch
    except ImportError:
        return found

    def frozen(*modules):
        torch.manual_seed(0)
        return torch.nn.Sequential(torch.nn.Linear(1, 1), *modules).requires_grad_(False)

    class Compiled(torch.nn.Module):
        """As what torch.compile returns, which takes seconds."""

        def __init__(self, module):
            super().__init__()
            self._orig_mod, self.run = module, None

        def __call__(self, item):
            vars(self)["run"] = random.Random()
            return self._orig_mod(item)

    two = torch.zeros(2, 1)
    return found | {
        "generator of torch": (lambda: torch.Generator().manual_seed(1), lambda one: torch.rand(1, generator=one)),
        "module": (frozen, lambda one: one.register_forward_hook(lambda *_: None)),
        "module with counts": (lambda: frozen(torch.nn.BatchNorm1d(1)), lambda one: one(two)),
        "scripted module": (lambda: torch.jit.trace(frozen(), two), lambda one: one(two)),
        "compiled module": (lambda: Compiled(frozen()), lambda one: one(two)),
        "sampler": (lambda: torch.utils.data.RandomSampler(range(4), generator=torch.Generator().manual_seed(3)), list),
        "distributed sampler": (lambda: torch.utils.data.DistributedSampler(range(4), 1, 0), lambda one: (one.set_epoch(1), list(one))),
        "loader": (lambda: torch.utils.data.DataLoader(range(4), shuffle=True), list),
    }


def hashes(value):
    """Return the hash of a value in a closure, and in an attribute."""

    class Holder:
        def __init__(self):
            self.value = value

        def __call__(self, item):
            return item

    return [{name: part.values.hex() for name, part in Hasher(False).parameters(op)} for op in (lambda item: (item, value), Holder())]


def main(folder):
    print([(name, hashes(build())) for name, (build, _) in objects(folder).items()])


if __name__ == "__main__":
    main(sys.argv[1])

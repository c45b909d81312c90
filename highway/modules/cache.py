"""``Cache``: keeps what comes out of the first epoch, and serves the epochs after it without asking what stands before it."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Any

import numpy as np
from numpy.random import Generator, Philox

from highway.cancel import is_draining
from highway.errors import ConfigError
from highway.modules.cache_epoch import Epochs, Passing, Stacker
from highway.modules.cache_file import CacheFile
from highway.modules.cache_folder import CacheFolder, CacheFullError, CacheWriter
from highway.modules.fingerprint import epochs_of, fingerprint
from highway.modules.space import available_memory, free_disk
from highway.parameters import checked
from highway.stage import Items, Passport, Stage, Stamped

log = logging.getLogger("highway")


@checked
@dataclass
class Cache:
    """Keep the samples of the first epoch, and serve every later epoch from there; what stands before it has no more to do.

    The first epoch passes as it comes. A finished cache in a folder is used again by later runs, if it was made from the same files with
    the same parameters; else it is made anew. What is drawn by chance before the cache is drawn once: put crops and flips behind it.

    A cache that was begun and not finished is discarded. While one process writes, others that have the same folder go on without a cache,
    and use it from the epoch after it is finished. If the samples do not fit, a warning says so once and every epoch is decoded.

    Args:
        path: Folder for the cache; it is made if need be. Without one the cache is in memory, for this run.
        budget: Bytes that it may take. By default nine tenths of what is free on the disk, or half of the memory that is left.
        batch_size: ``None`` if batches come in, whose rows are the samples; batches of the same size go out. Else samples come in, and
            batches of so many go out, the last of an epoch maybe smaller.
        stack: Whether fields go out as arrays with a batch axis. ``False``: fields with axes of their own, such as images, go out as
            lists of arrays, which may differ in shape and are read-only views of the cache: ``Augmentations`` crops from them straight
            into its batch, without a copy.
        shuffle: Whether each epoch but the first has an order of its own; else all have that in which the samples came.
        seed: What the orders derive from, at least 0.
        epochs: Passes that go out. ``None``: as many as the reader before it makes, or without end if there is none that says.
        key: Stands for what the cache was made from, if that cannot be seen from the stages before it.

    Yields:
        Tuples or dicts as they came in. Passports carry the epoch, the batch's number in it and the samples' keys.

    Raises:
        ConfigError: a parameter is out of its range; or (when it runs) ``key`` is needed.
        OSError: the folder cannot be made or written to, for other reasons than a lack of space.
        ValueError: the samples differ in their fields, or in shape and are to be stacked.
    """

    path: str | None = None
    budget: int | None = None
    batch_size: int | None = None
    stack: bool = True
    shuffle: bool = True
    seed: int = 0
    epochs: int | None = None
    key: str = ""
    counters: dict[str, Any] = field(default_factory=dict, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        for name in ("budget", "batch_size", "epochs"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ConfigError(f"Cache: {name}={value!r}; expected at least 1, or None")
        if not 0 <= self.seed < 2**63:
            raise ConfigError(f"Cache: seed={self.seed!r}; expected a whole number, at least 0")
        if self.path == "":
            raise ConfigError("Cache: path=''; expected a folder, or None to keep the cache in memory")

    def stream(self, items: Items) -> Iterator[Stamped]:
        return _Run(self, []).stream(items)

    def after(self, stages: Sequence[Stage]) -> list[Stage]:
        """Return what takes the place of this stage and of all ``stages`` before it.

        So they are known, which gives the cache its key and its number of epochs, and the source need not start if it is finished.
        """
        source, *rest = stages
        run = _Run(self, [stage.op for stage in stages])
        if run.gated:
            source = replace(source, op=_Gate(source.op, run), name=source.label)
        return [source, *rest, Stage(run, name="Cache")]


@dataclass
class _Gate:
    """The source before a cache: empty if the cache is finished."""

    source: Iterable[Any]
    run: _Run

    @property
    def counters(self) -> dict[str, Any]:
        return getattr(self.source, "counters", {})

    @property
    def finishes(self) -> bool:
        finishes: bool = getattr(self.source, "finishes", False)
        return finishes

    def __iter__(self) -> Iterator[Any]:
        return iter(()) if self.run.open() else iter(self.source)


@dataclass
class _Run:
    """A cache in one pipeline.

    Args:
        cache: What the user wrote.
        before: The components that its input comes from; empty if they are not known.
    """

    cache: Cache
    before: list[Any]
    file: CacheFile | None = field(default=None, init=False)
    _folder: CacheFolder | None = field(default=None, init=False)
    _full: bool = field(default=False, init=False)

    @property
    def counters(self) -> dict[str, Any]:
        return self.cache.counters

    @property
    def gated(self) -> bool:
        """Whether a :class:`_Gate` stands before it, and opens it."""
        return bool(self.before) and hasattr(self.before[0], "__iter__")

    @property
    def epochs(self) -> int | None:
        return self.cache.epochs or (epochs_of(self.before[0]) if self.before else None)

    def open(self) -> bool:
        """Open the cache if it is finished, and say whether it is."""
        if self._folder is None:
            self._folder = CacheFolder(self.cache.path or "", self._fingerprint() if self.cache.path else "")
        self.file = self._folder.open()
        return self.file is not None

    def _fingerprint(self) -> str:
        cache = self.cache
        if not cache.key and not self.before:
            raise ConfigError(f"Cache: path={cache.path!r} needs key=, a text that you change when what stands before it changes")
        return f"{cache.key or fingerprint(self.before)} {'batches' if cache.batch_size is None else 'samples'}"

    def stream(self, items: Items) -> Iterator[Stamped]:
        self.counters.update(samples=0, bytes=0, state="new")
        source = Epochs(items, self.epochs)
        if self.gated:
            source.peek()  # by then the gate has opened the cache, or there is none
        else:
            self.open()
        while self.file is None and source.peek():
            yield from self._pass(source)
        if self.file is not None:
            self.counters.update(samples=len(self.file), bytes=self.file.nbytes, state="serving")
            yield from _serve(self.file, self.cache, source.epoch, self.epochs)

    def _pass(self, source: Epochs) -> Iterator[Stamped]:
        """Pass on an epoch, and write it down if it fits and no other process does; or find that one has finished the cache."""
        assert self._folder is not None
        passing = Passing(self.cache.batch_size, Stacker(self.cache.stack))
        with contextlib.nullcontext() if self._full else self._folder.writer(self._budget()) as writer:
            if writer is None and not self._full and self.open():
                return
            self.counters["state"] = "full" if self._full else "another process writes" if writer is None else "writing"
            for outputs, samples in passing.epoch(source):
                if writer is not None and not self._full:
                    with self._giving_up(writer):
                        for sample, keys in samples:
                            writer.add(sample, keys)
                    self.counters.update(samples=len(writer), bytes=writer.nbytes)
                yield from outputs
            if writer is not None and len(writer) and not self._full and not is_draining():
                with self._giving_up(writer):
                    self.file = writer.seal(passing.batch_size)

    @contextlib.contextmanager
    def _giving_up(self, writer: CacheWriter) -> Iterator[None]:
        """Go on without a cache if the samples do not fit."""
        try:
            yield
        except CacheFullError as error:
            self._full = True
            writer.close()
            log.warning(
                "Cache: %s in %s after %d samples; they are discarded and every epoch is decoded: raise budget, free space, or cache less",
                error,
                self.cache.path or "memory",
                len(writer),
            )

    def _budget(self) -> int:
        if self.cache.budget is not None:
            return self.cache.budget
        return free_disk(self.cache.path) * 9 // 10 if self.cache.path else available_memory() // 2


@checked
@dataclass
class CacheReader:
    """Yield batches from a finished cache, such as one that ``highway convert`` has made.

    Args:
        path: The cache's folder.
        batch_size: Samples per batch; the last of an epoch may be smaller.
        stack: Whether fields go out as arrays with a batch axis, or as lists of arrays; as for :class:`Cache`.
        shuffle: Whether each epoch but the first has an order of its own; else all have that in which the samples were cached.
        seed: What the orders derive from, at least 0.
        epochs: Passes over the cache, or ``None`` to repeat for ever.

    Yields:
        Tuples or dicts, as they were cached. Passports as for :class:`Cache`.

    Raises:
        FileNotFoundError: there is no finished cache (on the first item, not here).
    """

    path: str
    batch_size: int
    stack: bool = True
    shuffle: bool = True
    seed: int = 0
    epochs: int | None = None

    def __post_init__(self) -> None:
        self._cache = Cache(self.path, None, self.batch_size, self.stack, self.shuffle, self.seed, self.epochs)

    def __iter__(self) -> Iterator[Stamped]:
        file = CacheFolder(self.path, None).open()
        if file is None:
            raise FileNotFoundError(f"{self.path!r}: no finished cache there; make one with `highway convert SRC {self.path} --to cache`")
        return _serve(file, self._cache, 0, self.epochs)


def _serve(file: CacheFile, cache: Cache, first: int, epochs: int | None) -> Iterator[Stamped]:
    """Yield the batches of the epochs from ``first`` on."""
    stacker, size = Stacker(cache.stack), cache.batch_size or file.batch_size
    for epoch in count(first) if epochs is None else range(first, epochs):
        order = np.arange(len(file))
        if cache.shuffle and epoch:
            order = Generator(Philox(key=cache.seed << 64 | epoch)).permutation(len(file))
        for index, start in enumerate(range(0, len(file), size)):
            if is_draining():
                return
            rows = order[start : start + size].tolist()
            values = [stacker.column(name, file.values(n, rows)) for n, name in enumerate(file.layout.names)]
            yield Stamped(file.layout.item(values), Passport(epoch, index, keys=file.keys(rows)))

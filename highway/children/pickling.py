"""Pickle objects for a pipeline's own child processes, and keep the memory of arrays outside of the pickle.

Only unpickle data from processes that this process has started (over inherited sockets), and from the peers of its job. Peers belong to the
same user on the same host. A pickle from any other sender could run any code.
"""

from __future__ import annotations

import builtins
import contextlib
import importlib
import io
import os
import pickle
import runpy
import sys
import traceback
import types
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np

from highway.errors import PipelineError, RemoteError

MAIN: Final = "__mp_main__"  # the name of the parent's script in a child, as in multiprocessing


def pack(value: Any) -> list[Any]:
    """Return a value as frames: the pickle, then the memory of each array in it.

    Raises:
        Exception: the value cannot be pickled (for example PicklingError, AttributeError or TypeError).
    """
    buffers: list[pickle.PickleBuffer] = []
    data = pickle.dumps(value, protocol=5, buffer_callback=buffers.append)
    return [data, *(buffer.raw() for buffer in buffers)] if buffers else [data]


def pack_arrays(value: Any) -> list[Any]:
    """Pack a value that consists mostly of arrays. Packing is slightly slower than :func:`pack`, but unpacking takes half the time."""
    buffers: list[pickle.PickleBuffer] = []
    data = io.BytesIO()
    _ArrayPickler(data, protocol=5, buffer_callback=buffers.append).dump(value)
    return [data.getbuffer(), *(buffer.raw() for buffer in buffers)]


class _ArrayPickler(pickle.Pickler):
    """Pickles an array so that one NumPy call rebuilds it. To rebuild a usual pickle, Python calls two functions and creates a dtype."""

    def reducer_override(self, value: Any) -> Any:
        if type(value) is np.ndarray and value.flags.c_contiguous and value.dtype.isbuiltin == 1 and not value.dtype.hasobject:
            return np.ndarray, (value.shape, value.dtype.str, pickle.PickleBuffer(value))  # type: ignore[arg-type]  # numpy has no __buffer__
        return NotImplemented


def unpack(frames: Sequence[Any]) -> Any:
    """Return the value from the frames of :func:`pack`. Its arrays are views of the frames; read-only frames give read-only arrays.

    Raises:
        PipelineError: the value needs an object of an interactive session, which a child process cannot import.
    """
    data, buffers = frames[0], frames[1:] if len(frames) > 1 else ()
    if isinstance(data, bytes) and b"_main__" not in data:  # the usual, faster case
        return pickle.loads(data, buffers=buffers)
    if importing.script is None:  # children use their own name for the script of this process
        sys.modules.setdefault(MAIN, sys.modules["__main__"])
        return pickle.loads(data, buffers=buffers)
    return _Unpickler(io.BytesIO(data), buffers=buffers).load()


class Script(NamedTuple):
    """The origin of a process's ``__main__`` module: a file, a module name, or neither."""

    path: str = ""
    module: str = ""

    @staticmethod
    def of_this_process() -> Script:
        """Return the origin of ``__main__`` in this process."""
        main = sys.modules["__main__"]
        spec = getattr(main, "__spec__", None)
        if spec is not None:  # python -m; a package's __main__ runs something else, such as a test runner
            return Script() if spec.name.endswith("__main__") else Script(module=spec.name)
        path = getattr(main, "__file__", None)
        return Script(path=os.path.abspath(path)) if path else Script()


class _Importing:
    """The parent's script in a child process. The child imports the script when the first object that the script defines arrives."""

    script: Script | None = None  # None in a process that is not a child
    now = is_loaded = False

    def load(self) -> None:
        if self.script is None or self.is_loaded:  # MAIN in sys.modules shows nothing, because multiprocessing sets it
            return
        if self.script == Script():
            raise PipelineError("it is defined in an interactive session, which another process cannot import; put it into a module")
        importlib.import_module("multiprocessing")  # its first import replaces MAIN in sys.modules, so import it before the script
        self.now = True
        try:
            path, module = self.script
            content = runpy.run_path(path, run_name=MAIN) if path else runpy.run_module(module, run_name=MAIN, alter_sys=True)
        finally:
            self.now = False
        main = types.ModuleType(MAIN)
        main.__dict__.update(content)
        sys.modules["__main__"] = sys.modules[MAIN] = main
        self.is_loaded = True


importing = _Importing()


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if module in ("__main__", MAIN):
            importing.load()
            module = "__main__"
        return super().find_class(module, name)


@dataclass(frozen=True)
class Failure:
    """An error to send to another process.

    Args:
        kind: The name of the error's type, with its module unless the type is built-in.
        text: The message.
        trace: The traceback as text.
        pickled: The pickled error; ``None`` if the error cannot be pickled.
    """

    kind: str
    text: str
    trace: str
    pickled: bytes | None

    @staticmethod
    def of(error: BaseException) -> Failure:
        """Return the parts of an error that can be sent."""
        cls = type(error)
        kind = cls.__qualname__ if cls.__module__ == "builtins" else f"{cls.__module__}.{cls.__qualname__}"
        trace = "".join(traceback.format_exception(error)).rstrip()
        try:
            pickled = pickle.dumps(error)
        except Exception:  # __reduce__ can raise any error; then kind and text must suffice
            pickled = None
        return Failure(kind, str(error), f"in process {os.getpid()}:\n{trace}", pickled)

    def error(self) -> BaseException:
        """Return the error to raise. The error has its original type. If the error cannot be rebuilt, it is a RemoteError.

        A note of the error holds the original traceback.
        """
        error = self._again()
        error.add_note(self.trace)
        return error

    def _again(self) -> BaseException:
        made: object = None
        with contextlib.suppress(Exception):  # the constructor of the error needs other arguments than those in its ``args``
            if self.pickled is not None:
                made = _Unpickler(io.BytesIO(self.pickled)).load()
            elif hasattr(builtins, self.kind):
                made = getattr(builtins, self.kind)(self.text)
        return made if isinstance(made, BaseException) else RemoteError(f"{self.kind}: {self.text}")

"""Whether a dataset can be read in a process of its own: pickled cheaply, and made again from modules alone."""

from __future__ import annotations

import inspect
import pickle
from typing import Any

import torch

from highway.children.pickling import importing

LARGEST = 64 << 20  # bytes that a dataset may hold: another process has a copy of it, and waits until it has


class _NotApartError(Exception):
    """Says why, in the middle of a sentence."""


class _Probe(pickle.Pickler):
    """Pickles to nowhere, and raises if that is too much, or of a script."""

    def __init__(self) -> None:
        self._nbytes = 0
        super().__init__(self, protocol=5, buffer_callback=lambda buffer: self._count(buffer.raw().nbytes))

    def write(self, data: Any) -> int:
        self._count(memoryview(data).nbytes)
        return len(data)

    def _count(self, nbytes: int) -> bool:
        self._nbytes += nbytes
        if self._nbytes > LARGEST:
            raise _NotApartError(f"holds more than {LARGEST >> 20} MB, of which another process would have a copy")
        return False

    def reducer_override(self, value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            self._count(value.nbytes)
            return str, ()
        if (inspect.isclass(value) or inspect.isroutine(value)) and getattr(value, "__module__", "") == "__main__":
            raise _NotApartError(f"has {value.__qualname__} from the script itself, which another process would have to run first")
        return NotImplemented


def why_not_apart(*parts: Any) -> str:
    """Return why another process cannot or should not have these, in the middle of a sentence; empty if it can."""
    if importing.script is not None:
        return "is in a process of its own already"
    try:
        probe = _Probe()
        for part in parts:
            probe.dump(part)
    except _NotApartError as error:
        return str(error)
    except Exception as error:  # pickle raises what it likes, and __reduce__ too
        return f"cannot be pickled: {str(error) or type(error).__name__}"
    return ""

"""Memory for batches. After a batch and all views of it are deleted, a later batch uses the same memory."""

from __future__ import annotations

import contextlib
import math
import mmap
import weakref
from collections import deque

import numpy as np


class BufferPool:
    """Creates uint8 arrays in memory that is reused.

    New memory causes a page fault per 4 kB. Reused memory causes no page faults.

    A finalizer of the array returns the memory to the pool. This is safe, because the finalizer runs after the last view of the array is
    deleted. In NumPy, a view of a view refers to the array at the end of the chain, which is this array. Its memory is an ``mmap``, because
    an ``mmap`` is not an array. If the memory were another array, views would refer to that array, and the finalizer would run too early.

    Args:
        nbytes: Size of each piece of memory in bytes.
        keep: Maximum number of unused pieces to keep.
    """

    def __init__(self, nbytes: int, keep: int = 4) -> None:
        self.nbytes = nbytes
        self._free: deque[mmap.mmap] = deque(maxlen=keep)

    def take(self, shape: tuple[int, ...]) -> np.ndarray:
        """Return an uninitialized uint8 array. Raises ValueError if it is larger than ``nbytes``."""
        if math.prod(shape) > self.nbytes:
            raise ValueError(f"BufferPool: a buffer of shape {shape} is larger than nbytes={self.nbytes}")
        try:
            memory = self._free.pop()
        except IndexError:
            memory = _fresh(self.nbytes)
        array = np.ndarray(shape, np.uint8, buffer=memory)
        weakref.finalize(array, self._free.append, memory).atexit = False  # any thread can delete the last view; append is atomic
        return array


def _fresh(nbytes: int) -> mmap.mmap:
    """Return new memory, with huge pages if the system supports them. This causes only one page fault per 2 MB."""
    memory = mmap.mmap(-1, max(nbytes, 1), flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    with contextlib.suppress(AttributeError, OSError):  # this platform or kernel has no huge pages
        memory.madvise(mmap.MADV_HUGEPAGE)
    return memory

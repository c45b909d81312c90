"""Memory for batches. A later batch reuses the memory of a batch when no object refers to this batch or a view of it."""

from __future__ import annotations

import contextlib
import math
import mmap
import weakref
from collections import deque

import numpy as np


class BufferPool:
    """Creates uint8 arrays in reused memory.

    New memory causes a page fault per 4 kB. Reused memory causes no page faults.

    Reuse is safe for this reason: the array uses the memory of an ``mmap``, which is not an array. In NumPy, a view of a view refers to the
    last array of the chain. So all views, memoryviews, tensors and frames refer to *this* array. The array's finalizer returns the memory
    to the pool. The finalizer runs after the last of these objects is deleted. If the array used the memory of a second array, or of a
    memoryview of the second array, views would refer to the second array, and the finalizer would run too early.

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
        weakref.finalize(array, self._free.append, memory).atexit = False  # append is atomic, because any thread can delete the last object
        return array


def _fresh(nbytes: int) -> mmap.mmap:
    """Return new memory. If the system supports huge pages, there is only one page fault and one TLB entry per 2 MB."""
    memory = mmap.mmap(-1, max(nbytes, 1), flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    with contextlib.suppress(AttributeError, OSError):  # this platform or kernel has no huge pages
        memory.madvise(mmap.MADV_HUGEPAGE)
    return memory

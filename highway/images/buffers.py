"""Memory for batches, used again as soon as nobody holds the batch or a view of it, and never before."""

from __future__ import annotations

import contextlib
import math
import mmap
import weakref
from collections import deque

import numpy as np


class BufferPool:
    """Hands out uint8 arrays over memory that is used again.

    Fresh memory costs a page fault for each 4 kB; memory that was touched before costs none.

    Why it is safe: the array handed out lies over an ``mmap``. numpy makes the base of a view the first array below it that owns its
    memory or lies over something that is no array, so every view of a view holds on to *that* array (as do memoryviews, tensors and
    frames made of one). Its finalizer, which gives the memory back, runs when the last of them is gone. Were there an array, or a
    memoryview of one, in place of the mmap, then views would hold on to that and go round the finalizer.

    Args:
        nbytes: Size of each piece of memory.
        keep: How many unused pieces to keep at most.
    """

    def __init__(self, nbytes: int, keep: int = 4) -> None:
        self.nbytes = nbytes
        self._free: deque[mmap.mmap] = deque(maxlen=keep)

    def take(self, shape: tuple[int, ...]) -> np.ndarray:
        """Return a uint8 array of at most ``nbytes``, with anything in it."""
        if math.prod(shape) > self.nbytes:
            raise ValueError(f"BufferPool: {shape} is more than nbytes={self.nbytes}")
        try:
            memory = self._free.pop()
        except IndexError:
            memory = _fresh(self.nbytes)
        array = np.ndarray(shape, np.uint8, buffer=memory)
        weakref.finalize(array, self._free.append, memory).atexit = False  # append is atomic: the last holder may be on any thread
        return array


def _fresh(nbytes: int) -> mmap.mmap:
    """Return new memory, in huge pages where the system gives them: 2 MB for each page fault, and for each entry of the TLB."""
    memory = mmap.mmap(-1, max(nbytes, 1), flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    with contextlib.suppress(AttributeError, OSError):  # not on this platform; not in this kernel
        memory.madvise(mmap.MADV_HUGEPAGE)
    return memory

"""Manage the memory of received messages."""

from __future__ import annotations

import ctypes
import os
from functools import cache
from typing import Any

import numpy as np

from highway.process.aligned import aligned_copy

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # malloc.h
LARGEST = 32 << 20  # bytes; the maximum mmap threshold that glibc accepts
KEPT = 256 << 20  # bytes of freed memory to keep
SETTINGS = ("GLIBC_TUNABLES", "MALLOC_MMAP_THRESHOLD_", "MALLOC_TOP_PAD_", "MALLOC_TRIM_THRESHOLD_")


@cache
def keep_freed_memory() -> None:
    """Make glibc keep up to 256 MB of freed memory in each of its arenas for later messages.

    ZeroMQ allocates and frees the memory of each message. If glibc returned freed memory to the system, the next message would cause a page
    fault for each 4 kB. If the user has set one of :data:`SETTINGS`, or if there is no glibc, this function does nothing. See mallopt(3).
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None and not any(name in os.environ for name in SETTINGS):
        mallopt(_MMAP_THRESHOLD, LARGEST)
        mallopt(_TRIM_THRESHOLD, KEPT)


def writable(item: Any) -> Any:
    """Return an item whose arrays are new copies, in C order and aligned to 64 bytes.

    Arrays in tuples, lists and dicts are also copied. Other values stay the same objects.
    """
    if isinstance(item, np.ndarray):
        keep_freed_memory()
        return aligned_copy(item)
    if isinstance(item, dict):
        return {name: writable(value) for name, value in item.items()}
    if isinstance(item, (tuple, list)):
        return type(item)([writable(value) for value in item])
    return item

"""The memory of messages that arrive."""

from __future__ import annotations

import ctypes
import os
from functools import cache
from typing import Any

import numpy as np

from highway.process.aligned import aligned_copy

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # malloc.h
LARGEST = 32 << 20  # bytes; the greatest that glibc takes
KEPT = 256 << 20  # bytes
SETTINGS = ("GLIBC_TUNABLES", "MALLOC_MMAP_THRESHOLD_", "MALLOC_TOP_PAD_", "MALLOC_TRIM_THRESHOLD_")


@cache
def keep_freed_memory() -> None:
    """Have glibc keep up to 256 MB of what was freed for the messages to come, in each of its arenas, instead of giving it back.

    ZeroMQ allocates each message and frees it. What glibc gives back to the system in between is faulted in again, 4 kB at a time. It is
    left as it is where the user has set it (:data:`SETTINGS`), and where there is no glibc; mallopt(3).
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None and not any(name in os.environ for name in SETTINGS):
        mallopt(_MMAP_THRESHOLD, LARGEST)
        mallopt(_TRIM_THRESHOLD, KEPT)


def writable(item: Any) -> Any:
    """Return an item whose arrays are copies that nobody else has, in C order and aligned to 64 bytes.

    Arrays within tuples, lists and dicts are copied too; other values stay as they are.
    """
    if isinstance(item, np.ndarray):
        keep_freed_memory()
        return aligned_copy(item)
    if isinstance(item, dict):
        return {name: writable(value) for name, value in item.items()}
    if isinstance(item, (tuple, list)):
        return type(item)([writable(value) for value in item])
    return item

"""Memory for arrays where frameworks take it as it is: TensorFlow and JAX copy, or refuse, what begins at no multiple of 64 bytes."""

from __future__ import annotations

import ctypes
import math
from typing import Any

import numpy as np

ALIGNMENT = 64  # bytes: a line of the cache, and a register of AVX-512


def aligned(shape: tuple[int, ...], dtype: np.dtype[Any] | type[np.generic]) -> np.ndarray[Any, Any]:
    """Return a new array, not initialized, in C order, that begins at a multiple of :data:`ALIGNMENT`; not one of Python objects."""
    dtype = np.dtype(dtype)
    if dtype.hasobject:  # which numpy puts into memory of its own alone
        return np.empty(shape, dtype)
    memory = np.empty(math.prod(shape) * dtype.itemsize + ALIGNMENT, np.uint8)
    return np.ndarray(shape, dtype, memory.data, _offset(memory.data))


def aligned_copy(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return a copy as :func:`aligned` makes arrays."""
    copy = aligned(array.shape, array.dtype)
    copy[...] = array
    return copy


def aligned_bytes(data: bytes) -> memoryview:
    """Return a copy of some bytes, read-only, that begins as :func:`aligned` has arrays begin."""
    memory = np.empty(len(data) + ALIGNMENT, np.uint8).data
    begin = _offset(memory)
    copy = memory[begin : begin + len(data)]
    copy[:] = data
    return copy.toreadonly()


def _offset(memory: memoryview) -> int:
    """Return where in some memory a multiple of :data:`ALIGNMENT` is; a third of the time that ``ndarray.ctypes`` takes."""
    return -ctypes.addressof(ctypes.c_char.from_buffer(memory)) % ALIGNMENT

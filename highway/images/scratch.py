"""Temporary memory for operations on images. Each thread has its own memory, and reuses it.

New memory causes a page fault per 4 kB, which can take longer than the operation. The C library returns large blocks to the system as soon
as they are free, so each operation would need new memory.
"""

from __future__ import annotations

import math
import threading
from typing import Any

import numpy as np

_LARGEST = 2**24  # maximum size of an array to keep per name, in bytes


class _Pieces(threading.local):
    def __init__(self) -> None:
        self.by_name: dict[str, np.ndarray] = {}


_pieces = _Pieces()


def scratch(name: str, shape: tuple[int, ...], dtype: np.dtype[Any] | type[np.generic]) -> np.ndarray:
    """Return an uninitialized array. It is valid until this thread requests another array with the same name.

    Therefore, a function must not return this array to its caller.

    Args:
        name: The purpose of the array.
        shape: The shape of the array. Arrays above 16 MiB always get new memory.
        dtype: The dtype of the array.
    """
    nbytes = math.prod(shape) * np.dtype(dtype).itemsize
    if nbytes > _LARGEST:
        return np.empty(shape, dtype)
    piece = _pieces.by_name.get(name)
    if piece is None or piece.nbytes < nbytes:
        piece = _pieces.by_name[name] = np.empty(nbytes, np.uint8)
    return np.ndarray(shape, dtype, piece.data)

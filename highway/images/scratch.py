"""Temporary memory for operations on an image: each thread reuses its own.

New memory costs a page fault per 4 kB, which can take longer than the operation: the C library returns large blocks to the
system as soon as they are free.
"""

from __future__ import annotations

import math
import threading
from typing import Any

import numpy as np

_LARGEST = 2**24  # maximum bytes to keep per name


class _Pieces(threading.local):
    def __init__(self) -> None:
        self.by_name: dict[str, np.ndarray] = {}


_pieces = _Pieces()


def scratch(name: str, shape: tuple[int, ...], dtype: np.dtype[Any] | type[np.generic]) -> np.ndarray:
    """Return an uninitialized array. It is valid until this thread requests an array of the same name. Do not return it to a caller.

    Args:
        name: The purpose.
        shape: The shape. Arrays above 16 MiB are not kept.
        dtype: The type.
    """
    nbytes = math.prod(shape) * np.dtype(dtype).itemsize
    if nbytes > _LARGEST:
        return np.empty(shape, dtype)
    piece = _pieces.by_name.get(name)
    if piece is None or piece.nbytes < nbytes:
        piece = _pieces.by_name[name] = np.empty(nbytes, np.uint8)
    return np.ndarray(shape, dtype, piece.data)

"""Memory for what an operation on an image needs while it runs, and nobody sees: each thread uses its own again.

Fresh memory costs a page fault for each 4 kB, which can take longer than the operation: the C library gives large pieces back to the
system as soon as they are free.
"""

from __future__ import annotations

import math
import threading
from typing import Any

import numpy as np

_LARGEST = 2**24  # bytes that are kept of each name


class _Pieces(threading.local):
    def __init__(self) -> None:
        self.by_name: dict[str, np.ndarray] = {}


_pieces = _Pieces()


def scratch(name: str, shape: tuple[int, ...], dtype: np.dtype[Any] | type[np.generic]) -> np.ndarray:
    """Return an array with anything in it, good until this thread asks for one of the same name: never to be returned to a caller.

    Args:
        name: What it is for.
        shape: Its shape. More than 16 MiB are allocated anew.
        dtype: Its dtype.
    """
    nbytes = math.prod(shape) * np.dtype(dtype).itemsize
    if nbytes > _LARGEST:
        return np.empty(shape, dtype)
    piece = _pieces.by_name.get(name)
    if piece is None or piece.nbytes < nbytes:
        piece = _pieces.by_name[name] = np.empty(nbytes, np.uint8)
    return np.ndarray(shape, dtype, piece.data)

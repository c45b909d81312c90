"""The optional C extension: a box of a JPEG, decoded no further, is scaled into the row of a batch. Called by images/decode.py."""

from typing import Any

import numpy as np

def decode_crop(
    data: bytes,
    size: tuple[int, int],
    box: tuple[int, int, int, int],
    reduction: int,
    out: np.ndarray[Any, np.dtype[np.uint8]],
    flipped: bool,
    antialias: bool,
    /,
) -> None:
    """Decode a box of a JPEG and scale it into ``out``, without holding the interpreter's lock. Exif is not looked at.

    Args:
        data: The file's bytes: 1 or 3 components of 8 bits.
        size: Height and width that the file announces, which the caller has found to be affordable.
        box: Top, left, height and width in pixels of the image as stored, within it.
        reduction: By how much libjpeg shrinks the image before the box is scaled: 1, 2, 4 or 8.
        out: uint8 ``(H, W, 3)``, contiguous; RGB. After an error it may be filled in part.
        flipped: Whether to mirror the result left to right.
        antialias: Whether to average over all pixels that fall together, in a direction that shrinks, where ``reduction`` is 1;
            otherwise each pixel is mixed of the 2 x 2 around its place.

    Raises:
        ValueError: the bytes are damaged, cut short, no JPEG of this size, or of a kind that libjpeg cannot turn into RGB; or the box lies
            outside, or ``out`` has another shape or dtype.
        BufferError: ``out`` is read-only or not contiguous.
        MemoryError: there is no memory for the rows.
    """

"""The optional C extension: a box of a JPEG, decoded no further, is scaled into the row of a batch. Called by images/decode.py."""

from collections.abc import Sequence
from typing import Any

import numpy as np

API: int
LIBJPEG: str  # whose headers it was built with

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

class Run:
    """Files that are read and decoded together, in memory that is used again; for one thread at a time.

    Raises:
        RuntimeError: another thread is in one of its methods.
    """

    def read(
        self, files: Sequence[bytes | memoryview | str | None], sizes: np.ndarray[Any, np.dtype[np.int64]], max_pixels: int, /
    ) -> tuple[int, int]:
        """Read files and their headers, without holding the interpreter's lock while it does.

        Those of before are forgotten. Together they may have 16 MB; what does not fit behind others has to wait for another call.

        Args:
            files: The bytes of each, or its path; ``None`` for none.
            sizes: ``(N, 2)``: where heights and widths are put; zeros for what is no plain JPEG (1 or 3 components, upright by Exif),
                cannot be read, is no regular file, or has 16 MB or more.
            max_pixels: Greatest height x width; zeros for what announces more, too.

        Returns:
            How many were read, from the first on, at least 1 if there is one; and how many of these have a size.

        Raises:
            TypeError: a file is none of that.
            ValueError: ``sizes`` has another shape or dtype.
        """

    def decode(
        self,
        boxes: np.ndarray[Any, np.dtype[np.int64]],
        flipped: np.ndarray[Any, np.dtype[np.bool_]],
        wanted: np.ndarray[Any, np.dtype[np.bool_]],
        out: np.ndarray[Any, np.dtype[np.uint8]],
        antialias: bool,
        simulated: int = 0,
        /,
    ) -> list[int]:
        """Decode boxes of the first N files as :func:`decode_crop` does, without holding the interpreter's lock.

        An image is reduced by 2, 4 or 8 where its box is that much larger than the output.

        Args:
            boxes: ``(N, 4)``: top, left, height and width in pixels.
            flipped: ``(N,)``: which to mirror left to right.
            wanted: ``(N,)``: which to decode.
            out: ``(N, H, W, 3)``, contiguous; RGB.
            antialias: As for :func:`decode_crop`.
            simulated: Microseconds to sleep for each file in place of decoding; 0 decodes.

        Returns:
            The places of those that could not be decoded; their rows may be filled in part.

        Raises:
            ValueError: there are more boxes than files, or an array has another shape or dtype.
            BufferError: ``out`` is read-only or not contiguous.
        """

    def data(self, place: int, /) -> bytes | None:
        """Return the bytes of a file, or ``None`` if it was not read. Raises IndexError."""

    def forget(self) -> None:
        """Hold on to the files no more; of the memory 8 MB are kept."""

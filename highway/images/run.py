"""A run of encoded images to the rows of a batch: their headers first, then all boxes at once, then their pixels."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from highway.engine.cancel import check_cancelled
from highway.images.decode import checked_header, decode_crop
from highway.images.header import Header
from highway.process.aligned import aligned

Rows = np.ndarray | list[np.ndarray]
Boxes = tuple[np.ndarray, dict[int, Exception]]
BoxesOf = Callable[[np.ndarray], Boxes]


def decode_run(
    files: Sequence[bytes | None],
    boxes_of: Callable[[np.ndarray], Boxes],
    flipped: np.ndarray,
    rows: Rows,
    max_pixels: int,
    antialias: bool,
) -> dict[int, Exception]:
    """Decode a box of each image and scale it into its row.

    Args:
        files: The images' bytes; ``None`` for those to be left out.
        boxes_of: Takes the upright images' heights and widths, int64 ``(N, 2)``, zeros for those that are not decoded, and returns the
            boxes, int64 ``(N, 4)`` as top, left, height, width; and the errors of those that have none, by their place.
        flipped: bool ``(N,)``: which to mirror left to right.
        rows: uint8 ``(N, H, W, 3)``, contiguous; or a list of N, whose elements are replaced by the boxes as they are.
        max_pixels: Greatest height x width that an image may announce.
        antialias: Whether to average over all pixels that fall together where an image shrinks; slower.

    Returns:
        Why images could not be decoded, by their place; all other rows are filled.
    """
    errors: dict[int, Exception] = {}
    headers: dict[int, Header] = {}
    sizes = np.zeros((len(files), 2), np.int64)
    for place, data in enumerate(files):
        if data is not None:
            try:
                headers[place] = header = checked_header(data, max_pixels)
                sizes[place] = header.size
            except Exception as error:
                errors[place] = error
    boxes, not_drawn = boxes_of(sizes)
    errors |= not_drawn
    for place, header in headers.items():
        data = files[place]
        if place in errors or data is None:
            continue
        check_cancelled()
        top, left, height, width = boxes[place].tolist()
        try:
            if isinstance(rows, list):
                rows[place] = aligned((height, width, 3), np.uint8)
            decode_crop(data, header, (top, left, height, width), rows[place], bool(flipped[place]), antialias)
        except Exception as error:
            errors[place] = error
    return errors

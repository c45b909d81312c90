"""Draw the masks of COCO. A mask is described by polygons, or by run lengths (as numbers or as compressed text).

A run is a sequence of background pixels, or of object pixels. Runs go down the first column, then down the next column. The first run is
background. The masks are equal to the masks of pycocotools (``maskApi.c`` of https://github.com/cocodataset/cocoapi). highway does not use
pycocotools, which would be a compiled dependency.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np

_UPSAMPLED = 5  # number of points per pixel in each direction, on the grid of boundary points
# Maximum number of boundary points of a polygon. The border of an image of 8,000 x 8,000 pixels has a hundredth of this number.
_LONGEST = 1 << 24


class RunLengths(msgspec.Struct):
    """The mask of an object as the lengths of runs. The runs alternate: background, object, background, ...

    Args:
        size: Height and width of the image.
        counts: Number of pixels of each run, as a list or as compressed text.
    """

    size: tuple[int, int]
    counts: list[int] | str


Segmentation = list[list[float]] | RunLengths


def draw(segmentation: Segmentation, mask: np.ndarray) -> None:
    """Set the pixels of an object to 1 in a mask.

    Args:
        segmentation: Run lengths, or a list of polygons. A polygon is a list x, y, x, y, ... in pixels from the upper left corner of the
            image.
        mask: uint8 ``(H, W)``.

    Raises:
        ValueError: the run lengths do not fit the size of the mask, a polygon is not valid, or the segmentation is empty.
    """
    if isinstance(segmentation, RunLengths):
        if tuple(segmentation.size) != mask.shape:
            raise ValueError(f"its run lengths are for height and width {segmentation.size}, but the image has {mask.shape}")
        counts = segmentation.counts
        _draw_runs(_decompressed(counts) if isinstance(counts, str) else _as_counts(counts), mask)
    elif segmentation:
        for polygon in segmentation:
            _draw_runs(_runs_in(polygon, *mask.shape), mask)
    else:
        raise ValueError("it is empty; expected polygons or run lengths")


def _draw_runs(counts: np.ndarray, mask: np.ndarray) -> None:
    height, width = mask.shape
    if counts.size == 0 or counts.min() < 0 or counts.max() > mask.size or (total := int(counts.sum())) != mask.size:
        valid = counts.size and 0 <= counts.min() <= counts.max() <= mask.size
        found = f"the sum is {total}" if valid else "the list is empty, or a length is out of range"
        raise ValueError(f"expected run lengths with the sum {mask.size}, because the image has {height} x {width} pixels; {found}")
    first = int(counts[0]) // height  # number of the first column with pixels of the object
    behind = int(counts[-1]) // height if len(counts) % 2 else 0
    flat = np.repeat((np.arange(len(counts)) % 2).astype(np.uint8), counts)
    mask[:, first : width - behind] |= flat.reshape(width, height)[first : width - behind].T


def _as_counts(counts: list[int]) -> np.ndarray:
    try:
        return np.array(counts, np.int64)
    except OverflowError:
        return np.array([-1])


def _decompressed(text: str) -> np.ndarray:
    """Decompress run lengths.

    A character contains 5 bits of a number. From the fourth number on, a number is the difference to the number two places before.
    """
    codes = np.frombuffer(text.encode(), np.uint8).astype(np.int64) - 48
    last = np.flatnonzero(codes & 0x20 == 0)
    if not len(codes) or codes.min() < 0 or codes.max() > 63 or codes[-1] & 0x20:
        raise ValueError(f"{text[:20]!r} is not a compressed list of run lengths")
    first = np.append(0, last[:-1] + 1)
    sizes = last - first + 1
    if sizes.max() > 8:
        raise ValueError(
            f"{text[:20]!r} is not a compressed list of run lengths: a length has {sizes.max()} characters; expected at most 8"
        )
    places = np.arange(len(codes)) - np.repeat(first, sizes)
    counts: np.ndarray = np.add.reduceat((codes & 0x1F) << 5 * places, first)
    counts -= np.where(codes[last] & 0x10, 1 << 5 * sizes, 0)
    for start in (1, 2):
        counts[start::2] = np.cumsum(counts[start::2])
    return counts


def _runs_in(polygon: Sequence[float], height: int, width: int) -> np.ndarray:
    """Return the run lengths of a polygon. A run begins or ends where the boundary of the polygon crosses the middle of a column."""
    if len(polygon) < 6 or len(polygon) % 2:
        raise ValueError(f"one of its polygons has {len(polygon)} numbers; expected x and y of at least three points")
    corners = _UPSAMPLED * np.array(polygon).reshape(-1, 2) + 0.5
    if not np.abs(corners - np.roll(corners, -1, axis=0)).max(axis=1).sum() < _LONGEST:
        raise ValueError("one of its polygons is too large; expected coordinates in pixels of the image")
    column, row = _boundary(corners.astype(np.int64))
    moved = np.flatnonzero(column[:-1] != column[1:])
    left = np.minimum(column[moved], column[moved + 1])
    inside = (left % _UPSAMPLED == _UPSAMPLED // 2) & (left >= 0) & (left < width * _UPSAMPLED)
    crossed, number = moved[inside], left[inside] // _UPSAMPLED
    upper = np.minimum(row[crossed], row[crossed + 1])
    rows = np.ceil(np.clip((upper + 0.5) / _UPSAMPLED - 0.5, 0, height)).astype(np.int64)
    places = np.sort(number * height + rows)
    return np.diff(places, prepend=0, append=height * width)


def _boundary(corners: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return x and y of the grid points on the lines that connect the corners. ``corners`` is int64 ``(N, 2)``."""
    ends = np.roll(corners, -1, axis=0)
    steep = np.abs(ends - corners) @ (1, -1) < 0
    along = np.where(steep, 1, 0)  # the axis along which a line has one point per step: 1 for steep lines
    edges = np.arange(len(corners))
    backwards = corners[edges, along] > ends[edges, along]  # each line is drawn in the direction of increasing coordinates
    begins, stops = np.where(backwards[:, None], ends, corners), np.where(backwards[:, None], corners, ends)
    lengths = (stops - begins)[edges, along]
    slopes = (stops - begins)[edges, 1 - along] / np.maximum(lengths, 1)
    edge = np.repeat(edges, lengths + 1)
    steps = np.arange(len(edge)) - np.repeat(np.cumsum(lengths + 1) - lengths - 1, lengths + 1)
    steps = np.where(backwards[edge], lengths[edge] - steps, steps)
    forwards = begins[edges, along][edge] + steps
    sideways = (begins[edges, 1 - along][edge] + slopes[edge] * steps + 0.5).astype(np.int64)
    return np.where(steep[edge], sideways, forwards), np.where(steep[edge], forwards, sideways)

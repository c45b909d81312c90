"""Decode several images into rows of a batch: first read all headers, then draw all random boxes, then decode the pixels.

The C extension decodes many JPEGs in two calls, without the GIL. Other images are decoded one by one. Without the C extension, all images
are decoded one by one. The errors are the same in both cases; pixels can differ by a level or two (docs/adr/0008-jpeg-extension.md).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from highway.engine.cancel import check_cancelled
from highway.images.decode import checked_header, decode_crop, extension_or_none
from highway.images.header import Header
from highway.images.ops import Size
from highway.process.aligned import aligned

File = bytes | memoryview | str | None
Rows = np.ndarray | tuple[np.ndarray, ...] | list[np.ndarray]
Boxes = tuple[np.ndarray, dict[int, Exception]]
BoxesOf = Callable[[np.ndarray], Boxes]

_simulated = 0  # for benchmarks/scale.py: microseconds that the C extension sleeps per image instead of decoding it
_idle: deque[Any] = deque()  # Run objects of the C extension that no thread is using; there is at most one object per thread


def decode_run(
    files: Sequence[File], boxes_of: BoxesOf, flipped: np.ndarray, rows: Rows, max_pixels: int, antialias: bool
) -> dict[int, Exception]:
    """Decode a box of each image, and scale it into the row of the image.

    Args:
        files: The bytes of the images, or the paths of their files. ``None`` skips a row.
        boxes_of: A function that receives the heights and widths of the upright images, int64 ``(N, 2)``. It returns a pair. The first
            element contains the boxes, int64 ``(N, 4)``: top, left, height, width. The second element is a dict from the rows of images
            without a box to errors. The function can be called several times, each time with the sizes of some images. The sizes of all
            other images are 0.
        flipped: bool ``(N,)``: whether to mirror each image left to right.
        rows: The output: a contiguous uint8 array ``(N, H, W, 3)``, a tuple of N arrays ``(H, W, 3)``, or a list of length N. In a list,
            the boxes are stored without scaling.
        max_pixels: Maximum number of pixels (height x width) in the header of an image.
        antialias: Whether to average all source pixels of an output pixel if the box becomes smaller. This is slower.

    Returns:
        A dict from the rows of images that could not be decoded to their errors. All other rows are filled.
    """
    singly = _OneByOne(files, flipped, rows, max_pixels, antialias)
    extension = extension_or_none()
    if extension is None or isinstance(rows, list):
        sizes = np.zeros((len(files), 2), np.int64)
        for place in range(len(files)):
            sizes[place] = singly.size(place)
        singly.decode(*boxes_of(sizes))
        return singly.errors
    run = _idle.pop() if _idle else extension.Run()
    try:
        first = 0
        while first < len(files):
            check_cancelled()
            first += _decode_some(run, files[first:] if first else files, first, boxes_of, singly)
    finally:
        run.forget()
        _idle.append(run)
    return singly.errors


def _decode_some(run: Any, files: Sequence[File], first: int, boxes_of: BoxesOf, singly: _OneByOne) -> int:
    """Decode as many files, starting at ``first``, as fit into the memory of the C extension. Return the number of these files."""
    sizes = np.zeros((len(singly.files), 2), np.int64)
    count: int
    plain: int
    count, plain = run.read(files, sizes[first:], singly.max_pixels)
    some = slice(first, first + count)
    wanted = sizes[some, 0] > 0
    if plain < count:
        for place in np.flatnonzero(~wanted).tolist():
            sizes[first + place] = singly.size(first + place, run.data(place))
    boxes, errors = boxes_of(sizes)
    for place in errors:
        wanted[place - first] = False
    for place in run.decode(boxes[some], singly.flipped[some], wanted, singly.rows[some], singly.antialias, _simulated):
        singly.size(first + place)
    singly.decode(boxes, errors)
    return count


class _OneByOne:
    """Decodes images one by one."""

    def __init__(self, files: Sequence[File], flipped: np.ndarray, rows: Rows, max_pixels: int, antialias: bool) -> None:
        self.files, self.flipped, self.rows, self.max_pixels, self.antialias = files, flipped, rows, max_pixels, antialias
        self.errors: dict[int, Exception] = {}
        self._opened: dict[int, tuple[bytes, Header]] = {}

    def size(self, place: int, data: bytes | None = None) -> Size:
        """Return the height and width of an image, or 0, 0 if it cannot be decoded. ``data``: the bytes, if they were already read."""
        file = self.files[place]
        if file is None:
            return 0, 0
        check_cancelled()
        try:
            if not isinstance(file, str):
                data = bytes(file)
            elif data is None:
                with open(file, "rb", buffering=0) as opened:
                    data = opened.read()
            header = checked_header(data, self.max_pixels)
        except Exception as error:
            self.errors[place] = error
            return 0, 0
        self._opened[place] = data, header
        return header.size

    def decode(self, boxes: np.ndarray, errors: dict[int, Exception]) -> None:
        """Decode the images whose sizes were requested, except images in ``errors``, which have no box."""
        self.errors |= errors
        for place, (data, header) in self._opened.items():
            if place in errors:
                continue
            check_cancelled()
            top, left, height, width = boxes[place].tolist()
            try:
                if isinstance(self.rows, list):
                    self.rows[place] = aligned((height, width, 3), np.uint8)
                decode_crop(data, header, (top, left, height, width), self.rows[place], bool(self.flipped[place]), self.antialias)
            except Exception as error:
                self.errors[place] = error
        self._opened.clear()

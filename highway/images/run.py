"""Decode several images into rows of a batch: first read all headers, then draw all boxes, then decode the pixels.

The C extension decodes a run (consecutive images) of plain JPEGs in two calls, which release Python's interpreter
lock. Other images are decoded one by one. Without the extension, all images are decoded one by one. Pixels and errors are the same in both
cases.
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

_simulated = 0  # microseconds that the extension sleeps per image instead of decoding the image; set by benchmarks/scale.py
_idle: deque[Any] = deque()  # the extension's runs that no thread is using; there is at most one run per thread


def decode_run(
    files: Sequence[File], boxes_of: BoxesOf, flipped: np.ndarray, rows: Rows, max_pixels: int, antialias: bool
) -> dict[int, Exception]:
    """Decode a box of each image and scale it into its row.

    Args:
        files: The bytes of the images, or the paths of their files. ``None`` skips a row.
        boxes_of: A function that receives the heights and widths of the upright images, int64 ``(N, 2)``. It returns the boxes, int64
            ``(N, 4)`` as top, left, height, width, and a dict from the rows of images without a box to errors. It can be called several
            times: each call has the sizes of some of the images. The size is zeros for all other images, skipped images, and errors.
        flipped: bool ``(N,)``: whether to mirror each image left to right.
        rows: The output: a contiguous uint8 array ``(N, H, W, 3)``, or a tuple of N arrays ``(H, W, 3)``. If it is a list of length N, the
            list receives the unscaled boxes.
        max_pixels: Maximum number of pixels (height x width) in the header of an image.
        antialias: Whether to average over all source pixels when an image shrinks, which is slower.

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
    """Decode as many files from ``first`` on as fit into the extension's memory. Return the number of decoded files."""
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
    """The images of a run that are decoded one by one."""

    def __init__(self, files: Sequence[File], flipped: np.ndarray, rows: Rows, max_pixels: int, antialias: bool) -> None:
        self.files, self.flipped, self.rows, self.max_pixels, self.antialias = files, flipped, rows, max_pixels, antialias
        self.errors: dict[int, Exception] = {}
        self._opened: dict[int, tuple[bytes, Header]] = {}

    def size(self, place: int, data: bytes | None = None) -> Size:
        """Return the height and width of an image, or zeros if it cannot be decoded. ``data`` has the bytes if they were read before."""
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
        """Decode the images whose sizes were requested. Images in ``errors`` have no box and are skipped."""
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

"""Transforms that move pixels without interpolation: flips, rotations by 90 degrees, shifts and padding."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, ClassVar, Literal

import numpy as np
from numpy.random import Generator

from highway import functional as F
from highway.images import ops
from highway.images.ops import Size
from highway.parameters.checks import checked
from highway.parameters.ranges import Predicate, Probability, Range, Shape
from highway.transforms.base import Geometric, below, happens, placed, uniform
from highway.transforms.parameters import Factors, PerChannel

Sides = Annotated[
    int | tuple[int, ...],
    Range(ge=0, words="pixels, at least 0"),
    Predicate(lambda size: isinstance(size, int) or len(size) in (2, 4), "pixels on every side, or two numbers, or four"),
]


@dataclass(frozen=True)
class _Flip(Geometric):
    """Flip an image with probability ``p``.

    Args:
        p: Probability, from 0 to 1. Without ``rng``, the image changes only if ``p`` is 1.
    """

    axis: ClassVar[Literal[0, 1]]  # axis of the image's array
    signs: ClassVar[tuple[int, int]]  # signs of x and y

    p: Probability = 0.5

    def draw(self, size: Size, rng: Generator | None) -> bool:
        return happens(self.p, rng)

    def image(self, image: np.ndarray, params: bool, out: np.ndarray | None = None) -> np.ndarray:
        return ops.flip(image, self.axis, out) if params else image

    into = image

    def points(self, points: np.ndarray, params: bool, size: Size) -> np.ndarray:
        x, y = self.signs
        return placed(points, self.signs, (size[1] * (x < 0), size[0] * (y < 0))) if params else points


@checked
@dataclass(frozen=True)
class FlipX(_Flip):
    """Flip horizontally with probability ``p``.

    >>> FlipX(p=1)(np.array([[1, 2, 3]], np.uint8))
    array([[3, 2, 1]], dtype=uint8)
    """

    axis, signs, rowwise = 1, (-1, 1), True


@checked
@dataclass(frozen=True)
class FlipY(_Flip):
    """Flip vertically with probability ``p``.

    >>> FlipY(p=1)(np.array([[1], [2]], np.uint8)).tolist()
    [[2], [1]]
    """

    axis, signs = 0, (1, -1)


@checked
@dataclass(frozen=True)
class Shift(Geometric):
    """Move the image by a random number of whole pixels, up to ``shift`` in each direction. Without ``rng``, the image does not change.

    Args:
        shift: Maximum shift, at least 0. An integer is a number of pixels. A float below 1 is a fraction of the height and width of the
            image.
        mode: Values of new pixels: ``"constant"`` (0), ``"nearest"``, ``"reflect"``, ``"mirror"`` or ``"wrap"``; see
            :func:`highway.functional.shift`. If the new pixels repeat parts of the image, boxes and points are not repeated.

    >>> image = np.array([[1, 2, 3, 4], [5, 6, 7, 8]], np.uint8)
    >>> Shift(1)(image, np.random.default_rng(0))
    array([[2, 3, 4, 0],
           [6, 7, 8, 0]], dtype=uint8)
    """

    shift: Annotated[
        int | float,
        Predicate(
            lambda shift: shift >= 0 and (isinstance(shift, int) or shift < 1),
            "a share of the image as a float from 0 to below 1 (0.1), or pixels as a whole number, at least 0 (10)",
        ),
    ]
    mode: F.Border = "constant"

    def draw(self, size: Size, rng: Generator | None) -> tuple[int, int]:
        down, right = (self.shift if isinstance(self.shift, int) else int(self.shift * length) for length in size)
        return _offsets(down, right, rng)

    def image(self, image: np.ndarray, params: tuple[int, int]) -> np.ndarray:
        return image if params == (0, 0) else F.shift(image, params, self.mode)

    def points(self, points: np.ndarray, params: tuple[int, int], size: Size) -> np.ndarray:
        return placed(points, offset=params[::-1])


@checked
@dataclass(frozen=True)
class PadCrop(Geometric):
    """Pad every side by ``padsize`` pixels, and crop a random box of the original size. Without ``rng``, the image does not change.

    Args:
        padsize: Number of pixels on each side, at least 0.
        mode: Values of the padding, as in ``numpy.pad``; see :func:`highway.functional.pad`.

    >>> image = np.arange(1, 10, dtype=np.uint8).reshape(3, 3)
    >>> PadCrop(1)(image, np.random.default_rng(0))
    array([[2, 3, 0],
           [5, 6, 0],
           [8, 9, 0]], dtype=uint8)
    """

    padsize: Annotated[int, Range(ge=0, words="pixels, at least 0")] = 4
    mode: F.Padding = "constant"

    def draw(self, size: Size, rng: Generator | None) -> tuple[int, int]:
        return _offsets(self.padsize, self.padsize, rng)

    def image(self, image: np.ndarray, params: tuple[int, int]) -> np.ndarray:
        if params == (0, 0):
            return image
        if self.mode == "constant":
            return F.paste(image, image.shape[:2], params)
        return F.crop(F.pad(image, self.padsize, self.mode), (self.padsize - params[0], self.padsize - params[1]), image.shape[:2])

    def points(self, points: np.ndarray, params: tuple[int, int], size: Size) -> np.ndarray:
        return placed(points, offset=params[::-1])


@checked
@dataclass(frozen=True)
class Transpose(Geometric):
    """Swap rows and columns with probability ``p``. If the images of a batch are not square, the results can differ in size.

    Args:
        p: Probability, from 0 to 1. Without ``rng``, the image changes only if ``p`` is 1.

    >>> Transpose(p=1)(np.array([[1, 2, 3]], np.uint8)).tolist()
    [[1], [2], [3]]
    """

    p: Probability = 0.5

    def draw(self, size: Size, rng: Generator | None) -> bool:
        return happens(self.p, rng)

    def output(self, params: bool, size: Size) -> Size:
        return size[::-1] if params else size

    def image(self, image: np.ndarray, params: bool) -> np.ndarray:
        return F.transpose(image) if params else image

    def points(self, points: np.ndarray, params: bool, size: Size) -> np.ndarray:
        return points[:, ::-1] if params else points


@checked
@dataclass(frozen=True)
class Rotate90(Geometric):
    """Rotate the image counterclockwise by a random multiple of 90 degrees. Without ``rng``, the image does not change.

    If the images of a batch are not square, the results can differ in size.

    >>> image = np.array([[1, 2, 3], [4, 5, 6]], np.uint8)
    >>> Rotate90()(image, np.random.default_rng(0))
    array([[6, 5, 4],
           [3, 2, 1]], dtype=uint8)
    """

    def draw(self, size: Size, rng: Generator | None) -> int:
        return 0 if rng is None else below(4, rng)

    def output(self, params: int, size: Size) -> Size:
        return size[::-1] if params % 2 else size

    def image(self, image: np.ndarray, params: int) -> np.ndarray:
        return F.rotate90(image, params)

    def points(self, points: np.ndarray, params: int, size: Size) -> np.ndarray:
        height, width = size
        for _ in range(params):
            points = placed(points[:, ::-1], (1, -1), (0, width))
            height, width = width, height
        return points


@checked
@dataclass(frozen=True)
class D4(Rotate90):
    """Rotate the image by a random multiple of 90 degrees, and randomly flip it.

    The eight possible results are equally likely. Without ``rng``, the image does not change.

    >>> image = np.array([[1, 2], [3, 4]], np.uint8)
    >>> D4()(image, np.random.default_rng(0))
    array([[2, 1],
           [4, 3]], dtype=uint8)
    """

    def draw(self, size: Size, rng: Generator | None) -> int:
        return 0 if rng is None else below(8, rng)  # if at least 4, the image is also transposed

    def output(self, params: int, size: Size) -> Size:
        turned = super().output(params % 4, size)
        return turned[::-1] if params >= 4 else turned

    def image(self, image: np.ndarray, params: int) -> np.ndarray:
        turned = super().image(image, params % 4)
        return F.transpose(turned) if params >= 4 else turned

    def points(self, points: np.ndarray, params: int, size: Size) -> np.ndarray:
        turned = super().points(points, params % 4, size)
        return turned[:, ::-1] if params >= 4 else turned


@checked
@dataclass(frozen=True)
class Pad(Geometric):
    """Add pixels on each side of the image.

    Args:
        size: Number of new pixels: one number for every side, (above and below, left and right), or (above, below, left, right).
        fill: Value of the new pixels for mode ``"constant"``: a number, or one number per channel.
        mode: How to compute the new pixels, as in ``numpy.pad``. Masks are padded with the same mode, or with 0 for ``"constant"``.

    >>> Pad((1, 2), fill=7)(np.zeros((1, 1), np.uint8))
    array([[7, 7, 7, 7, 7],
           [7, 7, 0, 7, 7],
           [7, 7, 7, 7, 7]], dtype=uint8)
    """

    size: Sides
    fill: PerChannel = 0.0
    mode: F.Padding = "constant"

    @cached_property
    def sides(self) -> tuple[int, int, int, int]:
        """Number of new pixels above, below, left and right."""
        size = (self.size,) * 4 if isinstance(self.size, int) else self.size
        return (size[0], size[1], size[2], size[3]) if len(size) == 4 else (size[0], size[0], size[1], size[1])

    def output(self, params: None, size: Size) -> Size:
        above, below, left, right = self.sides
        return size[0] + above + below, size[1] + left + right

    def image(self, image: np.ndarray, params: None) -> np.ndarray:
        return self._padded(image, self.fill)

    def mask(self, mask: np.ndarray, params: None) -> np.ndarray:
        return self._padded(mask, 0)

    def _padded(self, image: np.ndarray, fill: F.Fill) -> np.ndarray:
        above, below, left, right = self.sides
        if self.mode == "constant":
            return F.paste(image, (image.shape[0] + above + below, image.shape[1] + left + right), (above, left), fill)
        return F.pad(image, ((above, below), (left, right)), self.mode)

    def points(self, points: np.ndarray, params: None, size: Size) -> np.ndarray:
        above, _, left, _ = self.sides
        return placed(points, offset=(left, above))


class _Pasted(Geometric):
    """A transform that pastes the image onto a canvas. Its parameters are the size of the canvas, and the (row, column) of the image."""

    fill: F.Fill

    def output(self, params: tuple[Size, tuple[int, int]] | None, size: Size) -> Size:
        return params[0] if params else size

    def image(self, image: np.ndarray, params: tuple[Size, tuple[int, int]] | None) -> np.ndarray:
        return F.paste(image, *params, self.fill) if params else image

    def mask(self, mask: np.ndarray, params: tuple[Size, tuple[int, int]] | None) -> np.ndarray:
        return F.paste(mask, *params) if params else mask

    def points(self, points: np.ndarray, params: tuple[Size, tuple[int, int]] | None, size: Size) -> np.ndarray:
        return placed(points, offset=params[1][::-1]) if params else points


@checked
@dataclass(frozen=True)
class Paste(_Pasted):
    """Paste the image onto a canvas of one colour. Pixels outside the canvas are cut off.

    Args:
        shape: Height and width of the canvas in pixels.
        place: ``"centre"``, or ``"random"`` for a random position. If the image is smaller than the canvas, all its pixels are on the
            canvas. Without ``rng``, the position is the centre.
        fill: Colour of the canvas: a number, or one number per channel.

    >>> Paste((3, 4), fill=7)(np.zeros((1, 2), np.uint8))
    array([[7, 7, 7, 7],
           [7, 0, 0, 7],
           [7, 7, 7, 7]], dtype=uint8)
    """

    shape: Shape
    place: Literal["centre", "random"] = "centre"
    fill: PerChannel = 0.0

    def draw(self, size: Size, rng: Generator | None) -> tuple[Size, tuple[int, int]]:
        down, right = self.shape[0] - size[0], self.shape[1] - size[1]
        if rng is None or self.place == "centre":
            return self.shape, (down // 2, right // 2)
        return self.shape, (min(down, 0) + below(abs(down) + 1, rng), min(right, 0) + below(abs(right) + 1, rng))


@checked
@dataclass(frozen=True)
class RandomZoomOut(_Pasted):
    """Paste the image at a random position onto a larger canvas of one colour, with probability ``p``.

    Without ``rng``, the image does not change.

    Args:
        fill: Colour of the canvas: a number, or one number per channel.
        side_range: Minimum and maximum ratio of the canvas to the image, from 1 to 10. The ratio is the same for height and width.
        p: Probability, from 0 to 1.

    >>> image = np.zeros((10, 10, 3), np.uint8)
    >>> RandomZoomOut(fill=114, p=1)(image, np.random.default_rng(0)).shape
    (29, 29, 3)
    """

    fill: PerChannel = 0.0
    side_range: Annotated[Factors, Range(ge=1, le=10, words="(least, greatest), from 1 to 10")] = (1.0, 4.0)
    p: Probability = 0.5

    def draw(self, size: Size, rng: Generator | None) -> tuple[Size, tuple[int, int]] | None:
        if rng is None or not happens(self.p, rng):
            return None
        ratio = uniform(*self.side_range, rng)
        height, width = int(size[0] * ratio), int(size[1] * ratio)
        return (height, width), (below(height - size[0] + 1, rng), below(width - size[1] + 1, rng))


def _offsets(down: int, right: int, rng: Generator | None) -> tuple[int, int]:
    return (0, 0) if rng is None else (int(rng.random() * (2 * down + 1)) - down, int(rng.random() * (2 * right + 1)) - right)

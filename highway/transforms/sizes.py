"""Transforms that resize the image."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Literal

import numpy as np
from numpy.random import Generator

from highway import functional as F
from highway.images.ops import Interpolation, Size
from highway.parameters.checks import checked, require
from highway.parameters.ranges import Count, Predicate, Range, Shape
from highway.transforms.base import Geometric, Transform, below, placed, uniform
from highway.transforms.parameters import Amount, Enlargements

Lengths = Annotated[int | tuple[int, ...], Range(ge=1), Predicate(lambda lengths: lengths != (), "at least one length")]


@checked
@dataclass(frozen=True)
class Resize(Geometric):
    """Resize the image.

    Args:
        shape: With mode ``"resize"``, the new (height, width) in pixels, or a factor: a float above 0 and at most 10. With any other mode,
            the new length of one side in pixels. The aspect ratio then does not change.
        mode: ``"resize"``, or the side that gets the length ``shape``: ``"width"``, ``"shorter"`` or ``"longer"``.
        interpolation: ``"nearest"``, ``"bilinear"``, ``"bicubic"`` (or ``"cubic"``), ``"lanczos"`` or ``"area"``. Masks always use
            ``"nearest"``.

    Raises:
        ConfigError: ``shape`` does not fit the mode, for example an int with mode ``"resize"`` (on construction).
        ValueError: with mode ``"width"`` or ``"shorter"``, the result would have more than 100 times as many pixels as the image, and more
            than ``100 * shape ** 2`` pixels.

    >>> photo = np.zeros((300, 400, 3), np.uint8)
    >>> Resize((224, 224))(photo).shape, Resize(256, mode="shorter")(photo).shape, Resize(0.5)(photo).shape
    ((224, 224, 3), (256, 341, 3), (150, 200, 3))
    """

    shape: tuple[int, int] | int | float
    mode: Literal["resize", "width", "shorter", "longer"] = "resize"
    interpolation: Interpolation = "bicubic"

    def __post_init__(self) -> None:
        if self.mode != "resize":
            good, what = isinstance(self.shape, int) and self.shape >= 1, "width" if self.mode == "width" else f"{self.mode} edge"
            require(good, self, "shape", f"the new {what} in pixels with mode={self.mode!r}, a whole number, at least 1")
        elif isinstance(self.shape, float):
            require(
                0 < self.shape <= 10, self, "shape", "a share of the image's size, above 0 and at most 10, or (height, width) in pixels"
            )
        else:  # refuse integers: a percentage in the Highway library of 2017, but the length of the shorter edge in other libraries
            good = isinstance(self.shape, tuple) and min(self.shape) >= 1
            require(good, self, "shape", "(height, width), a share of the image's size such as 0.5, or the new width with mode='width'")

    def output(self, params: None, size: Size) -> Size:
        shape, (height, width) = self.shape, size
        if isinstance(shape, tuple):
            return shape
        if self.mode == "resize":
            return max(1, round(height * shape)), max(1, round(width * shape))
        edge = {"width": width, "shorter": min(size), "longer": max(size)}[self.mode]
        return _bounded(self, (max(1, round(height * shape / edge)), max(1, round(width * shape / edge))), size, shape)

    def image(self, image: np.ndarray, params: None, out: np.ndarray | None = None) -> np.ndarray:
        return F.resize(image, self.output(params, image.shape[:2]), self.interpolation, out)

    into = image

    def points(self, points: np.ndarray, params: None, size: Size) -> np.ndarray:
        height, width = self.output(params, size)
        return placed(points, (width / size[1], height / size[0]))

    def mask(self, mask: np.ndarray, params: None) -> np.ndarray:
        return F.resize(mask, self.output(params, mask.shape[:2]), "nearest")


class _Scaled(Geometric):
    """A transform that draws the height and width of the result."""

    interpolation: Interpolation

    def output(self, params: Any, size: Size) -> Size:
        new: Size = params
        return new

    def image(self, image: np.ndarray, params: Any, out: np.ndarray | None = None) -> np.ndarray:
        return F.resize(image, params, self.interpolation, out)

    into = image

    def points(self, points: np.ndarray, params: Any, size: Size) -> np.ndarray:
        return placed(points, (params[1] / size[1], params[0] / size[0]))

    def mask(self, mask: np.ndarray, params: Any) -> np.ndarray:
        return F.resize(mask, params, "nearest")


@checked
@dataclass(frozen=True)
class ResizeShortestEdge(_Scaled):
    """Resize the image. The new length of its shorter edge is a random choice from a list. Without ``rng``, it is the first length.

    Args:
        short_edge_length: The new length of the shorter edge in pixels, or a list of lengths.
        max_size: Maximum new length of the longer edge in pixels, at least the maximum of ``short_edge_length``. If the longer edge would
            exceed this maximum, both edges are reduced.
        interpolation: See :class:`Resize`.

    Raises:
        ValueError: ``max_size`` is ``None``, and the result would be too large. It would have more than 100 times as many pixels as the
            image, and its longer edge would be more than 100 times as long as its shorter edge.

    >>> photo = np.zeros((300, 400, 3), np.uint8)
    >>> ResizeShortestEdge([240, 270], max_size=333)(photo, np.random.default_rng(0)).shape
    (250, 333, 3)
    """

    short_edge_length: Lengths
    max_size: Count | None = None
    interpolation: Interpolation = "bilinear"

    def __post_init__(self) -> None:
        greatest = max(self._lengths)
        fits = self.max_size is None or self.max_size >= greatest
        expected = f"pixels of the longer edge, at least {greatest}; to set the interpolation, use interpolation='bicubic'"
        require(fits, self, "max_size", expected)

    @property
    def _lengths(self) -> tuple[int, ...]:
        return (self.short_edge_length,) if isinstance(self.short_edge_length, int) else self.short_edge_length

    def draw(self, size: Size, rng: Generator | None) -> Size:
        lengths = self._lengths
        factor = lengths[0 if rng is None else below(len(lengths), rng)] / min(size)
        if self.max_size is not None:
            factor = min(factor, self.max_size / max(size))
        new = max(1, round(size[0] * factor)), max(1, round(size[1] * factor))
        return new if self.max_size is not None else _bounded(self, new, size, round(factor * min(size)))


def _bounded(transform: Transform, new: Size, size: Size, edge: float) -> Size:
    """Return ``new``, the size of a resized image. Raises ValueError if it is too large; see :class:`Resize`."""
    if new[0] * new[1] > _MOST_TIMES * max(size[0] * size[1], edge * edge):
        raise ValueError(
            f"{transform}: an image of {size[0]}x{size[1]} (height x width) would become one of {new[0]}x{new[1]}; crop it first, or limit "
            "its longer edge: ResizeShortestEdge(..., max_size=), Resize(..., mode='longer')"
        )
    return new


_MOST_TIMES = 100


@checked
@dataclass(frozen=True)
class RandomResize(_Scaled):
    """Resize the height and width of the image by random factors. Without ``rng``, the image does not change.

    Args:
        xrange: Minimum and maximum factor of the width, at most 10. Integers are also factors, not pixels.
        yrange: Minimum and maximum factor of the height. With ``None``, the height has the same factor as the width, so the aspect ratio
            does not change.
        minimum: Minimum height and width of the result in pixels. This minimum can change the aspect ratio.
        aspect_ratio_thres: Maximum difference between the two factors, as a fraction of the width factor. With 0, the aspect ratio does not
            change. If ``xrange`` and ``yrange`` do not allow such a small difference, the smallest possible difference is used.
        interpolation: See :class:`Resize`.

    >>> photo = np.zeros((300, 400, 3), np.uint8)
    >>> RandomResize((0.5, 1.5))(photo, np.random.default_rng(0)).shape
    (341, 455, 3)
    """

    xrange: Enlargements
    yrange: Enlargements | None = None
    minimum: Annotated[tuple[int, int], Range(ge=0)] = (0, 0)
    aspect_ratio_thres: Amount = 0.15
    interpolation: Interpolation = "bilinear"

    def __post_init__(self) -> None:
        common = self.yrange is None or (self.xrange[0] <= self.yrange[1] and self.yrange[0] <= self.xrange[1])
        require(self.aspect_ratio_thres > 0 or common, self, "yrange", f"a range that overlaps with xrange={self.xrange}")

    def draw(self, size: Size, rng: Generator | None) -> Size:
        if rng is None:
            return size
        x, y = self._factors(rng)
        return max(round(size[0] * y), self.minimum[0], 1), max(round(size[1] * x), self.minimum[1], 1)

    def _factors(self, rng: Generator) -> tuple[float, float]:
        """Return a random factor for the width, and a random factor for the height."""
        x = uniform(*self.xrange, rng)
        if self.yrange is None:
            return x, x
        reach = x * self.aspect_ratio_thres
        low, high = max(self.yrange[0], x - reach), min(self.yrange[1], x + reach)
        if low <= high:
            return x, uniform(low, high, rng)
        nearest = self.yrange[0] if x < self.yrange[0] else self.yrange[1]
        return min(max(nearest, self.xrange[0]), self.xrange[1]), nearest


@checked
@dataclass(frozen=True)
class LargeScaleJitter(_Scaled):
    """Resize the image to fit into ``target_size`` times a random factor, and keep its aspect ratio. Without ``rng``, the factor is 1.

    This transform does the same as torchvision's ``ScaleJitter``. To also crop and pad to ``target_size``, as in "Simple copy-paste is a
    strong data augmentation method" (Ghiasi et al. 2021), add ``Paste(target_size, "random")`` after this transform.

    Args:
        target_size: Height and width in pixels.
        scale_range: Minimum and maximum factor, at most 10.
        interpolation: See :class:`Resize`.

    >>> photo = np.zeros((300, 400, 3), np.uint8)
    >>> jitter = Chain([LargeScaleJitter((512, 512), (0.1, 2.0)), Paste((512, 512), "random")])
    >>> jitter(photo, np.random.default_rng(0)).shape
    (512, 512, 3)
    """

    target_size: Shape
    scale_range: Enlargements = (0.1, 2.0)
    interpolation: Interpolation = "bilinear"

    def draw(self, size: Size, rng: Generator | None) -> Size:
        factor = min(self.target_size[0] / size[0], self.target_size[1] / size[1])
        factor *= 1.0 if rng is None else uniform(*self.scale_range, rng)
        return max(1, int(size[0] * factor)), max(1, int(size[1] * factor))

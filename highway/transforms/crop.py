"""Crops whose box depends on the size of the image and on random numbers, but not on pixels and annotations.

A reader can draw such a box before it decodes the image, and then decode only the pixels in the box.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated

import numpy as np
from numpy.random import Generator

from highway import functional as F
from highway.images.ops import Box, Interpolation, Size
from highway.parameters.checks import checked, require
from highway.parameters.ranges import Count, Range, Shape
from highway.transforms.base import Crop, below, placed
from highway.transforms.parameters import Factors, Shares

Share = Annotated[float, Range(gt=0, le=1, words="a share of the image, above 0 and at most 1 (for a size in pixels, use RandomCrop)")]

TRIES = 10  # maximum number of random boxes that RandomResizedCrop tries; then it uses a centred box


@checked
@dataclass(frozen=True)
class CenterCrop(Crop):
    """Crop the centre of the image.

    Args:
        shape: Height and width in pixels.

    Raises:
        ValueError: the image is smaller than ``shape``.

    >>> CenterCrop((4, 6))(np.zeros((10, 10, 3), np.uint8)).shape
    (4, 6, 3)
    """

    shape: Shape

    def box(self, size: Size, rng: Generator | None) -> Box:
        return _placed(self, size, self.shape, None)

    def draw_boxes(self, sizes: np.ndarray, numbers: np.ndarray) -> np.ndarray:
        return _all_placed(sizes, self.shape, (sizes - self.shape) // 2)


@checked
@dataclass(frozen=True)
class RandomCrop(Crop):
    """Crop a box of fixed size at a random position. Without ``rng``, crop the centre.

    Args:
        shape: Height and width in pixels.

    Raises:
        ValueError: the image is smaller than ``shape``.

    >>> image = np.arange(100, dtype=np.uint8).reshape(10, 10)
    >>> RandomCrop((2, 3))(image, np.random.default_rng(0))
    array([[52, 53, 54],
           [62, 63, 64]], dtype=uint8)
    """

    shape: Shape

    def box(self, size: Size, rng: Generator | None) -> Box:
        return _placed(self, size, self.shape, rng)

    def draw_boxes(self, sizes: np.ndarray, numbers: np.ndarray) -> np.ndarray:
        return _all_placed(sizes, self.shape, numbers[:, :2] * (sizes - self.shape + 1))


@checked
@dataclass(frozen=True)
class RandomCropRandomShape(Crop):
    """Crop a box of random height and width at a random position. Without ``rng``, crop the largest possible box at the centre.

    Readers do not accept this transform as ``crop=``, because its results differ in size.

    Args:
        wmin: Minimum width in pixels. If the image is narrower, the box has the width of the image.
        hmin: Minimum height in pixels. If the image is lower, the box has the height of the image.
        wmax: Maximum width in pixels, at least ``wmin``. The box is never wider than the image.
        hmax: Maximum height in pixels, at least ``hmin``. The box is never higher than the image.
        max_aspect_ratio: Maximum ratio of the longer side to the shorter side. If a random box exceeds this ratio, its longer side is
            reduced, even below ``wmin`` or ``hmin``.

    >>> image = np.zeros((10, 20, 3), np.uint8)
    >>> crop = RandomCropRandomShape(wmin=8, hmin=4)
    >>> crop(image, np.random.default_rng(0)).shape, crop(image).shape
    ((8, 11, 3), (10, 20, 3))
    """

    wmin: Count
    hmin: Count
    wmax: Count | None = None
    hmax: Count | None = None
    max_aspect_ratio: Annotated[float, Range(ge=1, lt=2**53)] | None = None

    def __post_init__(self) -> None:
        for least, most in (("wmin", "wmax"), ("hmin", "hmax")):
            require(getattr(self, most) is None or getattr(self, least) <= getattr(self, most), self, most, f"at least {least}")

    def box(self, size: Size, rng: Generator | None) -> Box:
        height, width = (_side(*given, rng) for given in ((size[0], self.hmin, self.hmax), (size[1], self.wmin, self.wmax)))
        if self.max_aspect_ratio is not None:
            most = max(1, int(min(height, width) * self.max_aspect_ratio))
            height, width = min(height, most), min(width, most)
        return _placed(self, size, (height, width), rng)


@checked
@dataclass(frozen=True)
class TopCenterCrop(Crop):
    """Crop a box of fixed size at the top, centred horizontally.

    Args:
        crop_shape: Height and width in pixels.

    Raises:
        ValueError: the image is smaller than ``crop_shape``.

    >>> image = np.arange(16, dtype=np.uint8).reshape(4, 4)
    >>> TopCenterCrop((1, 2))(image)
    array([[1, 2]], dtype=uint8)
    """

    crop_shape: Shape

    @property
    def shape(self) -> Size:
        return self.crop_shape

    def box(self, size: Size, rng: Generator | None) -> Box:
        return 0, *_placed(self, size, self.shape, None)[1:]

    def draw_boxes(self, sizes: np.ndarray, numbers: np.ndarray) -> np.ndarray:
        return _all_placed(sizes, self.shape, (sizes - self.shape) // 2 * (0, 1))


@checked
@dataclass(frozen=True)
class Slicer(Crop):
    """Crop a fraction of the image at a random position. Without ``rng``, crop the centre.

    Readers do not accept this transform as ``crop=``, because its results differ in size.

    Args:
        height: Height of the box, as a fraction of the height of the image, above 0 and at most 1.
        width: Width of the box, as a fraction of the width of the image, above 0 and at most 1.
        yoffset: Minimum distance of the box from the top and from the bottom of the image, as a fraction of the height of the image.
        xoffset: Minimum distance of the box from the left and from the right side of the image, as a fraction of the width of the image.

    Raises:
        ConfigError: a fraction is out of range, or ``height + 2 * yoffset`` or ``width + 2 * xoffset`` exceeds 1 (on construction).

    >>> image = np.zeros((100, 200, 3), np.uint8)
    >>> Slicer(height=0.25, width=0.5)(image, np.random.default_rng(0)).shape
    (25, 100, 3)
    """

    height: Share = 0.33
    width: Share = 1.0
    yoffset: float = 0.0
    xoffset: float = 0.0

    def __post_init__(self) -> None:
        for size, offset in (("height", "yoffset"), ("width", "xoffset")):
            most = (1 - getattr(self, size)) / 2
            require(
                0 <= getattr(self, offset) <= most + 1e-9,
                self,
                offset,
                f"a share from 0 to {most:g}: {size} and both margins together are the image",
            )

    def box(self, size: Size, rng: Generator | None) -> Box:
        top, height = _window(size[0], self.height, self.yoffset, rng)
        left, width = _window(size[1], self.width, self.xoffset, rng)
        return top, left, height, width


@checked
@dataclass(frozen=True)
class RandomResizedCrop(Crop):
    """Crop a box of random area, aspect ratio and position, and resize it to ``shape``.

    Without ``rng``, the box is the largest centred box with the aspect ratio of ``shape`` (:func:`covering_box`).

    Args:
        shape: Height and width of the result in pixels.
        scale: Minimum and maximum area of the box, as a fraction of the area of the image.
        ratio: Minimum and maximum ratio width / height of the box. The ratio is uniform on a logarithmic scale.
        interpolation: See :class:`Resize`. As ``crop=`` of a reader or of ``DecodeImage``, only ``"bilinear"`` is allowed, because the
            decoder then resizes the box.

    The box is drawn as in "Going deeper with convolutions" (Szegedy et al. 2015, section 6) and in torchvision's ``RandomResizedCrop``. If
    none of ten random boxes fits into the image, the box is the largest centred box with an aspect ratio within ``ratio``.

    >>> photo = np.zeros((300, 400, 3), np.uint8)
    >>> RandomResizedCrop((224, 224))(photo, np.random.default_rng(0)).shape
    (224, 224, 3)
    """

    shape: Shape
    scale: Shares = (0.08, 1.0)
    ratio: Factors = (3 / 4, 4 / 3)
    interpolation: Interpolation = "bilinear"

    def box(self, size: Size, rng: Generator | None) -> Box:
        if rng is None:
            return covering_box(size, self.shape[1] / self.shape[0])
        (height, width), (small, large), (narrow, wide) = size, self.scale, self._logarithms
        for _ in range(TRIES):
            share, stretch, top, left = rng.random(4).tolist()
            area, ratio = height * width * (small + (large - small) * share), math.exp(narrow + (wide - narrow) * stretch)
            h, w = round(math.sqrt(area / ratio)), round(math.sqrt(area * ratio))
            if 0 < h <= height and 0 < w <= width:
                return int(top * (height - h + 1)), int(left * (width - w + 1)), h, w
        return self._fallback(size)

    def draw_boxes(self, sizes: np.ndarray, numbers: np.ndarray) -> np.ndarray:
        shapes, left = self._tried(sizes, numbers, 0)
        for number in range(1, TRIES):
            if not len(left):
                break
            shapes[left], misfits = self._tried(sizes[left], numbers[left], number)
            left = left[misfits]
        boxes = np.empty((len(sizes), 4), np.int64)
        boxes[:, 2:] = shapes
        boxes[:, :2] = numbers[:, 2 * TRIES : 2 * TRIES + 2] * (sizes - shapes + 1)
        for row in left.tolist():
            boxes[row] = self._fallback(tuple(sizes[row].tolist()))
        return boxes

    def _tried(self, sizes: np.ndarray, numbers: np.ndarray, number: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the sizes of random boxes, float64 ``(N, 2)``, and the indexes of the boxes that do not fit into their images."""
        (small, large), (narrow, wide) = self.scale, self._logarithms
        side = np.sqrt(sizes[:, 0] * sizes[:, 1] * (numbers[:, 2 * number] * (large - small) + small))
        stretch = np.exp(numbers[:, 2 * number + 1] * ((wide - narrow) / 2) + narrow / 2)
        shapes = np.empty((len(sizes), 2))
        np.divide(side, stretch, out=shapes[:, 0])
        np.multiply(side, stretch, out=shapes[:, 1])
        np.rint(shapes, out=shapes)
        return shapes, np.logical_or.reduce((shapes < 1) | (shapes > sizes), axis=1).nonzero()[0]

    @cached_property
    def _logarithms(self) -> tuple[float, float]:
        return math.log(self.ratio[0]), math.log(self.ratio[1])

    def _fallback(self, size: Size) -> Box:
        """Return the box for an image into which no random box fits."""
        height, width = size
        return covering_box(size, min(max(width / max(height, 1), self.ratio[0]), self.ratio[1]))

    def output(self, params: Box, size: Size) -> Size:
        return self.shape

    def image(self, image: np.ndarray, params: Box, out: np.ndarray | None = None) -> np.ndarray:
        return F.resize(F.crop(image, params[:2], params[2:]), self.shape, self.interpolation, out)

    into = image

    def points(self, points: np.ndarray, params: Box, size: Size) -> np.ndarray:
        top, left, height, width = params
        x, y = self.shape[1] / width, self.shape[0] / height
        return placed(points, (x, y), (-left * x, -top * y))

    def mask(self, mask: np.ndarray, params: Box) -> np.ndarray:
        return F.resize(F.crop(mask, params[:2], params[2:]), self.shape, "nearest")


def covering_box(size: Size, ratio: float) -> Box:
    """Return (top, left, height, width) of the largest centred box with a given aspect ratio in an image.

    Args:
        size: Height and width of the image.
        ratio: Width / height of the box.

    >>> covering_box((300, 400), ratio=1.0)
    (0, 50, 300, 300)
    """
    height, width = size
    h, w = min(height, max(1, round(width / ratio))), min(width, max(1, round(height * ratio)))
    return (height - h) // 2, (width - w) // 2, h, w


def _side(length: int, least: int, most: int | None, rng: Generator | None) -> int:
    """Return a random side from ``least`` to ``most`` pixels, both limited to ``length``. Without ``rng``, return the maximum."""
    most = min(length, most or length)
    return most if rng is None else min(least, most) + below(most - min(least, most) + 1, rng)


def _window(length: int, share: float, offset: float, rng: Generator | None) -> tuple[int, int]:
    """Return the start and the length of a random window along a side of ``length`` pixels.

    The window has ``share * length`` pixels. Its distance from both ends of the side is at least ``offset * length`` pixels.
    """
    window, first = max(1, int(share * length)), int(offset * length)
    return first + _part(length - 2 * first - window, rng), window


def _placed(crop: object, size: Size, shape: Size, rng: Generator | None) -> Box:
    """Return a box of ``shape`` at a random position in an image of ``size``. Without ``rng``, return the box at the centre.

    Raises ValueError if the image is smaller than ``shape``.
    """
    down, right = size[0] - shape[0], size[1] - shape[1]
    if down < 0 or right < 0:
        raise ValueError(
            f"{crop}: needs an image of at least {shape[0]}x{shape[1]} (height x width), got {size[0]}x{size[1]}; resize or pad it first, "
            "or use RandomResizedCrop, which resizes"
        )
    return _part(down, rng), _part(right, rng), *shape


def _all_placed(sizes: np.ndarray, shape: Size, corners: np.ndarray) -> np.ndarray:
    """Return a box of ``shape`` for each image. ``corners`` are the upper left corners, and are rounded down.

    If an image is smaller than ``shape``, its box is (0, 0, 0, 0).
    """
    boxes = np.empty((len(sizes), 4), np.int64)
    boxes[:, :2] = corners
    boxes[:, 2:] = shape
    boxes[(sizes < shape).any(axis=1)] = 0
    return boxes


def _part(spare: int, rng: Generator | None) -> int:
    return spare // 2 if rng is None else below(spare + 1, rng)

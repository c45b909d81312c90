"""Transforms of pixel values, such as histogram equalization. They move no pixels, so boxes, points and masks do not change."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

import numpy as np
from numpy.random import Generator

from highway import functional as F
from highway.images.ops import Size
from highway.parameters.checks import checked, require
from highway.parameters.ranges import Probability, Range
from highway.transforms.base import Transform, happens, uniform
from highway.transforms.parameters import Amounts, Positive


@dataclass(frozen=True)
class _Maybe(Transform):
    """A transform that is applied with probability ``p``.

    Args:
        p: Probability, from 0 to 1. Without ``rng``, the transform is applied only if ``p`` is 1.
    """

    p: Probability = 0.5

    def draw(self, size: Size, rng: Generator | None) -> bool:
        return happens(self.p, rng)

    def change(self, image: np.ndarray) -> np.ndarray:
        """Return the changed image."""
        raise NotImplementedError

    def image(self, image: np.ndarray, params: bool) -> np.ndarray:
        return self.change(image) if params else image


@checked
@dataclass(frozen=True)
class Gamma(Transform):
    """Raise all values, as fractions of the full range, to the power of a random exponent. Without ``rng``, the image does not change.

    Args:
        exponent: Minimum and maximum exponent. An exponent below 1 makes the image brighter.

    Raises:
        ValueError: a float image has a value above 1.5.

    >>> image = np.array([[0, 100, 255]], np.uint8)
    >>> Gamma((0.5, 0.5))(image, np.random.default_rng(0))
    array([[  0, 160, 255]], dtype=uint8)
    """

    exponent: Amounts = (0.8, 1.2)

    def draw(self, size: Size, rng: Generator | None) -> float:
        return 1.0 if rng is None else uniform(*self.exponent, rng)

    def image(self, image: np.ndarray, params: float) -> np.ndarray:
        return F.gamma(image, params)


@checked
@dataclass(frozen=True)
class Posterize(_Maybe):
    """Keep the upper ``bits`` bits of each value, with probability ``p`` (:func:`highway.functional.posterize`).

    Args:
        bits: Number of bits, from 0 to 8.

    >>> Posterize(p=1, bits=1)(np.array([[100, 128, 255]], np.uint8))
    array([[  0, 128, 128]], dtype=uint8)
    """

    rowwise: ClassVar[bool] = True
    p: Probability = 0.5
    bits: Annotated[int, Range(ge=0, le=8)] = 4

    def change(self, image: np.ndarray) -> np.ndarray:
        return F.posterize(image, self.bits)


@checked
@dataclass(frozen=True)
class Solarize(_Maybe):
    """Invert all values of at least ``threshold``, with probability ``p``.

    Args:
        threshold: Threshold as a fraction of the full range, from 0 to 1.

    >>> Solarize(p=1, threshold=0.5)(np.array([[0, 100, 200]], np.uint8))
    array([[  0, 100,  55]], dtype=uint8)
    """

    rowwise: ClassVar[bool] = True
    p: Probability = 0.5
    threshold: Annotated[float, Range(ge=0, le=1, words="a share of the full range, from 0 to 1")] = 0.5

    def change(self, image: np.ndarray) -> np.ndarray:
        return F.solarize(image, self.threshold)


@checked
@dataclass(frozen=True)
class Invert(_Maybe):
    """Replace each value by 255 minus the value, or by 1 minus the value for floats, with probability ``p``.

    >>> Invert(p=1)(np.array([[0, 100, 255]], np.uint8))
    array([[255, 155,   0]], dtype=uint8)
    """

    rowwise: ClassVar[bool] = True

    def change(self, image: np.ndarray) -> np.ndarray:
        return F.invert(image)


@checked
@dataclass(frozen=True)
class AutoContrast(_Maybe):
    """Stretch the values of each channel to the full range, with probability ``p`` (:func:`highway.functional.autocontrast`).

    >>> image = np.array([[50, 100, 150]], np.uint8)
    >>> AutoContrast(p=1)(image)
    array([[  0, 127, 255]], dtype=uint8)
    """

    def change(self, image: np.ndarray) -> np.ndarray:
        return F.autocontrast(image)


@checked
@dataclass(frozen=True)
class Equalize(_Maybe):
    """Equalize the histogram of each channel separately, with probability ``p`` (:func:`highway.functional.equalize`). uint8 only.

    >>> image = np.tile(np.array([10, 20, 30, 40], np.uint8), (100, 1))
    >>> Equalize(p=1)(image)[0]
    array([  0, 100, 200, 255], dtype=uint8)
    """

    def change(self, image: np.ndarray) -> np.ndarray:
        return F.equalize(image)


@checked
@dataclass(frozen=True)
class CLAHE(_Maybe):
    """Equalize the histogram of each tile with limited contrast (CLAHE), with probability ``p``. uint8 only. Requires OpenCV.

    In colour images, only the lightness changes.

    Args:
        clip_limit: Limit of the contrast: the maximum count of a value in the histogram of a tile, as a multiple of the average count.
        tiles: Number of rows and columns of tiles.

    >>> image = np.arange(64, dtype=np.uint8).reshape(8, 8)
    >>> equalized = CLAHE(p=1, tiles=(2, 2))(image)
    >>> int(image.max()), int(equalized.max()) > 200
    (63, True)
    """

    p: Probability = 0.5
    clip_limit: Positive = 4.0
    tiles: Annotated[tuple[int, int], Range(ge=1, words="(rows, columns), at least 1")] = (8, 8)

    def change(self, image: np.ndarray) -> np.ndarray:
        return F.clahe(image, self.clip_limit, self.tiles)


@checked
@dataclass(frozen=True)
class HistEq(Transform):
    """Equalize the histogram of all channels together (:func:`highway.functional.image_histogram_equalization`).

    The same function maps the values of every channel to the range from 0 to 255.

    >>> image = np.array([[10, 10, 11, 12]], np.uint8)
    >>> HistEq()(image)
    array([[  0,   0, 128, 255]], dtype=uint8)
    """

    def image(self, image: np.ndarray, params: None) -> np.ndarray:
        return F.image_histogram_equalization(image)


@checked
@dataclass(frozen=True)
class Clip(Transform):
    """Clip values to the range from ``min`` to ``max``.

    Args:
        min: Lower bound.
        max: Upper bound.

    >>> Clip(0, 1)(np.array([[-0.5, 0.5, 1.5]], np.float32))
    array([[0. , 0.5, 1. ]], dtype=float32)
    """

    rowwise: ClassVar[bool] = True

    min: float = 0.0
    max: float = 255.0

    def __post_init__(self) -> None:
        require(self.min <= self.max, self, "max", f"at least min={self.min}")

    def image(self, image: np.ndarray, params: None) -> np.ndarray:
        return F.clip(image, self.min, self.max)

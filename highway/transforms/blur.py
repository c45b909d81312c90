"""Transforms that blur. They move no pixels, so boxes, points and masks do not change."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import numpy as np
from numpy.random import Generator

from highway import functional as F
from highway.images.ops import Size
from highway.parameters.checks import checked, require
from highway.parameters.ranges import Predicate, Range
from highway.transforms.base import Transform
from highway.transforms.parameters import Factors

Widths = Annotated[
    tuple[int, int],
    Range(ge=1),
    Predicate(lambda some: some[0] <= some[1] and some[0] % 2 == some[1] % 2 == 1, "(least, greatest) in pixels, both odd"),
]


@checked
@dataclass(frozen=True)
class GaussianBlur(Transform):
    """Blur the image by a Gaussian of random standard deviation. Without ``rng``, the image does not change.

    Args:
        sigma: Minimum and maximum standard deviation in pixels, above 0.
        size: Width of the kernel in pixels, an odd number. By default, the kernel extends three standard deviations to each side.

    >>> image = np.array([[0, 0, 0], [0, 160, 0], [0, 0, 0]], np.uint8)
    >>> GaussianBlur(sigma=(0.5, 0.5), size=3)(image, np.random.default_rng(0))
    array([[  7,  27,   7],
           [ 27, 100,  27],
           [  7,  27,   7]], dtype=uint8)
    """

    sigma: Factors = (0.1, 2.0)
    size: Annotated[int, Range(ge=1)] | None = None

    def __post_init__(self) -> None:
        require(self.size is None or self.size % 2 == 1, self, "size", "an odd number")

    def draw(self, size: Size, rng: Generator | None) -> float:
        if rng is None:
            return 0.0
        least, greatest = self.sigma
        return least + (greatest - least) * rng.random()

    def image(self, image: np.ndarray, params: float) -> np.ndarray:
        return F.gaussian_blur(image, params, self.size) if params else image


@dataclass(frozen=True)
class _ByWidth(Transform):
    """Base class of blurs with a random width.

    Args:
        size: Minimum and maximum width in pixels, both odd.
    """

    size: Widths = (3, 7)

    def draw_size(self, rng: Generator) -> int:
        """Return a random odd width."""
        least, greatest = self.size
        return least + 2 * int(rng.random() * ((greatest - least) // 2 + 1))


@checked
@dataclass(frozen=True)
class MedianBlur(_ByWidth):
    """Replace each value by the median of a square neighbourhood of random width. Without ``rng``, the image does not change.

    >>> image = np.array([[10, 10, 10], [10, 255, 10], [10, 10, 10]], np.uint8)
    >>> MedianBlur(size=(3, 3))(image, np.random.default_rng(0))[1]
    array([10, 10, 10], dtype=uint8)
    """

    def draw(self, size: Size, rng: Generator | None) -> int:
        return 1 if rng is None else self.draw_size(rng)

    def image(self, image: np.ndarray, params: int) -> np.ndarray:
        return F.median_blur(image, params) if params > 1 else image


@checked
@dataclass(frozen=True)
class MotionBlur(_ByWidth):
    """Blur the image along a line of random length and direction. Without ``rng``, the image does not change.

    >>> image = np.zeros((5, 5), np.uint8)
    >>> image[2, 2] = 150
    >>> MotionBlur(size=(5, 5))(image, np.random.default_rng(0))
    array([[ 0,  0,  0,  0,  0],
           [ 0,  0,  0, 50,  0],
           [ 0,  0, 50,  0,  0],
           [ 0, 50,  0,  0,  0],
           [ 0,  0,  0,  0,  0]], dtype=uint8)
    """

    def draw(self, size: Size, rng: Generator | None) -> tuple[int, float]:
        return (1, 0.0) if rng is None else (self.draw_size(rng), 180 * rng.random())

    def image(self, image: np.ndarray, params: tuple[int, float]) -> np.ndarray:
        return F.motion_blur(image, *params)

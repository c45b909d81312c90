"""Transforms that add noise or erase parts of the image. They move no pixels, so boxes, points and masks do not change."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any, Literal

import numpy as np
from numpy.random import Generator

from highway import functional as F
from highway.functional.noise import generator
from highway.images.ops import Box, Size
from highway.parameters.checks import checked, require
from highway.parameters.ranges import Predicate, Probability, Range
from highway.transforms.base import Transform, below, happens, uniform
from highway.transforms.parameters import Amount, Amounts, Counts, Factors, Number, PerChannel, Share, Shares

Quality = Annotated[tuple[int, int], Range(ge=1, le=100), Predicate(lambda some: some[0] <= some[1], "(least, greatest), from 1 to 100")]


class _Seeded(Transform):
    """A transform that needs many random numbers per image. Its parameter is the seed of these numbers."""

    def draw(self, size: Size, rng: Generator | None) -> int | None:
        return None if rng is None else int(rng.integers(2**63))

    def noisy(self, image: np.ndarray, rng: Generator) -> np.ndarray:
        """Return the image with added noise."""
        raise NotImplementedError

    def image(self, image: np.ndarray, params: int | None) -> np.ndarray:
        return image if params is None else self.noisy(image, generator(params))


@checked
@dataclass(frozen=True)
class AdditiveNoise(_Seeded):
    """Add normal noise to each value. Without ``rng``, the image does not change.

    Args:
        strength: Factor by which the noise is multiplied.
        mu: Mean of the noise before the multiplication, in units of pixel values.
        sigma: Standard deviation of the noise before the multiplication, in units of pixel values, at least 0. The default is for images
            with values from 0 to 255.

    >>> image = np.full((1, 4), 100, np.uint8)
    >>> AdditiveNoise(strength=1, sigma=10)(image, np.random.default_rng(0))
    array([[103, 101,  90,  98]], dtype=uint8)
    """

    strength: Number = 0.2
    mu: Number = 0.0
    sigma: Amount = 50.0

    def noisy(self, image: np.ndarray, rng: Generator) -> np.ndarray:
        return F.add_noise(image, self.strength, self.mu, self.sigma, rng)


@checked
@dataclass(frozen=True)
class GaussianNoise(_Seeded):
    """Add normal noise of a random standard deviation to each value. Without ``rng``, the image does not change.

    Args:
        sigma: Minimum and maximum standard deviation, in units of pixel values.
        mean: Mean of the noise, in units of pixel values.

    >>> image = np.full((1, 4), 100, np.uint8)
    >>> GaussianNoise(sigma=(5, 25))(image, np.random.default_rng(0))
    array([[ 94, 116, 105, 101]], dtype=uint8)
    """

    sigma: Amounts = (5.0, 25.0)
    mean: Number = 0.0

    def noisy(self, image: np.ndarray, rng: Generator) -> np.ndarray:
        least, most = self.sigma
        step = int(rng.integers(_STEPS + 1)) / _STEPS  # only a few different values, so that F.add_noise can cache a table for each value
        return F.add_noise(image, 1.0, self.mean, least + (most - least) * step, rng)


_STEPS = 63


@checked
@dataclass(frozen=True)
class SaltPepper(_Seeded):
    """Set some random pixels to white, and other random pixels to black. Without ``rng``, the image does not change.

    Args:
        salt: Fraction of the pixels that become white.
        pepper: Fraction of the pixels that become black.

    >>> image = np.full((1, 8), 100, np.uint8)
    >>> SaltPepper(salt=0.2, pepper=0.2)(image, np.random.default_rng(0))
    array([[100, 100,   0, 100, 100, 255, 100, 100]], dtype=uint8)
    """

    salt: Share = 0.05
    pepper: Share = 0.05

    def __post_init__(self) -> None:
        require(self.salt + self.pepper <= 1, self, "pepper", f"at most 1 together with salt={self.salt}")

    def noisy(self, image: np.ndarray, rng: Generator) -> np.ndarray:
        return F.salt_pepper(image, self.salt, self.pepper, rng)


@checked
@dataclass(frozen=True)
class ISONoise(_Seeded):
    """Add the noise of a camera sensor at high ISO (:func:`highway.functional.iso_noise`). Without ``rng``, the image does not change.

    Args:
        color_shift: Minimum and maximum rotation of the hue, as a fraction of the colour circle.
        intensity: Minimum and maximum standard deviation of the noise, relative to the image. 1 is the standard deviation of the image,
            averaged over the channels.

    >>> image = np.full((2, 2, 3), 100, np.uint8)
    >>> image[0] = 50
    >>> ISONoise()(image, np.random.default_rng(0))[:, :, 0]
    array([[ 51,  48],
           [ 83, 104]], dtype=uint8)
    """

    color_shift: Amounts = (0.01, 0.05)
    intensity: Amounts = (0.1, 0.5)

    def noisy(self, image: np.ndarray, rng: Generator) -> np.ndarray:
        return F.iso_noise(image, uniform(*self.color_shift, rng), uniform(*self.intensity, rng), rng)


@checked
@dataclass(frozen=True)
class JpegNoise(Transform):
    """Encode the image as a JPEG of random quality, and decode this JPEG. Without ``rng``, the image does not change. uint8 only.

    Args:
        quality: Minimum and maximum quality, from 1 to 100.

    >>> rng = np.random.default_rng(0)
    >>> image = rng.integers(0, 256, (16, 16, 3), np.uint8)
    >>> noisy = JpegNoise(quality=(10, 20))(image, rng)
    >>> noisy.shape, np.array_equal(noisy, image)
    ((16, 16, 3), False)
    """

    quality: Quality = (40, 100)

    def draw(self, size: Size, rng: Generator | None) -> int | None:
        return None if rng is None else self.quality[0] + below(self.quality[1] - self.quality[0] + 1, rng)

    def image(self, image: np.ndarray, params: int | None) -> np.ndarray:
        return image if params is None else F.jpeg_noise(image, params)


@dataclass(frozen=True)
class _Holes(Transform):
    """Fill boxes of the image. Annotations do not change.

    Args:
        p: Probability, from 0 to 1. Without ``rng``, the image does not change.
        fill: Value of the filled pixels: a number, one number per channel, or ``"random"`` for noise over the full range.
    """

    p: Probability = 0.5
    fill: PerChannel | Literal["random"] = 0.0

    def holes(self, size: Size, rng: Generator) -> list[Box]:
        """Return top, left, height and width of the boxes to fill."""
        raise NotImplementedError

    def draw(self, size: Size, rng: Generator | None) -> Any:
        if rng is None or not happens(self.p, rng):
            return None
        return int(rng.integers(2**63)) if self.fill == "random" else None, self.holes(size, rng)

    def image(self, image: np.ndarray, params: Any, out: np.ndarray | None = None) -> np.ndarray:
        if params is None:
            return image
        seed, holes = params
        return F.erase(image, holes, self.fill, None if seed is None else generator(seed), out)

    into = image


@checked
@dataclass(frozen=True)
class RandomErasing(_Holes):
    """Fill one box of random area, aspect ratio and position, with probability ``p``.

    If none of ten random boxes fits into the image, the image does not change.

    Args:
        scale: Minimum and maximum area of the box, as a fraction of the area of the image.
        ratio: Minimum and maximum ratio width / height of the box. The ratio is uniform on a logarithmic scale.

    >>> image = np.full((5, 6), 9, np.uint8)
    >>> RandomErasing(p=1, scale=(0.1, 0.3))(image, np.random.default_rng(0))
    array([[0, 0, 9, 9, 9, 9],
           [0, 0, 9, 9, 9, 9],
           [0, 0, 9, 9, 9, 9],
           [9, 9, 9, 9, 9, 9],
           [9, 9, 9, 9, 9, 9]], dtype=uint8)
    """

    scale: Shares = (0.02, 0.33)
    ratio: Factors = (0.3, 3.3)

    def holes(self, size: Size, rng: Generator) -> list[Box]:
        (height, width), (small, large), (narrow, wide) = size, self.scale, self._logarithms
        for _ in range(10):
            share, stretch, top, left = rng.random(4).tolist()
            area, ratio = height * width * (small + (large - small) * share), math.exp(narrow + (wide - narrow) * stretch)
            h, w = round(math.sqrt(area / ratio)), round(math.sqrt(area * ratio))
            if 0 < h < height and 0 < w < width:
                return [(int(top * (height - h + 1)), int(left * (width - w + 1)), h, w)]
        return []

    @cached_property
    def _logarithms(self) -> tuple[float, float]:
        return math.log(self.ratio[0]), math.log(self.ratio[1])


@checked
@dataclass(frozen=True)
class CoarseDropout(_Holes):
    """Fill several boxes of random sizes and positions, with probability ``p``.

    Args:
        num_holes: Minimum and maximum number of boxes.
        height: Minimum and maximum height of a box, as a fraction of the height of the image.
        width: Minimum and maximum width of a box, as a fraction of the width of the image.

    >>> image = np.full((4, 10), 9, np.uint8)
    >>> CoarseDropout(p=1, num_holes=(2, 2), height=(0.3, 0.5))(image, np.random.default_rng(2))
    array([[0, 0, 9, 9, 9, 9, 9, 9, 9, 9],
           [0, 0, 9, 9, 9, 9, 9, 9, 9, 9],
           [9, 0, 0, 9, 9, 9, 9, 9, 9, 9],
           [9, 9, 9, 9, 9, 9, 9, 9, 9, 9]], dtype=uint8)
    """

    num_holes: Counts = (1, 2)
    height: Shares = (0.1, 0.2)
    width: Shares = (0.1, 0.2)

    def holes(self, size: Size, rng: Generator) -> list[Box]:
        least, most = self.num_holes
        numbers = rng.random((1 + most, 4)).tolist()
        count = least + int(numbers[0][0] * (most - least + 1))
        return _placed(size, self.height, self.width, numbers[1 : 1 + count])


Side = Annotated[
    int | float,
    Predicate(lambda side: side >= 1 if isinstance(side, int) else 0 <= side <= 1, "a share from 0 to 1, or pixels as a whole number (16)"),
]


@checked
@dataclass(frozen=True)
class Cutout(_Holes):
    """Fill one box of fixed size at a random position, with probability ``p``.

    Args:
        height: Height of the box. A float is a fraction of the height of the image, from 0 to 1. An integer is a number of pixels, at least
            1.
        width: Width of the box. A float is a fraction of the width of the image, from 0 to 1. An integer is a number of pixels, at least 1.

    >>> image = np.full((4, 8), 9, np.uint8)
    >>> Cutout(p=1, height=2, width=3)(image, np.random.default_rng(0))
    array([[0, 0, 0, 9, 9, 9, 9, 9],
           [0, 0, 0, 9, 9, 9, 9, 9],
           [9, 9, 9, 9, 9, 9, 9, 9],
           [9, 9, 9, 9, 9, 9, 9, 9]], dtype=uint8)
    """

    height: Side = 0.25
    width: Side = 0.25

    def holes(self, size: Size, rng: Generator) -> list[Box]:
        rows, columns = _share(self.height, size[0]), _share(self.width, size[1])
        return _placed(size, (rows, rows), (columns, columns), [rng.random(4).tolist()])


def _share(side: float, length: int) -> float:
    """Return a side as a fraction of ``length``, at most 1. An integer ``side`` is a number of pixels."""
    return min(1.0, side / length) if isinstance(side, int) else side


def _placed(size: Size, height: tuple[float, float], width: tuple[float, float], numbers: list[list[float]]) -> list[Box]:
    """Return boxes in an image of ``size``.

    The four numbers in a row of ``numbers``, from 0 to 1, determine the size and position of a box.
    """
    (rows, columns), (low, high), (narrow, wide) = size, height, width
    boxes = []
    for tall, broad, down, right in numbers:
        h, w = round(rows * (low + (high - low) * tall)) or 1, round(columns * (narrow + (wide - narrow) * broad)) or 1
        boxes.append((int(down * (rows - h + 1)), int(right * (columns - w + 1)), h, w))
    return boxes

"""Transforms that add noise, or leave out parts: they leave every pixel, and so boxes, points and masks, in place."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import numpy as np
from numpy.random import Generator

from highway import functional as F
from highway.functional.noise import generator
from highway.images.ops import Box, Size
from highway.parameters.checks import checked, require
from highway.parameters.ranges import Predicate, Probability, Range
from highway.transforms.base import Transform, happens
from highway.transforms.color import Factors
from highway.transforms.crop import Ratios, Shares

Share = Annotated[float, Range(ge=0, le=1, words="a share, from 0 to 1")]
Counts = Annotated[tuple[int, int], Range(ge=1), Predicate(lambda some: some[0] <= some[1], "(least, greatest), at least 1")]
Quality = Annotated[tuple[int, int], Range(ge=1, le=100), Predicate(lambda some: some[0] <= some[1], "(least, greatest), from 1 to 100")]
Fill = Annotated[float | tuple[float, ...] | Literal["random"], Predicate(lambda fill: fill != (), "at least one number")]


class _Seeded(Transform):
    """A transform that draws a seed: how many numbers the image needs is not known before."""

    def draw(self, size: Size, rng: Generator | None) -> int | None:
        return None if rng is None else int(rng.integers(2**63))

    def noisy(self, image: np.ndarray, rng: Generator) -> np.ndarray:
        """Return the image with its noise."""
        raise NotImplementedError

    def image(self, image: np.ndarray, params: int | None) -> np.ndarray:
        return image if params is None else self.noisy(image, generator(params))


@checked
@dataclass(frozen=True)
class AdditiveNoise(_Seeded):
    """Add normal noise to each value; none without chance.

    Args:
        strength: Factor of the noise.
        mu: Mean of the noise, before ``strength``, in the image's own units: grey levels for uint8.
        sigma: Standard deviation of the noise, before ``strength``, likewise; at least 0. The default is for images of 0 to 255.
    """

    strength: float = 0.2
    mu: float = 0.0
    sigma: Annotated[float, Range(ge=0)] = 50.0

    def noisy(self, image: np.ndarray, rng: Generator) -> np.ndarray:
        return F.add_noise(image, self.strength, self.mu, self.sigma, rng)


@checked
@dataclass(frozen=True)
class GaussianNoise(_Seeded):
    """Add normal noise of a deviation that is drawn to each value; none without chance.

    Args:
        sigma: Least and greatest deviation, in the image's own units: grey levels for uint8.
        mean: Mean of the noise, likewise.
    """

    sigma: Factors = (5.0, 25.0)
    mean: float = 0.0

    def noisy(self, image: np.ndarray, rng: Generator) -> np.ndarray:
        least, most = self.sigma
        step = int(rng.integers(_STEPS + 1)) / _STEPS  # so few values that their tables are kept
        return F.add_noise(image, 1.0, self.mean, least + (most - least) * step, rng)


_STEPS = 63


@checked
@dataclass(frozen=True)
class SaltPepper(_Seeded):
    """Set a share of the pixels to white, and another to black; none without chance.

    Args:
        salt: Share that becomes white.
        pepper: Share that becomes black.
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
    """Add the noise of a camera's sensor at high sensitivity (:func:`highway.functional.iso_noise`); none without chance.

    Args:
        color_shift: Least and greatest turn of the hue, as a share of the circle.
        intensity: Least and greatest deviation of the noise, in multiples of that of the image's own grey.
    """

    color_shift: Factors = (0.01, 0.05)
    intensity: Factors = (0.1, 0.5)

    def noisy(self, image: np.ndarray, rng: Generator) -> np.ndarray:
        return F.iso_noise(image, float(rng.uniform(*self.color_shift)), float(rng.uniform(*self.intensity)), rng)


@checked
@dataclass(frozen=True)
class JpegNoise(Transform):
    """Encode the image as JPEG of a quality that is drawn, and decode it; not without chance. uint8 only.

    Args:
        quality: Least and greatest, from 1 to 100.
    """

    quality: Quality = (40, 100)

    def draw(self, size: Size, rng: Generator | None) -> int | None:
        return None if rng is None else int(rng.integers(self.quality[0], self.quality[1] + 1))

    def image(self, image: np.ndarray, params: int | None) -> np.ndarray:
        return image if params is None else F.jpeg_noise(image, params)


@dataclass(frozen=True)
class _Holes(Transform):
    """Fill boxes of the image; boxes, points and masks of objects stay as they are.

    Args:
        p: Probability, from 0 to 1.
        fill: What the boxes hold: a number, one for each channel, or ``"random"``: noise over the full range.
    """

    p: Probability = 0.5
    fill: Fill = 0.0

    def holes(self, size: Size, rng: Generator) -> list[Box]:
        """Return top, left, height and width of the boxes to fill."""
        raise NotImplementedError

    def draw(self, size: Size, rng: Generator | None) -> Any:
        if rng is None or not happens(self.p, rng):
            return None
        return int(rng.integers(2**63)), self.holes(size, rng)

    def image(self, image: np.ndarray, params: Any) -> np.ndarray:
        if params is None:
            return image
        seed, holes = params
        result, rng = image.copy(), generator(seed) if self.fill == "random" else None
        for top, left, height, width in holes:
            hole = result[top : top + height, left : left + width]
            if rng is None:
                hole[...] = self.fill
            elif image.dtype == np.uint8:
                hole[...] = rng.integers(0, 256, hole.shape, np.uint8)
            else:
                hole[...] = rng.random(hole.shape, np.float32)
        return result


@checked
@dataclass(frozen=True)
class RandomErasing(_Holes):
    """Fill one box of random area, proportions and place, with probability ``p``; ten tries for one that fits, else none.

    Args:
        scale: Least and greatest area, as a share of the image's.
        ratio: Least and greatest width / height, drawn evenly on a logarithmic scale.
    """

    scale: Shares = (0.02, 0.33)
    ratio: Ratios = (0.3, 3.3)

    def holes(self, size: Size, rng: Generator) -> list[Box]:
        height, width = size
        for _ in range(10):
            area = height * width * rng.uniform(*self.scale)
            ratio = math.exp(rng.uniform(math.log(self.ratio[0]), math.log(self.ratio[1])))
            h, w = round(math.sqrt(area / ratio)), round(math.sqrt(area * ratio))
            if 0 < h < height and 0 < w < width:
                return [(int(rng.integers(height - h + 1)), int(rng.integers(width - w + 1)), h, w)]
        return []


@checked
@dataclass(frozen=True)
class CoarseDropout(_Holes):
    """Fill several boxes of random sizes and places, with probability ``p``.

    Args:
        num_holes: Least and greatest number.
        height: Least and greatest height, as a share of the image's.
        width: Likewise.
    """

    num_holes: Counts = (1, 2)
    height: Shares = (0.1, 0.2)
    width: Shares = (0.1, 0.2)

    def holes(self, size: Size, rng: Generator) -> list[Box]:
        several = int(rng.integers(self.num_holes[0], self.num_holes[1] + 1))
        return [_hole(size, (self.height, self.width), rng) for _ in range(several)]


@checked
@dataclass(frozen=True)
class Cutout(_Holes):
    """Fill one box of a size, at a random place, with probability ``p``.

    Args:
        height: Of the box, as a share of the image's.
        width: Likewise.
    """

    height: Share = 0.25
    width: Share = 0.25

    def holes(self, size: Size, rng: Generator) -> list[Box]:
        return [_hole(size, ((self.height, self.height), (self.width, self.width)), rng)]


def _hole(size: Size, shares: tuple[tuple[float, float], tuple[float, float]], rng: Generator) -> Box:
    """Return a box of random sides, as shares of the image's, at a random place within it."""
    height, width = (min(length, max(1, round(length * rng.uniform(*share)))) for length, share in zip(size, shares, strict=True))
    return int(rng.integers(size[0] - height + 1)), int(rng.integers(size[1] - width + 1)), height, width

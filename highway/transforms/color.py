"""Transforms of values: they leave every pixel, and so boxes, points and masks, in place."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, ClassVar

import numpy as np
from numpy.random import Generator

from highway import functional as F
from highway.images.ops import Size
from highway.parameters.checks import checked, require
from highway.parameters.ranges import Predicate, Probability, Range
from highway.transforms.base import Transform, happens

Amount = Annotated[float, Range(ge=0), Predicate(math.isfinite, "a finite number")]


@checked
@dataclass(frozen=True)
class AdditiveNoise(Transform):
    """Add normal noise to each value; none without chance.

    Args:
        strength: Factor of the noise.
        mu: Mean of the noise, before ``strength``, in the image's own units: grey levels for uint8.
        sigma: Standard deviation of the noise, before ``strength``, likewise; at least 0. The default is for images of 0 to 255.
    """

    strength: float = 0.2
    mu: float = 0.0
    sigma: Annotated[float, Range(ge=0)] = 50.0

    def draw(self, size: Size, rng: Generator | None) -> int | None:
        return None if rng is None else int(rng.integers(2**63))  # a seed: how many channels the noise needs is not known here

    def image(self, image: np.ndarray, params: int | None) -> np.ndarray:
        return image if params is None else F.add_noise(image, self.strength, self.mu, self.sigma, np.random.default_rng(params))


@checked
@dataclass(frozen=True)
class HistEq(Transform):
    """Spread the values over 0 to 255, by one mapping for all channels (:func:`highway.functional.image_histogram_equalization`)."""

    def image(self, image: np.ndarray, params: None) -> np.ndarray:
        return F.image_histogram_equalization(image)


@checked
@dataclass(frozen=True)
class RescaleImages(Transform):
    """Return ``(image - offset) * scale`` as float32; by default 0 to 255 becomes -1 to 1.

    Args:
        scale: A number, or one for each channel.
        offset: Likewise; taken away before the multiplication.
    """

    scale: F.PerChannel = 1 / 128
    offset: F.PerChannel = 128.0

    def image(self, image: np.ndarray, params: None, out: np.ndarray | None = None) -> np.ndarray:
        return F.rescale(image, self.scale, self.offset, out)

    into = image


@checked
@dataclass(frozen=True)
class Normalize(Transform):
    """Return ``(image - mean) / std`` as float32; uint8 is divided by 255 first.

    Args:
        mean: A number, or one for each channel, in units of the full range; ImageNet's by default.
        std: Likewise, above 0.
    """

    mean: F.PerChannel = F.IMAGENET_MEAN
    std: Annotated[F.PerChannel, Range(gt=0, words="numbers above 0")] = F.IMAGENET_STD

    def __post_init__(self) -> None:
        several = isinstance(self.mean, tuple) and isinstance(self.std, tuple)
        fit = not several or len(self.mean) == len(self.std)  # type: ignore[arg-type]
        require(fit, self, "mean", f"as many numbers as std={self.std!r}")

    def image(self, image: np.ndarray, params: None, out: np.ndarray | None = None) -> np.ndarray:
        return F.normalize(image, self.mean, self.std, out)

    into = image


@dataclass(frozen=True)
class _Factor(Transform):
    """Change an image by a factor that is drawn.

    Args:
        amount: How far the factor may be from 1, at least 0.
    """

    change: ClassVar[Callable[..., np.ndarray]]

    amount: Amount = 0.4

    def draw(self, size: Size, rng: Generator | None) -> float:
        return 1.0 if rng is None else float(rng.uniform(max(0.0, 1 - self.amount), 1 + self.amount))

    def image(self, image: np.ndarray, params: float) -> np.ndarray:
        return type(self).change(image, params)


@checked
@dataclass(frozen=True)
class Brightness(_Factor):
    """Multiply the image by a factor from ``1 - amount`` (at least 0) to ``1 + amount``; 1 without chance."""

    change = staticmethod(F.brightness)


@checked
@dataclass(frozen=True)
class Contrast(_Factor):
    """Multiply the distance from the mean grey by a factor from ``1 - amount`` (at least 0) to ``1 + amount``; 1 without chance."""

    change = staticmethod(F.contrast)


@checked
@dataclass(frozen=True)
class Saturation(_Factor):
    """Multiply each pixel's distance from its grey by a factor from ``1 - amount`` (at least 0) to ``1 + amount``; 1 without chance."""

    change = staticmethod(F.saturation)


@checked
@dataclass(frozen=True)
class Grayscale(Transform):
    """Turn RGB into grey with probability ``p``.

    Args:
        p: Probability; only 1 without ``keep_channels``, since the images of a batch need equal channels.
        keep_channels: Whether the result has as many channels as the image, all equal; else it is ``(H, W, 1)``.
    """

    p: Probability = 1.0
    keep_channels: bool = True

    def __post_init__(self) -> None:
        require(self.keep_channels or self.p == 1, self, "p", "1 with keep_channels=False")

    def draw(self, size: Size, rng: Generator | None) -> bool:
        return happens(self.p, rng)

    def image(self, image: np.ndarray, params: bool) -> np.ndarray:
        return F.grayscale(image, self.keep_channels) if params else image

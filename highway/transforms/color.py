"""Transforms of colours and of light: they leave every pixel, and so boxes, points and masks, in place."""

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
Factors = Annotated[tuple[float, float], Range(ge=0), Predicate(lambda some: some[0] <= some[1], "(least, greatest), at least 0")]
Turn = Annotated[float, Range(ge=0, le=0.5, words="a share of the circle, from 0 to 0.5")]


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
class Sharpness(_Factor):
    """Multiply the distance from a smoothed image by a factor from ``1 - amount`` (at least 0) to ``1 + amount``; 1 without chance."""

    change = staticmethod(F.sharpness)


@checked
@dataclass(frozen=True)
class Hue(Transform):
    """Turn the hue of each pixel by a share of the circle from ``-amount`` to ``amount``; none without chance.

    Args:
        amount: From 0 to 0.5.
    """

    amount: Turn = 0.1

    def draw(self, size: Size, rng: Generator | None) -> float:
        return 0.0 if rng is None else float(rng.uniform(-self.amount, self.amount))

    def image(self, image: np.ndarray, params: float) -> np.ndarray:
        return F.hue(image, params)


@checked
@dataclass(frozen=True)
class ColorJitter(Transform):
    """Change brightness, contrast, saturation and hue by factors that are drawn, in an order that is drawn; nothing without chance.

    Args:
        brightness: How far the factor may be from 1, or its (least, greatest) value.
        contrast: Likewise.
        saturation: Likewise.
        hue: The greatest turn of the hue, as a share of the circle from 0 to 0.5.
    """

    brightness: Amount | Factors = 0.4
    contrast: Amount | Factors = 0.4
    saturation: Amount | Factors = 0.4
    hue: Turn = 0.1

    changes: ClassVar[tuple[Callable[..., np.ndarray], ...]] = (F.brightness, F.contrast, F.saturation, F.hue)

    def draw(self, size: Size, rng: Generator | None) -> list[tuple[int, float]]:
        """Return which of the changes are done in which order, and how much."""
        if rng is None:
            return []
        bounds = [
            (max(0.0, 1 - one), 1 + one) if isinstance(one, float) else one for one in (self.brightness, self.contrast, self.saturation)
        ]
        bounds.append((-self.hue, self.hue))
        drawn = [float(rng.uniform(*some)) for some in bounds]
        return [(number, drawn[number]) for number in rng.permutation(4).tolist() if bounds[number][0] < bounds[number][1]]

    def image(self, image: np.ndarray, params: list[tuple[int, float]]) -> np.ndarray:
        for number, amount in params:
            image = type(self).changes[number](image, amount)
        return image


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


@checked
@dataclass(frozen=True)
class ColorSpace(Transform):
    """Convert RGB to another colour space, or back, as OpenCV's ``cvtColor`` does; needs OpenCV.

    Args:
        mode: Such as ``"RGB2HSV"`` or ``"LAB2RGB"``. ``"RGB2GRAY"`` gives ``(H, W, 1)``.
    """

    mode: F.ColorMode

    def image(self, image: np.ndarray, params: None) -> np.ndarray:
        converted = F.color_space(image, self.mode)
        return converted[..., None] if converted.ndim == 2 else converted


@checked
@dataclass(frozen=True)
class Lighting(Transform):
    """Add a colour along the main axes of the colours of a data set, of normal strengths: AlexNet's noise of light; none without chance.

    Args:
        std: Deviation of the strengths.
        eigval: Eigenvalues of the axes, of colours of 0 to 1; ImageNet's by default.
        eigvec: The axes: a row for red, green and blue, a column for each axis.
    """

    std: Amount = 0.1
    eigval: F.Three = F.EIGENVALUES
    eigvec: F.Rows = F.EIGENVECTORS

    def draw(self, size: Size, rng: Generator | None) -> tuple[float, ...] | None:
        return None if rng is None else tuple((rng.standard_normal(3) * self.std).tolist())

    def image(self, image: np.ndarray, params: tuple[float, float, float] | None) -> np.ndarray:
        return image if params is None else F.lighting(image, params, self.eigval, self.eigvec)

"""Transforms of colours and brightness. They move no pixels, so boxes, points and masks do not change."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, ClassVar

import numpy as np
from numpy.random import Generator

from highway import functional as F
from highway.images.ops import Size
from highway.parameters.checks import checked, require
from highway.parameters.ranges import Probability, Range
from highway.transforms.base import Transform, happens, uniform
from highway.transforms.parameters import Amount, Distance, Distances, Number, Turn

Axes = tuple[Number, Number, Number]
Eigenvalues = Annotated[
    Axes, Range(ge=-1.5, le=1.5, words="eigenvalues of colours from 0 to 1; divide eigenvalues of colours from 0 to 255 by 255")
]


@dataclass(frozen=True)
class _Factor(Transform):
    """Change an image by a random factor.

    Args:
        amount: Maximum distance of the factor from 1, between 0 and 10.
    """

    change: ClassVar[Callable[..., np.ndarray]]

    amount: Distance = 0.4

    def draw(self, size: Size, rng: Generator | None) -> float:
        return 1.0 if rng is None else uniform(max(0.0, 1 - self.amount), 1 + self.amount, rng)

    def image(self, image: np.ndarray, params: float) -> np.ndarray:
        return type(self).change(image, params)


@checked
@dataclass(frozen=True)
class Brightness(_Factor):
    """Multiply the image by a random factor from ``1 - amount`` (at least 0) to ``1 + amount``. Without ``rng``, the image does not change.

    >>> image = np.array([[0, 100, 200]], np.uint8)
    >>> Brightness(0.5)(image, np.random.default_rng(0))
    array([[  0, 114, 227]], dtype=uint8)
    """

    change = staticmethod(F.brightness)


@checked
@dataclass(frozen=True)
class Contrast(_Factor):
    """Change the contrast: multiply the distance of each value from the mean grey value by a random factor.

    The factor is from ``1 - amount`` (at least 0) to ``1 + amount``. Without ``rng``, the image does not change.

    Args:
        amount: Maximum distance of the factor from 1, between 0 and 10.
        per_channel: Whether to use the mean of each channel instead of the mean grey value of the image.

    >>> image = np.array([[0, 100, 200]], np.uint8)
    >>> Contrast(0.5)(image, np.random.default_rng(0))
    array([[  0, 100, 214]], dtype=uint8)
    """

    amount: Distance = 0.4
    per_channel: bool = False

    def image(self, image: np.ndarray, params: float) -> np.ndarray:
        return F.contrast(image, params, self.per_channel)


@checked
@dataclass(frozen=True)
class Saturation(_Factor):
    """Change the saturation: multiply the distance of each pixel from its grey value by a random factor.

    The factor is from ``1 - amount`` (at least 0) to ``1 + amount``. Without ``rng``, the image does not change.

    >>> image = np.array([[[200, 100, 0]]], np.uint8)
    >>> Saturation(0.5)(image, np.random.default_rng(0))
    array([[[211,  97,   0]]], dtype=uint8)
    """

    change = staticmethod(F.saturation)


@checked
@dataclass(frozen=True)
class Sharpness(_Factor):
    """Change the sharpness: multiply the distance of each value from a smoothed image by a random factor.

    The factor is from ``1 - amount`` (at least 0) to ``1 + amount``. Without ``rng``, the image does not change.

    >>> image = np.array([[0, 0, 0], [0, 90, 0], [0, 0, 0]], np.uint8)
    >>> Sharpness(0.5)(image, np.random.default_rng(0))[1]
    array([ 0, 98,  0], dtype=uint8)
    """

    change = staticmethod(F.sharpness)


@checked
@dataclass(frozen=True)
class Hue(Transform):
    """Rotate the hue by a random fraction of the colour circle, from ``-amount`` to ``amount``. Without ``rng``, the image does not change.

    Args:
        amount: Maximum fraction of the colour circle, from 0 to 0.5.

    >>> red = np.array([[[200, 0, 0]]], np.uint8)
    >>> Hue(0.5)(red, np.random.default_rng(0))
    array([[[200, 165,   0]]], dtype=uint8)
    """

    amount: Turn = 0.1

    def draw(self, size: Size, rng: Generator | None) -> float:
        return 0.0 if rng is None else uniform(-self.amount, self.amount, rng)

    def image(self, image: np.ndarray, params: float) -> np.ndarray:
        return F.hue(image, params)


@checked
@dataclass(frozen=True)
class ColorJitter(Transform):
    """Change brightness, contrast, saturation and hue by random factors in random order. Without ``rng``, the image does not change.

    Args:
        brightness: Maximum distance of the brightness factor from 1, or the (minimum, maximum) of this factor.
        contrast: Maximum distance of the contrast factor from 1, or the (minimum, maximum) of this factor.
        saturation: Maximum distance of the saturation factor from 1, or the (minimum, maximum) of this factor.
        hue: Maximum rotation of the hue, as a fraction of the colour circle, from 0 to 0.5.

    >>> image = np.array([[[200, 100, 0]]], np.uint8)
    >>> ColorJitter(brightness=(0.5, 1.5), hue=0)(image, np.random.default_rng(0))
    array([[[182, 124,  65]]], dtype=uint8)
    """

    brightness: Distance | Distances = 0.4
    contrast: Distance | Distances = 0.4
    saturation: Distance | Distances = 0.4
    hue: Turn = 0.1

    changes: ClassVar[tuple[Callable[..., np.ndarray], ...]] = (F.brightness, F.contrast, F.saturation, F.hue)

    def draw(self, size: Size, rng: Generator | None) -> list[tuple[int, float]]:
        """Return the changes in a random order, each with its factor."""
        if rng is None:
            return []
        *shares, a, b, c, d = rng.random(8).tolist()
        order = sorted(zip((a, b, c, d), shares, self._bounds, range(4), strict=True))
        return [(number, low + (high - low) * share) for _, share, (low, high), number in order if low < high]

    @cached_property
    def _bounds(self) -> list[tuple[float, float]]:
        amounts = (self.brightness, self.contrast, self.saturation)
        return [*((max(0.0, 1 - one), 1 + one) if isinstance(one, float) else one for one in amounts), (-self.hue, self.hue)]

    def image(self, image: np.ndarray, params: list[tuple[int, float]]) -> np.ndarray:
        for number, amount in params:
            image = type(self).changes[number](image, amount)
        return image


@checked
@dataclass(frozen=True)
class Grayscale(Transform):
    """Convert RGB to grey with probability ``p``.

    Args:
        p: Probability, from 0 to 1. Without ``rng``, the image changes only if ``p`` is 1. If ``keep_channels`` is ``False``, ``p`` must be
            1, because all images of a batch must have the same number of channels.
        keep_channels: Whether the result has three equal channels. With ``False``, the result is ``(H, W, 1)``. An image with one channel
            does not change.

    >>> image = np.array([[[200, 100, 0]]], np.uint8)
    >>> Grayscale()(image).tolist(), Grayscale(keep_channels=False)(image).tolist()
    ([[[119, 119, 119]]], [[[119]]])
    """

    rowwise: ClassVar[bool] = True
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
    """Convert RGB to another colour space, or back, as OpenCV's ``cvtColor`` does. Requires OpenCV.

    Args:
        mode: The conversion, such as ``"RGB2HSV"`` or ``"LAB2RGB"``. With ``"RGB2GRAY"``, the result is ``(H, W, 1)``.

    >>> red = np.array([[[200, 0, 0]]], np.uint8)
    >>> ColorSpace("RGB2HSV")(red).tolist()
    [[[0, 255, 200]]]
    """

    rowwise: ClassVar[bool] = True

    mode: F.ColorMode

    def image(self, image: np.ndarray, params: None) -> np.ndarray:
        converted = F.color_space(image, self.mode)
        return converted[..., None] if converted.ndim == 2 else converted


@checked
@dataclass(frozen=True)
class Lighting(Transform):
    """Add PCA colour noise (AlexNet): add a random colour to all pixels.

    The colour is along the principal axes of the colours in a dataset. Without ``rng``, the image does not change.

    Args:
        std: Standard deviation of the normally distributed strengths of the axes.
        eigval: Eigenvalues of the axes, for colours from 0 to 1. By default, the values of ImageNet.
        eigvec: Eigenvectors, with one column per axis and one row each for red, green and blue. By default, the values of ImageNet.

    >>> grey = np.full((1, 1, 3), 128, np.uint8)
    >>> Lighting(std=0.5)(grey, np.random.default_rng(1))
    array([[[124, 122, 121]]], dtype=uint8)
    """

    std: Amount = 0.1
    eigval: Eigenvalues = F.EIGENVALUES
    eigvec: tuple[Axes, Axes, Axes] = F.EIGENVECTORS

    def draw(self, size: Size, rng: Generator | None) -> tuple[float, ...] | None:
        return None if rng is None else tuple((rng.standard_normal(3) * self.std).tolist())

    def image(self, image: np.ndarray, params: tuple[float, float, float] | None) -> np.ndarray:
        return image if params is None else F.lighting(image, params, self.eigval, self.eigvec)

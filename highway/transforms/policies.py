"""Augmentation policies, such as RandAugment. They apply random operations to an image and its boxes, points and mask.

The operations and magnitudes are the same as in torchvision and the papers. Operations that change pixel values return the same results as
in Pillow.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Annotated, Literal, NamedTuple

import numpy as np
from numpy.random import Generator

from highway import functional as F
from highway.functional.levels import expect_bytes
from highway.images.ops import Size, cv2_or_none, saturated
from highway.parameters.checks import checked, require
from highway.parameters.ranges import Count, Range
from highway.transforms.base import Transform, below
from highway.transforms.compose import Step, Steps, applied
from highway.transforms.parameters import PerChannel, Positive
from highway.transforms.policy_tables import AUTO, ENHANCE, LEVELS, MIX, RAND, SUB_POLICIES, TRIVIAL, Space
from highway.transforms.warp import Warp


@dataclass(frozen=True)
class _Move(Warp):
    """An operation that moves pixels. Its parameter is the magnitude."""

    kind: str
    interpolation: F.Linear
    fill: F.Fill

    def draw(self, size: Size, rng: Generator | None) -> float:
        return 0.0

    def matrix(self, params: float, size: Size) -> np.ndarray | None:
        if params == 0:
            return None
        if self.kind == "Rotate":
            return F.rotation(size, params)
        matrix = np.eye(2, 3)
        matrix[_ENTRIES[self.kind]] = -params if self.kind.startswith("Shear") else params
        return matrix

    def image(self, image: np.ndarray, params: float) -> np.ndarray:
        if not self.kind.startswith("Translate"):
            return super().image(image, params)
        corner = (0, int(params)) if self.kind == "TranslateX" else (int(params), 0)
        return F.paste(image, (image.shape[0], image.shape[1]), corner, self.fill)


_ENTRIES = {"ShearX": (0, 1), "ShearY": (1, 0), "TranslateX": (0, 2), "TranslateY": (1, 2)}
MOVES = (*_ENTRIES, "Rotate")


@dataclass(frozen=True)
class _Change(Transform):
    """An operation that moves no pixels. Its parameter is the magnitude."""

    kind: str

    def image(self, image: np.ndarray, params: float) -> np.ndarray:
        return _CHANGES[self.kind](image, params)


_CHANGES: Mapping[str, Callable[[np.ndarray, float], np.ndarray]] = {
    "Brightness": lambda image, magnitude: F.brightness(image, 1 + magnitude),
    "Color": lambda image, magnitude: F.saturation(image, 1 + magnitude),
    "Contrast": lambda image, magnitude: F.contrast(image, 1 + magnitude),
    "Sharpness": lambda image, magnitude: F.sharpness(image, 1 + magnitude),
    "Posterize": lambda image, magnitude: F.posterize(image, int(magnitude)),
    "Solarize": F.solarize,
    "AutoContrast": lambda image, _: F.autocontrast(image),
    "Equalize": lambda image, _: F.equalize(image),
    "Invert": lambda image, _: F.invert(image),
    "Identity": lambda image, _: image,
}


@lru_cache(maxsize=64)
def operations_of(interpolation: F.Linear, fill: F.Fill) -> Mapping[str, Transform]:
    moves: dict[str, Transform] = {kind: _Move(kind, interpolation, fill) for kind in MOVES}
    return moves | {kind: _Change(kind) for kind in _CHANGES}


class _Policy(Steps):
    """Base class of policies. A policy draws operations and their magnitudes. Without ``rng``, it applies no operation."""

    interpolation: F.Linear
    fill: F.Fill

    @abstractmethod
    def drawn(self, rng: Generator, size: Size) -> Iterator[tuple[str, float]]:
        """Yield the names of the operations to apply, each with its magnitude."""

    def draw(self, size: Size, rng: Generator | None) -> list[Step]:
        if rng is None:
            return []
        operations = operations_of(self.interpolation, self.fill)
        return [Step(place, operations[kind], much, size) for place, (kind, much) in enumerate(self.drawn(rng, size))]

    def image(self, image: np.ndarray, params: list[Step], out: np.ndarray | None = None) -> np.ndarray:
        expect_bytes(image, type(self).__name__)
        return super().image(image, params, out)

    into = image


def _magnitude(space: Space, kind: str, level: float, size: Size, rng: Generator) -> float:
    found = space[kind]
    if found is None:
        return 0.0
    magnitude = found.at(level, size[0 if kind == "TranslateY" else 1])
    return -magnitude if found.signed and rng.random() < 0.5 else magnitude


@checked
@dataclass(frozen=True)
class RandAugment(_Policy):
    """Apply random operations from a set of 14, all at the same magnitude level ("RandAugment", Cubuk et al. 2020). uint8 only.

    Args:
        num_ops: Number of operations. The same operation can be drawn several times.
        magnitude: Magnitude level, from 0 to ``num_magnitude_bins - 1``. Each operation has a table that converts this level to a
            magnitude.
        num_magnitude_bins: Number of magnitude levels.
        interpolation: ``"nearest"`` or ``"bilinear"``.
        fill: Value of new pixels: a number, or one number per channel.

    >>> photo = np.zeros((32, 32, 3), np.uint8)
    >>> augmented = RandAugment(num_ops=2, magnitude=9)(photo, np.random.default_rng(0))
    >>> augmented.shape, augmented.dtype
    ((32, 32, 3), dtype('uint8'))
    """

    num_ops: Count = 2
    magnitude: Annotated[int, Range(ge=0)] = 9
    num_magnitude_bins: Annotated[int, Range(ge=2)] = 31
    interpolation: F.Linear = "nearest"
    fill: PerChannel = 0.0

    def __post_init__(self) -> None:
        good = self.magnitude < self.num_magnitude_bins
        require(good, self, "magnitude", f"below num_magnitude_bins={self.num_magnitude_bins}")

    def drawn(self, rng: Generator, size: Size) -> Iterator[tuple[str, float]]:
        level = self.magnitude / (self.num_magnitude_bins - 1)
        for number in rng.integers(len(RAND), size=self.num_ops).tolist():
            kind = tuple(RAND)[number]
            yield kind, _magnitude(RAND, kind, level, size, rng)


@checked
@dataclass(frozen=True)
class TrivialAugmentWide(_Policy):
    """Apply one random operation from a set of 14, with a random magnitude ("TrivialAugment", Müller and Hutter 2021). uint8 only.

    Args:
        num_magnitude_bins: Number of magnitude levels.
        interpolation: ``"nearest"`` or ``"bilinear"``.
        fill: Value of new pixels: a number, or one number per channel.

    >>> photo = np.zeros((32, 32, 3), np.uint8)
    >>> augmented = TrivialAugmentWide()(photo, np.random.default_rng(0))
    >>> augmented.shape, augmented.dtype
    ((32, 32, 3), dtype('uint8'))
    """

    num_magnitude_bins: Annotated[int, Range(ge=2)] = 31
    interpolation: F.Linear = "nearest"
    fill: PerChannel = 0.0

    def drawn(self, rng: Generator, size: Size) -> Iterator[tuple[str, float]]:
        kind = tuple(TRIVIAL)[below(len(TRIVIAL), rng)]
        level = below(self.num_magnitude_bins, rng) / (self.num_magnitude_bins - 1)
        yield kind, _magnitude(TRIVIAL, kind, level, size, rng)


@checked
@dataclass(frozen=True)
class AutoAugment(_Policy):
    """Select a random pair of operations, and apply each operation with its own probability. uint8 only.

    From "AutoAugment", Cubuk et al. 2019.

    Args:
        policy: Name of the dataset for which the pairs of operations were found: ``"imagenet"``, ``"cifar10"`` or ``"svhn"``.
        interpolation: ``"nearest"`` or ``"bilinear"``.
        fill: Value of new pixels: a number, or one number per channel.

    >>> photo = np.zeros((32, 32, 3), np.uint8)
    >>> augmented = AutoAugment("cifar10")(photo, np.random.default_rng(0))
    >>> augmented.shape, augmented.dtype
    ((32, 32, 3), dtype('uint8'))
    """

    policy: Literal["imagenet", "cifar10", "svhn"] = "imagenet"
    interpolation: F.Linear = "nearest"
    fill: PerChannel = 0.0

    def drawn(self, rng: Generator, size: Size) -> Iterator[tuple[str, float]]:
        pairs = SUB_POLICIES[self.policy]
        for kind, probability, level in pairs[below(len(pairs), rng)]:
            if rng.random() < probability:
                yield kind, _magnitude(AUTO, kind, (level or 0) / (LEVELS - 1), size, rng)


class _Mixed(NamedTuple):
    own: float  # the weight of the original image
    parts: list[float]
    chains: list[list[Step]]


@checked
@dataclass(frozen=True)
class AugMix(Transform):
    """Mix the image with augmented copies of the image ("AugMix", Hendrycks et al. 2020). uint8 only.

    Without ``rng``, the image does not change.

    Boxes, points and masks do not change, because the copies can be moved differently. If an item has boxes, points or masks, set
    ``geometric=False``.

    Args:
        severity: Number of magnitude levels, from 1 to 10. Each operation gets a random level from 0 to ``severity - 1``.
        mixture_width: Number of augmented copies.
        chain_depth: Number of operations per copy. 0 means a random number from 1 to 3.
        alpha: Parameter of two random distributions, Beta and Dirichlet. They determine the weights of the image and its copies.
        all_ops: Whether to include changes of brightness, contrast, colour and sharpness.
        geometric: Whether to include operations that move pixels.
        interpolation: ``"nearest"`` or ``"bilinear"``.
        fill: Value of new pixels: a number, or one number per channel.

    >>> photo = np.zeros((32, 32, 3), np.uint8)
    >>> augmented = AugMix(severity=3)(photo, np.random.default_rng(0))
    >>> augmented.shape, augmented.dtype
    ((32, 32, 3), dtype('uint8'))
    """

    severity: Annotated[int, Range(ge=1, le=10)] = 3
    mixture_width: Count = 3
    chain_depth: Annotated[int, Range(ge=0)] = 0
    alpha: Positive = 1.0
    all_ops: bool = True
    geometric: bool = True
    interpolation: F.Linear = "bilinear"
    fill: PerChannel = 0.0

    def draw(self, size: Size, rng: Generator | None) -> _Mixed | None:
        if rng is None:
            return None
        changed = float(rng.beta(self.alpha, self.alpha))
        parts = (rng.dirichlet([self.alpha] * self.mixture_width) * changed).tolist()
        return _Mixed(1 - changed, parts, [self._chain(size, rng) for _ in parts])

    def _chain(self, size: Size, rng: Generator) -> list[Step]:
        left_out = ("Identity", *(() if self.all_ops else ENHANCE), *(() if self.geometric else MOVES))
        kinds = [kind for kind in MIX if kind not in left_out]
        operations, steps = operations_of(self.interpolation, self.fill), list[Step]()
        for place in range(self.chain_depth or 1 + below(3, rng)):
            kind = kinds[below(len(kinds), rng)]
            level = below(self.severity, rng) / (LEVELS - 1)
            steps.append(Step(place, operations[kind], _magnitude(MIX, kind, level, size, rng), size))
        return steps

    def image(self, image: np.ndarray, params: _Mixed | None) -> np.ndarray:
        expect_bytes(image, "AugMix")
        return image if params is None else _mixed(image, params.own, params.parts, [applied(image, chain) for chain in params.chains])


def _mixed(image: np.ndarray, own: float, parts: Sequence[float], others: Sequence[np.ndarray]) -> np.ndarray:
    """Return the weighted sum of images."""
    if (cv2 := cv2_or_none()) and (image.ndim == 2 or image.shape[2] <= 4):
        mixed, share = image, own
        for part, other in zip(parts, others, strict=True):  # running means, because sums of uint8 images would saturate
            share += part
            mixed = cv2.addWeighted(mixed, 1 - part / share, other, part / share, 0).reshape(image.shape) if share else mixed
        return mixed
    total = image * np.float32(own)
    for part, other in zip(parts, others, strict=True):
        total += other * np.float32(part)
    return saturated(total, image.dtype)

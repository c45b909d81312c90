"""Transforms that move pixels and keep them all: flips, shifts, turns, scaling."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
from numpy.random import Generator

from highway import functional as F
from highway.backend import Interp
from highway.transforms.base import Geometric, Size, happens, placed, require, require_p, require_size


@dataclass(frozen=True)
class FlipX(Geometric):
    """Mirror left and right with probability ``p``.

    Args:
        p: Probability, from 0 to 1.
    """

    p: float = 0.5

    def __post_init__(self) -> None:
        require_p(self)

    def draw(self, size: Size, rng: Generator | None) -> bool:
        return happens(self.p, rng)

    def image(self, image: np.ndarray, params: bool) -> np.ndarray:
        return F.flip_x(image) if params else image

    def into(self, image: np.ndarray, params: bool, out: np.ndarray) -> np.ndarray:
        return F.flip_x(image, out) if params else image

    def points(self, points: np.ndarray, params: bool, size: Size) -> np.ndarray:
        return placed(points, (-1, 1), (size[1], 0)) if params else points


@dataclass(frozen=True)
class FlipY(Geometric):
    """Mirror top and bottom with probability ``p``.

    Args:
        p: Probability, from 0 to 1.
    """

    p: float = 0.5

    def __post_init__(self) -> None:
        require_p(self)

    def draw(self, size: Size, rng: Generator | None) -> bool:
        return happens(self.p, rng)

    def image(self, image: np.ndarray, params: bool) -> np.ndarray:
        return F.flip_y(image) if params else image

    def into(self, image: np.ndarray, params: bool, out: np.ndarray) -> np.ndarray:
        return F.flip_y(image, out) if params else image

    def points(self, points: np.ndarray, params: bool, size: Size) -> np.ndarray:
        return placed(points, (1, -1), (0, size[0])) if params else points


@dataclass(frozen=True)
class Shift(Geometric):
    """Move the image by up to ``shift`` whole pixels in each direction; stays without chance.

    Args:
        shift: Pixels, at least 0.
        mode: What the pixels that come in hold: ``"constant"`` (0), ``"edge"`` or ``"nearest"``, ``"reflect"``, ``"symmetric"``, ``"wrap"``
            (numpy's words). Boxes and points know only the image itself, not what comes in by reflection or wrapping.
    """

    shift: int
    mode: F.Padding = "constant"

    def __post_init__(self) -> None:
        require(self.shift >= 0, self, "shift", "pixels, at least 0")
        require(self.mode in get_args(F.Padding), self, "mode", f"one of {', '.join(get_args(F.Padding))}")

    def draw(self, size: Size, rng: Generator | None) -> tuple[int, int]:
        return _offsets(self.shift, rng)

    def image(self, image: np.ndarray, params: tuple[int, int]) -> np.ndarray:
        return image if params == (0, 0) else F.shift(image, params, self.mode)

    def points(self, points: np.ndarray, params: tuple[int, int], size: Size) -> np.ndarray:
        return placed(points, offset=params[::-1])


@dataclass(frozen=True)
class PadCrop(Geometric):
    """Pad every side by ``padsize`` pixels and cut out a box of the image's own size; the centre, the image itself, without chance.

    Args:
        padsize: Pixels, at least 0.
        mode: What the padding holds, as for :class:`Shift`.
    """

    padsize: int
    mode: F.Padding = "constant"

    def __post_init__(self) -> None:
        require(self.padsize >= 0, self, "padsize", "pixels, at least 0")
        require(self.mode in get_args(F.Padding), self, "mode", f"one of {', '.join(get_args(F.Padding))}")

    def draw(self, size: Size, rng: Generator | None) -> tuple[int, int]:
        return _offsets(self.padsize, rng)

    def image(self, image: np.ndarray, params: tuple[int, int]) -> np.ndarray:
        if params == (0, 0):
            return image
        top, left = self.padsize - params[0], self.padsize - params[1]
        return F.crop(F.pad(image, self.padsize, self.mode), top, left, *image.shape[:2])

    def points(self, points: np.ndarray, params: tuple[int, int], size: Size) -> np.ndarray:
        return placed(points, offset=params[::-1])


@dataclass(frozen=True)
class Rotate(Geometric):
    """Turn the image about its centre by up to ``angle`` degrees either way; stays without chance.

    Args:
        angle: Degrees.
        order: 0 nearest neighbour, 1 bilinear, 3 bicubic; masks always use 0.
        reshape: Whether the result grows to hold the whole turned image (the images of a batch then differ in size). New pixels are 0.
    """

    angle: float
    order: F.Order = 1
    reshape: bool = False

    def __post_init__(self) -> None:
        require(self.angle >= 0, self, "angle", "degrees, at least 0")
        require(self.order in get_args(F.Order), self, "order", "0 (nearest), 1 (bilinear) or 3 (bicubic)")

    def draw(self, size: Size, rng: Generator | None) -> float:
        return 0.0 if rng is None else float(rng.uniform(-self.angle, self.angle))

    def output(self, params: float, size: Size) -> Size:
        return F.rotated_size(size, params, self.reshape)

    def image(self, image: np.ndarray, params: float) -> np.ndarray:
        return F.rotate(image, params, self.order, self.reshape)

    def points(self, points: np.ndarray, params: float, size: Size) -> np.ndarray:
        return F.move_points(points, F.rotation(size, params, self.reshape))

    def mask(self, mask: np.ndarray, params: float) -> np.ndarray:
        return F.rotate(mask, params, 0, self.reshape)


@dataclass(frozen=True)
class Zoom(Geometric):
    """Scale the image about its centre by a factor from ``1 - fac`` to ``1 + fac`` and keep its size; stays without chance.

    Args:
        fac: At least 0, below 1. A smaller image gets a border of 0.
        order: 0 nearest neighbour, 1 bilinear, 3 bicubic; masks always use 0.
    """

    fac: float
    order: F.Order = 1

    def __post_init__(self) -> None:
        require(0 <= self.fac < 1, self, "fac", "at least 0 and below 1")
        require(self.order in get_args(F.Order), self, "order", "0 (nearest), 1 (bilinear) or 3 (bicubic)")

    def draw(self, size: Size, rng: Generator | None) -> float:
        return 1.0 if rng is None else float(rng.uniform(1 - self.fac, 1 + self.fac))

    def image(self, image: np.ndarray, params: float) -> np.ndarray:
        return F.clipped_zoom(image, params, self.order)

    def points(self, points: np.ndarray, params: float, size: Size) -> np.ndarray:
        return F.move_points(points, F.zooming(size, params))

    def mask(self, mask: np.ndarray, params: float) -> np.ndarray:
        return F.clipped_zoom(mask, params, 0)


@dataclass(frozen=True)
class Resize(Geometric):
    """Scale the image.

    Args:
        shape: Height and width in pixels.
        mode: ``"resize"`` to exactly ``shape``; ``"width"`` to the width of ``shape``, and the height that keeps the proportions.
        interp: ``"nearest"``, ``"bilinear"``, ``"bicubic"``, ``"lanczos"`` or ``"area"``; masks always use ``"nearest"``.
    """

    shape: tuple[int, int]
    mode: Literal["resize", "width"] = "resize"
    interp: Interp = "bilinear"

    def __post_init__(self) -> None:
        require_size(self, "shape")
        require(self.mode in ("resize", "width"), self, "mode", "'resize' or 'width'")
        require(self.interp in get_args(Interp), self, "interp", f"one of {', '.join(get_args(Interp))}")

    def output(self, params: None, size: Size) -> Size:
        if self.mode == "resize":
            return self.shape
        return max(1, round(size[0] * self.shape[1] / size[1])), self.shape[1]

    def image(self, image: np.ndarray, params: None) -> np.ndarray:
        return F.resize(image, self.output(params, image.shape[:2]), self.interp)

    def into(self, image: np.ndarray, params: Any, out: np.ndarray) -> np.ndarray:
        return F.resize(image, self.output(params, image.shape[:2]), self.interp, out)

    def points(self, points: np.ndarray, params: None, size: Size) -> np.ndarray:
        height, width = self.output(params, size)
        return placed(points, (width / size[1], height / size[0]))

    def mask(self, mask: np.ndarray, params: None) -> np.ndarray:
        return F.resize(mask, self.output(params, mask.shape[:2]), "nearest")


def _offsets(most: int, rng: Generator | None) -> tuple[int, int]:
    if rng is None:
        return 0, 0
    down, right = rng.integers(-most, most + 1, 2).tolist()
    return down, right

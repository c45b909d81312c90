"""Transforms that send every pixel to another place, between pixels too: by a matrix."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
from numpy.random import Generator

from highway import functional as F
from highway.images.ops import Size
from highway.parameters.checks import checked, require
from highway.parameters.ranges import Probability, Range
from highway.transforms.base import Geometric, happens, uniform
from highway.transforms.parameters import Amount, Centers, Degrees, Factors, PerChannel, Positive, Slant


class Warp(Geometric):
    """A transform that moves the image by a matrix. Those that stand next to each other in a chain move it once, by the product."""

    interpolation: F.Sampling
    fill: PerChannel = 0.0
    mode: F.WarpBorder = "constant"

    @abstractmethod
    def matrix(self, params: Any, size: Size) -> np.ndarray | None:
        """Return where points go: float64 ``(2, 3)``, or ``(3, 3)`` if it is projective; ``None`` where they stay."""

    def image(self, image: np.ndarray, params: Any) -> np.ndarray:
        return self._warped(image, params, self.interpolation, self.fill)

    def mask(self, mask: np.ndarray, params: Any) -> np.ndarray:
        return self._warped(mask, params, "nearest", 0)

    def _warped(self, image: np.ndarray, params: Any, interpolation: F.Sampling, fill: F.Fill) -> np.ndarray:
        size = image.shape[0], image.shape[1]
        matrix = self.matrix(params, size)
        return image if matrix is None else F.warp(image, matrix, self.output(params, size), interpolation, fill, self.mode)

    def points(self, points: np.ndarray, params: Any, size: Size) -> np.ndarray:
        matrix = self.matrix(params, size)
        return points if matrix is None else F.move_points(points, matrix)


@dataclass(frozen=True)
class JoinedWarps(Warp):
    """Warps that stand next to each other, as one: its parameters are their one map, and the size of what comes out."""

    warps: tuple[Warp, ...]
    interpolation: F.Sampling = "bilinear"
    fill: PerChannel = 0.0

    def output(self, params: tuple[np.ndarray, Size], size: Size) -> Size:
        return params[1]

    def matrix(self, params: tuple[np.ndarray, Size], size: Size) -> np.ndarray:
        return params[0]

    def __str__(self) -> str:
        return " and ".join(map(str, self.warps))


def joined(run: Sequence[tuple[Warp, Any, Size]]) -> tuple[JoinedWarps, tuple[np.ndarray, Size]]:
    """Return one warp, and its parameters, in place of several with their parameters and the sizes of the images that they get."""
    whole, (last, params, size) = np.eye(3), run[-1]
    for warp, drawn, before in run:
        matrix = warp.matrix(drawn, before)
        if matrix is not None:
            whole = (matrix if len(matrix) == 3 else np.vstack([matrix, [0, 0, 1]])) @ whole
    affine = whole[2].tolist() == [0, 0, 1]
    return JoinedWarps(tuple(warp for warp, _, _ in run), fill=last.fill), (whole[:2] if affine else whole, last.output(params, size))


def joins(one: object, other: object) -> bool:
    """Say whether two transforms, one behind the other, can move the image at once: both interpolate, and onto the same colour."""
    return (
        isinstance(one, Warp)
        and isinstance(other, Warp)
        and one.interpolation in F.LINEAR
        and other.interpolation in F.LINEAR
        and one.fill == other.fill
        and one.mode == other.mode == "constant"
    )


@checked
@dataclass(frozen=True)
class Rotate(Warp):
    """Turn the image about its centre by up to ``angle`` degrees either way; stays without chance.

    Args:
        angle: Degrees, at least 0. A whole number draws whole degrees, a float any angle.
        interpolation: ``"nearest"``, ``"bilinear"``, or the order of a spline, 0 to 5: 0 is nearest neighbour, 1 bilinear, 2 to 5 are
            smoother and many times slower. Masks always use ``"nearest"``.
        reshape: Whether the result grows to hold the whole turned image (the images of a batch then
            differ in size).
        fill: What new pixels hold: a number, or one for each channel; 0 with a spline of order 2 or more.
        mode: What new pixels hold: ``"constant"`` (``fill``), or ``"nearest"``, ``"reflect"``, ``"mirror"`` or ``"wrap"``, as for
            :class:`Shift`. Boxes and points know only the image itself, not what comes in by reflection or wrapping.
        center_range: Least and greatest place of the centre of the turn, as shares of width and height, both drawn. Not with ``reshape``.
        step_deg: Only multiples of so many degrees are drawn.
    """

    angle: Annotated[int | float, Range(ge=0, lt=2**53, words="degrees, at least 0")]
    interpolation: F.Sampling = "nearest"
    reshape: bool = False
    fill: PerChannel = 0.0
    mode: F.WarpBorder = "constant"
    center_range: Centers = (0.5, 0.5)
    step_deg: Positive | None = None

    def __post_init__(self) -> None:
        _check_mode(self)
        require(not self.reshape or self.center_range == (0.5, 0.5), self, "center_range", "(0.5, 0.5) with reshape=True")
        _check_step(self)

    def draw(self, size: Size, rng: Generator | None) -> float | tuple[float, float, float]:
        """Return the degrees of the turn, and the place of its centre, x and y, if that is drawn."""
        if rng is None:
            return 0.0
        angle = _drawn_angle(self.angle, self.step_deg, rng)
        if self.center_range == (0.5, 0.5):
            return angle
        return angle, uniform(*self.center_range, rng) * size[1], uniform(*self.center_range, rng) * size[0]

    def output(self, params: float | tuple[float, float, float], size: Size) -> Size:
        return size if isinstance(params, tuple) else F.rotated_size(size, params, self.reshape)

    def matrix(self, params: float | tuple[float, float, float], size: Size) -> np.ndarray | None:
        angle, *centre = params if isinstance(params, tuple) else (params,)
        if angle % 360 == 0:
            return None
        matrix = F.rotation(size, angle, self.reshape)
        if centre:  # which stays where it is
            matrix[:, 2] = centre - matrix[:, :2] @ centre
        return matrix


@checked
@dataclass(frozen=True)
class Zoom(Warp):
    """Scale the image by a factor from ``1 - fac`` to ``1 + fac`` and keep its size; stays without chance.

    A smaller image lies at a random place on 0; of a larger one a random window is cut out.

    Args:
        fac: At least 0, below 1.
        interpolation: As for :class:`Rotate`.
    """

    fac: Annotated[float, Range(ge=0, lt=1)]
    interpolation: F.Sampling = "nearest"

    def draw(self, size: Size, rng: Generator | None) -> tuple[float, tuple[float, float]]:
        """Return the factor, and the place of the image or window: from top to bottom and from left to right, each 0 to 1."""
        if rng is None:
            return 1.0, (0.5, 0.5)
        return 1 + self.fac * (2 * rng.random() - 1), (rng.random(), rng.random())

    def matrix(self, params: tuple[float, tuple[float, float]], size: Size) -> np.ndarray | None:
        return None if params[0] == 1 else F.zooming(size, *params)


@checked
@dataclass(frozen=True)
class RotateAndCropValid(Warp):
    """Turn the image about its centre by up to ``angle`` degrees either way, and cut out the largest box that holds no new pixel.

    The sizes of what comes out differ: put a :class:`Resize` behind it. The image stays without chance.

    Args:
        angle: Degrees, at least 0.
        interpolation: As for :class:`Rotate`.
        step_deg: Only multiples of this many degrees are drawn.
    """

    angle: Degrees
    interpolation: F.Sampling = "bilinear"
    step_deg: Positive | None = None

    def __post_init__(self) -> None:
        _check_step(self)

    def draw(self, size: Size, rng: Generator | None) -> float:
        return 0.0 if rng is None else _drawn_angle(self.angle, self.step_deg, rng)

    def output(self, params: float, size: Size) -> Size:
        height, width = _largest_upright(size, math.radians(params))
        return max(1, int(height + 1e-6)), max(1, int(width + 1e-6))

    def matrix(self, params: float, size: Size) -> np.ndarray | None:
        if params == 0:
            return None
        matrix, (height, width) = F.rotation(size, params), self.output(params, size)
        matrix[:, 2] += (width - size[1]) / 2, (height - size[0]) / 2
        return matrix


def _largest_upright(size: Size, angle: float) -> tuple[float, float]:
    """Return height and width of the largest upright box within an image turned by an angle."""
    sine, cosine = abs(math.sin(angle)), abs(math.cos(angle))
    (short, long), upright = sorted(size), size[1] >= size[0]
    if short <= 2 * sine * cosine * long or abs(sine - cosine) < 1e-10:  # two of its corners touch the longer side, halfway
        sides = (short / 2 / sine, short / 2 / cosine) if upright else (short / 2 / cosine, short / 2 / sine)
        return sides[1], sides[0]
    double = cosine * cosine - sine * sine
    return (size[0] * cosine - size[1] * sine) / double, (size[1] * cosine - size[0] * sine) / double


def _drawn_angle(most: int | float, step: float | None, rng: Generator) -> float:
    """Return degrees from ``-most`` to ``most``: multiples of ``step``, whole degrees if ``most`` is an int, or any."""
    share = rng.random()
    if step is not None:
        steps = int(most / step + 1e-9)
        count = 2 * steps + (2 * steps * step != 360)  # -180 and 180 degrees are one turn
        return step * (int(count * share) - steps)
    return float(int((2 * most + 1) * share) - most) if isinstance(most, int) else most * (2 * share - 1)


def _check_step(warp: Rotate | RotateAndCropValid) -> None:
    require(warp.step_deg is None or warp.step_deg <= warp.angle, warp, "step_deg", f"at most angle={warp.angle}")


def _check_mode(warp: Warp) -> None:
    linear = warp.interpolation in (*F.NEAREST, *F.LINEAR)
    require(warp.mode == "constant" or linear, warp, "mode", "'constant' with a spline of order 2 or more")


class _Affine(Warp):
    """A transform that draws an affine map about the centre."""

    rotate: Degrees = 0.0
    translate: tuple[Amount, Amount] = (0.0, 0.0)
    scale: Factors = (1.0, 1.0)
    shear: Slant = 0.0

    def __post_init__(self) -> None:
        _check_mode(self)

    def draw(self, size: Size, rng: Generator | None) -> tuple[float, float, float, float, float, float]:
        """Return degrees, factor, the degrees of both slants, and the shift in pixels to the right and down."""
        if rng is None:
            return 0.0, 1.0, 0.0, 0.0, 0.0, 0.0
        turn, x, y, right, down, factor = (2 * rng.random(6) - 1).tolist()
        least, greatest = self.scale
        shift = right * self.translate[0] * size[1], down * self.translate[1] * size[0]
        return turn * self.rotate, (least + greatest + factor * (greatest - least)) / 2, x * self.shear, y * self.shear, *shift

    def matrix(self, params: tuple[float, ...], size: Size) -> np.ndarray | None:
        if params == (0.0, 1.0, 0.0, 0.0, 0.0, 0.0):
            return None
        angle, factor, x, y, *shift = params
        return F.affine(size, angle, factor, x, y, (shift[0], shift[1]))


@checked
@dataclass(frozen=True)
class Affine(_Affine):
    """Turn, scale, slant and shift the image about its centre, each by an amount that is drawn; it stays without chance.

    Args:
        rotate: Up to so many degrees either way.
        translate: Up to these shares of width and height either way.
        scale: Least and greatest factor.
        shear: Up to so many degrees either way, along x and, drawn apart, along y.
        interpolation: As for :class:`Rotate`.
        fill: What new pixels hold: a number, or one for each channel.
        mode: As for :class:`Rotate`.
    """

    rotate: Degrees = 0.0
    translate: tuple[Amount, Amount] = (0.0, 0.0)
    scale: Factors = (1.0, 1.0)
    shear: Slant = 0.0
    interpolation: F.Sampling = "bilinear"
    fill: PerChannel = 0.0
    mode: F.WarpBorder = "constant"


@checked
@dataclass(frozen=True)
class Shear(_Affine):
    """Slant the image about its centre; it stays without chance.

    Args:
        shear: Up to so many degrees either way, along x and, drawn apart, along y.
        interpolation: As for :class:`Rotate`.
        fill: What new pixels hold: a number, or one for each channel.
        mode: As for :class:`Rotate`.
    """

    shear: Slant = 15.0
    interpolation: F.Sampling = "bilinear"
    fill: PerChannel = 0.0
    mode: F.WarpBorder = "constant"


@checked
@dataclass(frozen=True)
class Translate(_Affine):
    """Shift the image, by parts of pixels too; it stays without chance. :class:`Shift` moves by whole pixels.

    Args:
        translate: Up to these shares of width and height either way.
        interpolation: As for :class:`Rotate`.
        fill: What new pixels hold: a number, or one for each channel.
        mode: As for :class:`Rotate`.
    """

    translate: tuple[Amount, Amount] = (0.1, 0.1)
    interpolation: F.Sampling = "bilinear"
    fill: PerChannel = 0.0
    mode: F.WarpBorder = "constant"


@checked
@dataclass(frozen=True)
class Perspective(Warp):
    """Move the corners of the image inwards, each by an amount of its own, with probability ``p``; not without chance.

    Args:
        distortion_scale: Up to this share of half the width, and of half the height.
        p: Probability, from 0 to 1.
        interpolation: ``"nearest"`` or ``"bilinear"``.
        fill: What new pixels hold: a number, or one for each channel.
    """

    distortion_scale: Annotated[float, Range(ge=0, lt=1)] = 0.5
    p: Probability = 0.5
    interpolation: F.Linear = "bilinear"
    fill: PerChannel = 0.0

    def draw(self, size: Size, rng: Generator | None) -> np.ndarray | None:
        """Return how far each corner moves, float64 ``(4, 2)``: upper left, upper right, lower right, lower left."""
        if rng is None or not happens(self.p, rng):
            return None
        moved: np.ndarray = rng.random((4, 2)) * _INWARDS * (self.distortion_scale / 2 * size[1], self.distortion_scale / 2 * size[0])
        return moved

    def matrix(self, params: np.ndarray | None, size: Size) -> np.ndarray | None:
        if params is None:
            return None
        height, width = size
        corners = np.array([[0.0, 0.0], [width, 0.0], [width, height], [0.0, height]])
        return F.projection(corners, corners + params)


_INWARDS = np.array([[1, 1], [-1, 1], [-1, -1], [1, -1]])

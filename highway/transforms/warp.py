"""Transforms that warp the image by a matrix. They interpolate between pixels."""

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
    """Base class of transforms that warp the image by a matrix. Consecutive warps are combined by multiplying their matrices.

    >>> class Squeeze(Warp):
    ...     interpolation = "bilinear"
    ...     def matrix(self, params, size):
    ...         return np.array([[0.5, 0, 0], [0, 1, 0]])
    >>> Squeeze()(np.array([[10, 30, 50, 70]], np.uint8))
    array([[20, 60,  0,  0]], dtype=uint8)
    """

    interpolation: F.Sampling
    fill: PerChannel = 0.0
    mode: F.WarpBorder = "constant"

    @abstractmethod
    def matrix(self, params: Any, size: Size) -> np.ndarray | None:
        """Return the matrix that maps points to new points: float64 ``(2, 3)`` (affine) or ``(3, 3)`` (projective); ``None``: no change."""

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
    """Several consecutive warps, combined into one warp. Its parameters are the product of the matrices, and the size of the result."""

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
    """Combine warps. Return one warp and its parameters. ``run`` contains each warp, its parameters, and the size of its input."""
    whole, (last, params, size) = np.eye(3), run[-1]
    for warp, drawn, before in run:
        matrix = warp.matrix(drawn, before)
        if matrix is not None:
            whole = (matrix if len(matrix) == 3 else np.vstack([matrix, [0, 0, 1]])) @ whole
    affine = whole[2].tolist() == [0, 0, 1]
    return JoinedWarps(tuple(warp for warp, _, _ in run), fill=last.fill), (whole[:2] if affine else whole, last.output(params, size))


def joins(one: object, other: object) -> bool:
    """Return whether two consecutive warps can be combined. Both must interpolate, and have the same fill value."""
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
    """Rotate the image around its centre by a random angle from ``-angle`` to ``angle`` degrees.

    Without ``rng``, the image does not change.

    Args:
        angle: Maximum angle in degrees, at least 0. If it is an integer, the random angle is a whole number of degrees.
        interpolation: ``"nearest"``, ``"bilinear"``, or the order of a spline. Order 0 means nearest, and order 1 means bilinear. Orders 2
            to 5 are smoother, but many times slower. Masks always use ``"nearest"``.
        reshape: Whether the result is larger, so that it contains the whole rotated image. The images of a batch then differ in size.
        fill: Value of new pixels: a number, or one number per channel. With a spline of order 2 or more, it must be 0.
        mode: Values of new pixels: ``"constant"`` (``fill``), ``"nearest"``, ``"reflect"``, ``"mirror"`` or ``"wrap"``; see :class:`Shift`.
        center_range: Minimum and maximum position of a random centre, as fractions of width and height. Not allowed with ``reshape``.
        step_deg: Draw only multiples of this angle in degrees.

    >>> image = np.arange(9, dtype=np.uint8).reshape(3, 3)
    >>> Rotate(angle=90, step_deg=90)(image, np.random.default_rng(2))
    array([[6, 3, 0],
           [7, 4, 1],
           [8, 5, 2]], dtype=uint8)
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
        """Return the angle in degrees, and the centre (x, y) if it is random."""
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
        if centre:  # the centre does not move
            matrix[:, 2] = centre - matrix[:, :2] @ centre
        return matrix


@checked
@dataclass(frozen=True)
class Zoom(Warp):
    """Zoom in or out by a random factor from ``1 - fac`` to ``1 + fac``. Without ``rng``, the image does not change.

    If the image becomes smaller, it is placed at a random position on a background of 0. If it becomes larger, it is cropped to its
    original size at a random position.

    Args:
        fac: Maximum distance of the factor from 1, at least 0 and below 1.
        interpolation: See :class:`Rotate`.

    >>> image = np.full((4, 4), 9, np.uint8)
    >>> Zoom(0.5)(image, np.random.default_rng(11))
    array([[0, 0, 0, 0],
           [0, 9, 9, 0],
           [0, 9, 9, 0],
           [0, 0, 0, 0]], dtype=uint8)
    """

    fac: Annotated[float, Range(ge=0, lt=1)]
    interpolation: F.Sampling = "nearest"

    def draw(self, size: Size, rng: Generator | None) -> tuple[float, tuple[float, float]]:
        """Return the factor, and the vertical and horizontal position of the image or window, each from 0 to 1."""
        if rng is None:
            return 1.0, (0.5, 0.5)
        return 1 + self.fac * (2 * rng.random() - 1), (rng.random(), rng.random())

    def matrix(self, params: tuple[float, tuple[float, float]], size: Size) -> np.ndarray | None:
        return None if params[0] == 1 else F.zooming(size, *params)


@checked
@dataclass(frozen=True)
class RotateAndCropValid(Warp):
    """Rotate the image around its centre by a random angle, and crop the largest box that is completely inside the rotated image.

    The results have different sizes, so add a :class:`Resize` after this transform. Without ``rng``, the image does not change.

    Args:
        angle: Maximum angle in degrees, in both directions, at least 0.
        interpolation: See :class:`Rotate`.
        step_deg: Draw only multiples of this angle in degrees.

    >>> photo = np.zeros((300, 400, 3), np.uint8)
    >>> RotateAndCropValid(20)(photo, np.random.default_rng(0)).shape
    (265, 376, 3)
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
    """Return the height and width of the largest upright box inside a rotated image."""
    sine, cosine = abs(math.sin(angle)), abs(math.cos(angle))
    (short, long), upright = sorted(size), size[1] >= size[0]
    if short <= 2 * sine * cosine * long or abs(sine - cosine) < 1e-10:  # two corners of the box touch the longer side
        sides = (short / 2 / sine, short / 2 / cosine) if upright else (short / 2 / cosine, short / 2 / sine)
        return sides[1], sides[0]
    double = cosine * cosine - sine * sine
    return (size[0] * cosine - size[1] * sine) / double, (size[1] * cosine - size[0] * sine) / double


def _drawn_angle(most: int | float, step: float | None, rng: Generator) -> float:
    """Return a random angle from ``-most`` to ``most``: a multiple of ``step`` if given, otherwise whole degrees if ``most`` is an int."""
    share = rng.random()
    if step is not None:
        steps = int(most / step + 1e-9)
        count = 2 * steps + (2 * steps * step != 360)  # -180 and 180 degrees are the same rotation
        return step * (int(count * share) - steps)
    return float(int((2 * most + 1) * share) - most) if isinstance(most, int) else most * (2 * share - 1)


def _check_step(warp: Rotate | RotateAndCropValid) -> None:
    require(warp.step_deg is None or warp.step_deg <= warp.angle, warp, "step_deg", f"at most angle={warp.angle}")


def _check_mode(warp: Warp) -> None:
    linear = warp.interpolation in (*F.NEAREST, *F.LINEAR)
    require(warp.mode == "constant" or linear, warp, "mode", "'constant' with a spline of order 2 or more")
    require(linear or not np.any(warp.fill), warp, "fill", "0 with a spline of order 2 or more")


class _Affine(Warp):
    """A transform that draws a random affine map around the centre of the image."""

    rotate: Degrees = 0.0
    translate: tuple[Amount, Amount] = (0.0, 0.0)
    scale: Factors = (1.0, 1.0)
    shear: Slant = 0.0

    def __post_init__(self) -> None:
        _check_mode(self)

    def draw(self, size: Size, rng: Generator | None) -> tuple[float, float, float, float, float, float]:
        """Return the angle, the factor, the two shear angles, and the shift in pixels to the right and down."""
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
    """Rotate, scale, shear and shift the image by random amounts, around its centre. Without ``rng``, the image does not change.

    Args:
        rotate: Maximum angle in degrees, in both directions.
        translate: Maximum shift in both directions, as fractions of the width and height of the image.
        scale: Minimum and maximum factor.
        shear: Maximum shear in degrees, in both directions. The shears of x and y are drawn separately.
        interpolation: See :class:`Rotate`.
        fill: Value of new pixels: a number, or one number per channel.
        mode: See :class:`Rotate`.

    >>> photo = np.zeros((300, 400, 3), np.uint8)
    >>> Affine(rotate=30, translate=(0.1, 0.1), scale=(0.8, 1.2), shear=10)(photo, np.random.default_rng(0)).shape
    (300, 400, 3)
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
    """Shear the image around its centre by a random amount. Without ``rng``, the image does not change.

    Args:
        shear: Maximum shear in degrees, in both directions. The shears of x and y are drawn separately.
        interpolation: See :class:`Rotate`.
        fill: Value of new pixels: a number, or one number per channel.
        mode: See :class:`Rotate`.

    >>> image = np.full((3, 5), 9, np.uint8)
    >>> Shear(30, interpolation="nearest")(image, np.random.default_rng(0))
    array([[9, 9, 9, 0, 0],
           [9, 9, 9, 9, 9],
           [0, 0, 9, 9, 9]], dtype=uint8)
    """

    shear: Slant = 15.0
    interpolation: F.Sampling = "bilinear"
    fill: PerChannel = 0.0
    mode: F.WarpBorder = "constant"


@checked
@dataclass(frozen=True)
class Translate(_Affine):
    """Shift the image by a random amount, which can include fractions of a pixel. Without ``rng``, the image does not change.

    Args:
        translate: Maximum shift in both directions, as fractions of the width and height of the image.
        interpolation: See :class:`Rotate`.
        fill: Value of new pixels: a number, or one number per channel.
        mode: See :class:`Rotate`.

    >>> image = np.array([[0, 100, 200, 100]], np.uint8)
    >>> Translate((0.4, 0))(image, np.random.default_rng(0))
    array([[155, 145,  45,   0]], dtype=uint8)
    """

    translate: tuple[Amount, Amount] = (0.1, 0.1)
    interpolation: F.Sampling = "bilinear"
    fill: PerChannel = 0.0
    mode: F.WarpBorder = "constant"


@checked
@dataclass(frozen=True)
class Perspective(Warp):
    """Move each corner of the image inwards by a random amount, with probability ``p``. Without ``rng``, the image does not change.

    Args:
        distortion_scale: Maximum shift of a corner, as a fraction of half the width and half the height of the image.
        p: Probability, from 0 to 1.
        interpolation: ``"nearest"`` or ``"bilinear"``.
        fill: Value of new pixels: a number, or one number per channel.

    >>> image = np.full((4, 6), 9, np.uint8)
    >>> Perspective(0.5, p=1, interpolation="nearest")(image, np.random.default_rng(0))
    array([[0, 9, 9, 9, 9, 9],
           [0, 9, 9, 9, 9, 0],
           [0, 9, 9, 9, 9, 0],
           [0, 0, 0, 0, 0, 0]], dtype=uint8)
    """

    distortion_scale: Annotated[float, Range(ge=0, lt=1)] = 0.5
    p: Probability = 0.5
    interpolation: F.Linear = "bilinear"
    fill: PerChannel = 0.0

    def draw(self, size: Size, rng: Generator | None) -> np.ndarray | None:
        """Return the shift of each corner, float64 ``(4, 2)``, in the order upper left, upper right, lower right, lower left."""
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

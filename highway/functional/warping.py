"""Functions that send every pixel to another place, between pixels too.

``(H, W, C)`` or ``(H, W)``, uint8 or floats, and any dtype with ``"nearest"``: see :mod:`highway.functional`.
"""

from __future__ import annotations

import math
from typing import Literal

import numpy as np

from highway.images import ops, sampling, spline
from highway.images.ops import Size, computed_in_float32
from highway.images.sampling import Fill, Linear

Sampling = Literal["nearest", "bilinear", 0, 1, 2, 3, 4, 5]
__all__ = ["Fill", "Linear"]
NEAREST = ("nearest", 0)
LINEAR = ("bilinear", 1)


def warp(image: np.ndarray, matrix: np.ndarray, shape: Size, interpolation: Sampling = "bilinear", fill: Fill = 0) -> np.ndarray:
    """Move the image by a matrix.

    Args:
        image: See above.
        matrix: Where points go: float64 ``(2, 3)``, an affine map for x, y and 1, or ``(3, 3)``, a projective one.
        shape: Height and width of the result.
        interpolation: ``"nearest"``, ``"bilinear"``, or the order of a spline, 0 to 5, of an affine map.
        fill: What new pixels hold: a number, or one for each channel.
    """
    inverse = inverted(matrix)
    if interpolation in NEAREST:
        return sampling.warp(image, inverse, shape, "nearest", fill)
    if interpolation in LINEAR:
        return sampling.warp(image, inverse, shape, "bilinear", fill)
    return _by_spline(image, inverse, shape, int(interpolation))


def inverted(matrix: np.ndarray) -> np.ndarray:
    """Return the map back, of the same shape."""
    if len(matrix) == 3:
        back: np.ndarray = np.linalg.inv(matrix)
        return back
    linear = np.linalg.inv(matrix[:, :2])
    return np.column_stack([linear, -linear @ matrix[:, 2]])


def move_points(points: np.ndarray, matrix: np.ndarray) -> np.ndarray:
    """Apply a ``(2, 3)`` or ``(3, 3)`` matrix to points, float32 ``(N, 2)``."""
    moved: np.ndarray = points @ matrix[:, :2].T + matrix[:, 2]
    if len(matrix) == 3:
        moved = moved[:, :2] / moved[:, 2:]
    return moved.astype(np.float32)


def affine(
    size: Size, angle: float = 0.0, scale: float = 1.0, shear_x: float = 0.0, shear_y: float = 0.0, shift: tuple[float, float] = (0.0, 0.0)
) -> np.ndarray:
    """Return where an affine map about the centre of an image sends its points: float64 ``(2, 3)``, for x, y and 1.

    Args:
        size: Height and width of the image.
        angle: Degrees of a turn, counterclockwise as seen.
        scale: Factor.
        shear_x: Degrees of a slant along x, before all else.
        shear_y: Degrees of one along y, after that along x, and before the turn.
        shift: Pixels to the right and down, after all else.
    """
    turn, x, y = (math.radians(degrees) for degrees in (-angle, shear_x, shear_y))
    rotated = np.array([[math.cos(turn), -math.sin(turn)], [math.sin(turn), math.cos(turn)]])
    slanted = np.array([[1, 0], [-math.tan(y), 1]]) @ np.array([[1, -math.tan(x)], [0, 1]])
    linear, centre = scale * rotated @ slanted, np.array([size[1], size[0]]) / 2
    return np.column_stack([linear, centre + np.array(shift) - linear @ centre])


def projection(corners: np.ndarray, moved: np.ndarray) -> np.ndarray:
    """Return the projective map, float64 ``(3, 3)``, that sends four points, ``(4, 2)``, to four others."""
    rows = []
    for (x, y), (u, v) in zip(corners, moved, strict=True):
        rows += [[x, y, 1, 0, 0, 0, -u * x, -u * y], [0, 0, 0, x, y, 1, -v * x, -v * y]]
    solved = np.linalg.solve(np.array(rows, np.float64), np.asarray(moved, np.float64).ravel())
    return np.append(solved, 1.0).reshape(3, 3)


def displace(image: np.ndarray, field: np.ndarray, interpolation: Sampling = "bilinear", fill: Fill = 0) -> np.ndarray:
    """Take each pixel from elsewhere.

    Args:
        image: See above.
        field: float32 ``(H, W, 2)``: how far to the right, and down, of each pixel its value comes from, in pixels.
        interpolation: ``"nearest"`` or ``"bilinear"``.
        fill: As for :func:`warp`.
    """
    height, width = field.shape[:2]
    x, y = field[..., 0] + (np.arange(width, dtype=np.float32) + 0.5), field[..., 1] + (np.arange(height, dtype=np.float32) + 0.5)[:, None]
    return sampling.remap(image, x, y, "nearest" if interpolation in NEAREST else "bilinear", fill)


def displace_points(points: np.ndarray, field: np.ndarray) -> np.ndarray:
    """Return where :func:`displace` sends points, float32 ``(N, 2)``: to a hundredth of a pixel where the field is smooth."""
    place = points
    for _ in range(_ROUNDS):  # what is at a place comes from there plus the field: solved by putting in
        x, y = (np.ascontiguousarray(part, np.float32)[None] for part in place.T)
        height, width = field.shape[:2]
        inside = np.clip(x, 0.5, width - 0.5), np.clip(y, 0.5, height - 0.5)
        place = points - sampling.remap(field, *inside)[0]
    moved: np.ndarray = place.astype(np.float32)
    return moved


_ROUNDS = 8


@computed_in_float32
def _by_spline(image: np.ndarray, inverse: np.ndarray, shape: Size, order: int) -> np.ndarray:
    return ops.saturated(spline.warp(image, inverse, shape, order), image.dtype)

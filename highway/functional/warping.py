"""Warp images by affine and projective matrices, and by displacement fields.

``(H, W, C)`` or ``(H, W)``, uint8 or floats; see :mod:`highway.functional`. With ``"nearest"``, any dtype is allowed.
"""

from __future__ import annotations

import math
from typing import Literal

import numpy as np

from highway.images import ops, sampling, spline
from highway.images.ops import Size, computed_in_float32
from highway.images.sampling import Fill, Linear
from highway.images.scratch import scratch

Sampling = Literal["nearest", "bilinear", 0, 1, 2, 3, 4, 5]
__all__ = ["Fill", "Linear"]
NEAREST = ("nearest", 0)
WarpBorder = Literal["constant", "nearest", "reflect", "mirror", "wrap"]
LINEAR = ("bilinear", 1)


def warp(
    image: np.ndarray, matrix: np.ndarray, shape: Size, interpolation: Sampling = "bilinear", fill: Fill = 0, mode: WarpBorder = "constant"
) -> np.ndarray:
    """Warp the image by a matrix.

    Args:
        image: uint8 or floats. With ``"nearest"`` or order 0, any dtype is allowed.
        matrix: The matrix that maps points (x, y, 1) of the image to points of the result: float64 ``(2, 3)`` (affine) or ``(3, 3)``
            (projective).
        shape: Height and width of the result.
        interpolation: ``"nearest"``, ``"bilinear"``, or the order of a spline, 0 to 5. Splines require an affine matrix.
        fill: Value of new pixels for mode ``"constant"``: a number, or one number per channel. With a spline of order 2 or more, it must be
            0.
        mode: How to compute new pixels; see :func:`highway.functional.shift`. With a spline of order 2 or more, it must be ``"constant"``.

    Raises:
        ValueError: ``fill`` or ``mode`` does not fit the image or the interpolation, or the matrix is not invertible.

    >>> matrix = np.array([[0.5, 0, 0], [0, 1, 0]])
    >>> warp(np.array([[10, 30, 50, 70]], np.uint8), matrix, shape=(1, 2))
    array([[20, 60]], dtype=uint8)
    """
    inverse = inverted(matrix)
    if mode != "constant":
        if interpolation not in (*NEAREST, *LINEAR):
            raise ValueError(f"warp: mode={mode!r} with a spline of order {interpolation}; expected 'nearest' or 'bilinear'")
        places = sampling.places(inverse, shape)
        if mode == "wrap":  # mode "wrap" also interpolates between the last and the first pixel
            image = np.pad(image, [(0, 1), (0, 1), *[(0, 0)] * (image.ndim - 2)], "wrap")
        x, y = (_within(place, length, mode).astype(np.float32) for place, length in zip(places, image.shape[1::-1], strict=True))
        return sampling.remap(image, x, y, "nearest" if interpolation in NEAREST else "bilinear")
    if interpolation in NEAREST:
        return sampling.warp(image, inverse, shape, "nearest", fill)
    if interpolation in LINEAR:
        return sampling.warp(image, inverse, shape, "bilinear", fill)
    if np.any(fill):
        raise ValueError(f"warp: fill={fill!r} with a spline of order {interpolation}, whose new pixels are 0; expected 0, or 'bilinear'")
    if len(matrix) == 3:
        raise ValueError(f"warp: a projective matrix with a spline of order {interpolation}; expected 'nearest' or 'bilinear'")
    return _by_spline(image, inverse, shape, int(interpolation))


def _within(place: np.ndarray, length: int, mode: WarpBorder) -> np.ndarray:
    """Map coordinates along an axis into the image, by the border mode. Coordinate 0 is the centre of the first pixel."""
    if mode == "reflect":
        part = np.mod(place + 0.5, 2 * length)
        place = np.minimum(part, 2 * length - part) - 0.5
    elif mode == "mirror" and length > 1:
        part = np.mod(place, 2 * length - 2)
        place = np.minimum(part, 2 * length - 2 - part)
    elif mode == "wrap":
        place = np.mod(place, length - 1)  # the last pixel repeats the first
    return place.clip(0, length - 1)


def inverted(matrix: np.ndarray) -> np.ndarray:
    """Return the inverse of a matrix, with the same shape. Raises ValueError if the matrix is not invertible.

    Args:
        matrix: float64 ``(2, 3)`` (affine) or ``(3, 3)`` (projective).

    >>> move_points(np.float32([[3, 1]]), inverted(affine((3, 5), shift=(2, 0))))
    array([[1., 1.]], dtype=float32)
    """
    if len(matrix) == 3:
        try:
            back: np.ndarray = np.linalg.inv(matrix)
        except np.linalg.LinAlgError:
            raise ValueError(f"the map {matrix.tolist()} has no inverse") from None
        return back
    (a, b, c), (d, e, f) = matrix.tolist()
    area = a * e - b * d
    if area == 0:
        raise ValueError(f"the map {matrix.tolist()} maps all points to one line, so it has no inverse")
    return np.array([[e / area, -b / area, (b * f - c * e) / area], [-d / area, a / area, (c * d - a * f) / area]])


def move_points(points: np.ndarray, matrix: np.ndarray) -> np.ndarray:
    """Apply a matrix to points. Return the moved points, float32 ``(N, 2)``.

    Args:
        points: float32 ``(N, 2)``: x and y in pixels.
        matrix: float64 ``(2, 3)`` (affine) or ``(3, 3)`` (projective).

    >>> move_points(np.float32([[1, 1]]), affine((3, 5), shift=(2, 0)))
    array([[3., 1.]], dtype=float32)
    """
    moved: np.ndarray = points @ matrix[:, :2].T + matrix[:, 2]
    if len(matrix) == 3:
        moved = moved[:, :2] / moved[:, 2:]
    return moved.astype(np.float32)


def affine(
    size: Size, angle: float = 0.0, scale: float = 1.0, shear_x: float = 0.0, shear_y: float = 0.0, shift: tuple[float, float] = (0.0, 0.0)
) -> np.ndarray:
    """Return an affine matrix that rotates, scales and shears around the centre of an image: float64 ``(2, 3)``, applied to (x, y, 1).

    Args:
        size: Height and width of the image.
        angle: Rotation in degrees, counterclockwise.
        scale: Scale factor.
        shear_x: Shear along x in degrees. It is applied first.
        shear_y: Shear along y in degrees. It is applied after ``shear_x`` and before the rotation.
        shift: Shift to the right and down in pixels. It is applied last.

    >>> move_points(np.float32([[1, 1]]), affine((3, 5), shift=(2, 0)))
    array([[3., 1.]], dtype=float32)
    """
    turn, x, y = math.radians(-angle), -math.tan(math.radians(shear_x)), -math.tan(math.radians(shear_y))
    cosine, sine, both = scale * math.cos(turn), scale * math.sin(turn), 1 + x * y
    return about_centre(size, ((cosine - sine * y, cosine * x - sine * both), (sine + cosine * y, sine * x + cosine * both)), shift)


def about_centre(
    size: Size, linear: tuple[tuple[float, float], tuple[float, float]], shift: tuple[float, float] = (0.0, 0.0), onto: Size | None = None
) -> np.ndarray:
    """Return the affine matrix of a linear map around the centre of the image.

    The centre moves to the centre of the result, which has the size ``onto``, and then by ``shift``.
    """
    (a, b), (c, d) = linear
    x, y = size[1] / 2, size[0] / 2
    right, down = (x, y) if onto is None else (onto[1] / 2, onto[0] / 2)
    return np.array([[a, b, right + shift[0] - a * x - b * y], [c, d, down + shift[1] - c * x - d * y]])


def projection(corners: np.ndarray, moved: np.ndarray) -> np.ndarray:
    """Return the projective matrix, float64 ``(3, 3)``, that moves four points to four new positions.

    Args:
        corners: ``(4, 2)``: x and y of the four points, in order around the quadrilateral.
        moved: ``(4, 2)``: x and y of the new positions.

    Raises:
        ValueError: three of ``corners``, or the last three of ``moved``, are on a line.

    >>> corners = np.array([[0, 0], [4, 0], [4, 4], [0, 4]])
    >>> projection(corners, corners + 1).round(3).tolist()
    [[1.0, 0.0, 1.0], [0.0, 1.0, 1.0], [0.0, 0.0, 1.0]]
    """
    whole = _from_square(moved) @ np.linalg.inv(_from_square(corners))
    whole /= whole[2, 2]
    return whole


def _from_square(corners: np.ndarray) -> np.ndarray:
    """Return the matrix that maps the corners of the unit square to four points (Heckbert 1989, "Fundamentals of texture mapping")."""
    (x, y), (x1, y1), (x2, y2), (x3, y3) = corners.tolist()
    right, down, along, up = x1 - x2, y1 - y2, x3 - x2, y3 - y2
    wide, high = x - x1 + x2 - x3, y - y1 + y2 - y3
    area = right * up - along * down
    if area == 0:
        raise ValueError(
            f"three of the points {corners.tolist()} lie on a line, so no projective map exists from the corners of a square to these "
            "points"
        )
    g, h = (wide * up - along * high) / area, (right * high - wide * down) / area
    return np.array([[x1 - x + g * x1, x3 - x + h * x3, x], [y1 - y + g * y1, y3 - y + h * y3, y], [g, h, 1.0]])


def displace(image: np.ndarray, field: np.ndarray, interpolation: Sampling = "bilinear", fill: Fill = 0) -> np.ndarray:
    """Move each pixel by its own displacement.

    Args:
        image: uint8 or floats. With ``"nearest"``, any dtype is allowed.
        field: The displacements, float32 ``(H, W, 2)``: for each output pixel, the offset (right, down) of its source in pixels.
        interpolation: ``"nearest"`` or ``"bilinear"``.
        fill: Value of new pixels: a number, or one number per channel.

    Raises:
        ValueError: ``fill`` does not fit the number of channels or the dtype of the image.

    >>> field = np.zeros((1, 4, 2), np.float32)
    >>> field[:, :, 0] = 1
    >>> displace(np.array([[10, 20, 30, 40]], np.uint8), field)
    array([[20, 30, 40,  0]], dtype=uint8)
    """
    height, width = field.shape[:2]
    x, y = scratch("places", (2, height, width), np.float32)
    np.add(field[..., 0], np.arange(width, dtype=np.float32), out=x)
    np.add(field[..., 1], np.arange(height, dtype=np.float32)[:, None], out=y)
    return sampling.remap(image, x, y, "nearest" if interpolation in NEAREST else "bilinear", fill)


def displace_points(points: np.ndarray, field: np.ndarray) -> np.ndarray:
    """Return the positions of points after :func:`displace`, float32 ``(N, 2)``. If the field is smooth, they are exact to 0.01 pixels.

    Args:
        points: float32 ``(N, 2)``: x and y in pixels.
        field: float32 ``(H, W, 2)``; see :func:`displace`.

    >>> field = np.full((4, 4, 2), 1, np.float32)
    >>> displace_points(np.float32([[2, 3]]), field)
    array([[1., 2.]], dtype=float32)
    """
    planes = [np.ascontiguousarray(field[..., axis]) for axis in (0, 1)]
    place, count = points, len(points)
    columns = max(1, min(count, 1024))  # OpenCV accepts at most 32,766 columns
    for _ in range(_ROUNDS if count else 0):  # fixed-point iteration: target = source - field(target)
        inside = np.clip(place - 0.5, 0, np.array(field.shape[1::-1]) - 1).astype(np.float32)
        x, y = (np.resize(part, (-(-count // columns), columns)) for part in inside.T)
        place = points - np.stack([sampling.remap(plane, x, y).reshape(-1)[:count] for plane in planes], axis=1)
    moved: np.ndarray = place.astype(np.float32)
    return moved


_ROUNDS = 8


@computed_in_float32
def _by_spline(image: np.ndarray, inverse: np.ndarray, shape: Size, order: int) -> np.ndarray:
    return ops.saturated(spline.warp(image, inverse, shape, order), image.dtype)

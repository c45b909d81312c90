"""Sample an image by B-splines of order 2 to 5, as ``scipy.ndimage`` does.

First, a filter converts the pixels to the coefficients of the splines (Unser, Aldroubi & Eden, "B-spline signal processing", 1993). This
filter is the inverse of the B-spline sampled at whole numbers. Each sample is a weighted sum of (order + 1)^2 coefficients. The image is
mirrored at the centres of its outermost pixels. Only elementwise operations of numpy are used, so the results are exactly the same on every
machine. scipy is not used, because it is a large package.
"""

from __future__ import annotations

import math
from functools import cache

import numpy as np

_AT_WHOLE_NUMBERS = {  # for each order, the values of the B-spline at 0, +-1, +-2
    2: (6 / 8, 1 / 8),
    3: (4 / 6, 1 / 6),
    4: (230 / 384, 76 / 384, 1 / 384),
    5: (66 / 120, 26 / 120, 1 / 120),
}
_SLOWEST_POLE = {2: 0.172, 3: 0.268, 4: 0.361, 5: 0.431}  # for each order, the decay of the inverse filter
_RING = 128  # number of computed points of the inverse filter, which is more than the number of its nonzero values


def warp(image: np.ndarray, inverse: np.ndarray, shape: tuple[int, int], order: int) -> np.ndarray:
    """Warp an image by an inverse affine map, without antialiasing. Pixels outside the image are 0.

    Args:
        image: uint8 or float32, ``(H, W)`` or ``(H, W, C)``.
        inverse: The matrix that maps output points to input points, float64 ``(2, 3)``; see :func:`highway.images.sampling.warp`.
        shape: Height and width of the result.
        order: Order of the spline, 2 to 5.

    Returns:
        A float32 array, not rounded and not clipped.
    """
    height, width = image.shape[:2]
    x, y = np.arange(shape[1]) + 0.5, np.arange(shape[0])[:, None] + 0.5
    column, row = (a * x + b * y + c for a, b, c in inverse)
    inside = (row >= 0) & (row <= height) & (column >= 0) & (column <= width)
    (top, down), (left, right) = _taps(row[inside], order), _taps(column[inside], order)

    margin, coefficients = order // 2 + 2, image.reshape(*image.shape[:2], -1).astype(np.float32)
    for axis in (0, 1):
        coefficients = _filtered(coefficients, _inverse(order), axis)
    padded = np.pad(coefficients, ((margin, margin), (margin, margin), (0, 0)), mode="reflect")
    flat, stride = padded.reshape(-1, padded.shape[2]), padded.shape[1]
    first = (top + margin) * stride + left + margin
    total = np.zeros((len(first), flat.shape[1]), np.float32)
    for step_down, weight_down in enumerate(down):
        line = np.zeros_like(total)
        for step_right, weight_right in enumerate(right):
            line += flat.take(first + (step_down * stride + step_right), axis=0) * weight_right[:, None]
        total += line * weight_down[:, None]
    result = np.zeros((*shape, flat.shape[1]), np.float32)
    result[inside] = total
    return result.reshape(*shape, *image.shape[2:])


def _taps(place: np.ndarray, order: int) -> tuple[np.ndarray, list[np.ndarray]]:
    """Return, for each coordinate (in pixels from the border), the index of its first coefficient, and its ``order + 1`` weights.

    The weights are the values of the B-splines that are not 0 at the coordinate. They are computed by the recursion of de Boor and Cox. The
    distance between knots is one pixel.
    """
    # Knots of odd orders are at the centres of pixels, and knots of even orders are half-way between the centres.
    place = place - 0.5 if order % 2 else place
    whole = np.floor(place)
    behind = (place - whole).astype(np.float32)
    weights = [np.ones_like(behind)]
    for degree in range(1, order + 1):
        raised, rest = [], np.zeros_like(behind)
        for position, weight in enumerate(weights):
            part = weight / np.float32(degree)
            raised.append(rest + (position + 1 - behind) * part)
            rest = (behind + (degree - 1 - position)) * part
        weights = [*raised, rest]
    return whole.astype(np.intp) - order // 2, weights


def _filtered(values: np.ndarray, taps: tuple[float, ...], axis: int) -> np.ndarray:
    """Convolve along an axis with a symmetric filter. ``taps`` are its values from the middle outwards. The border is mirrored."""
    reach, length = len(taps) - 1, values.shape[axis]
    sides = [(reach, reach) if one == axis else (0, 0) for one in range(values.ndim)]
    padded = np.moveaxis(np.pad(values, sides, mode="reflect"), axis, 0)
    total = padded[reach : reach + length] * np.float32(taps[0])
    for away, tap in enumerate(taps[1:], 1):
        both = padded[reach - away : reach - away + length] + padded[reach + away : reach + away + length]
        both *= np.float32(tap)
        total += both
    return np.moveaxis(total, 0, axis)


@cache
def _inverse(order: int) -> tuple[float, ...]:
    """Return the inverse filter of the sampled B-spline, from its middle outwards, as far as its values are above 1e-6."""
    ring = np.zeros(_RING)
    for away, value in enumerate(_AT_WHOLE_NUMBERS[order]):
        ring[away] = ring[-away] = value
    reach = math.ceil(math.log(1e-6) / math.log(_SLOWEST_POLE[order]))
    return tuple(np.fft.ifft(1 / np.fft.fft(ring)).real[: reach + 1].tolist())

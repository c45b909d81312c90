"""Functions that move pixels.

``(H, W, C)`` or ``(H, W)``, uint8 or floats, in RGB: see :mod:`highway.functional`.
"""

from __future__ import annotations

import math
from typing import Literal

import numpy as np

from highway.functional.warping import Sampling, warp
from highway.images import ops
from highway.images.ops import Interpolation, Size
from highway.images.sampling import Fill
from highway.renamed import with_old_names

Padding = Literal["constant", "edge", "linear_ramp", "maximum", "mean", "median", "minimum", "reflect", "symmetric", "wrap"]
Border = Literal["constant", "nearest", "reflect", "mirror", "wrap"]
Point = tuple[float, float]

# numpy's words for scipy.ndimage's; "reflect" is not the same in the two
_PADDINGS: dict[Border, Padding] = {"constant": "constant", "nearest": "edge", "reflect": "symmetric", "mirror": "reflect", "wrap": "wrap"}


def flip_x(image: np.ndarray, out: np.ndarray | None = None) -> np.ndarray:
    """Mirror left and right."""
    return ops.flip(image, 1, out)


def flip_y(image: np.ndarray, out: np.ndarray | None = None) -> np.ndarray:
    """Mirror top and bottom."""
    return ops.flip(image, 0, out)


def pad(image: np.ndarray, size: int | tuple[int, int] | tuple[tuple[int, int], tuple[int, int]], mode: Padding = "constant") -> np.ndarray:
    """Add pixels on each side.

    Args:
        image: Any dtype.
        size: Pixels on every side, or (above and below, left and right), or ((above, below), (left, right)).
        mode: What the new pixels hold, in the words of ``numpy.pad``: ``"constant"`` (0), ``"edge"``, ``"reflect"``, ``"symmetric"``,
            ``"wrap"``, ``"linear_ramp"``, ``"maximum"``, ``"mean"``, ``"median"`` or ``"minimum"``.
    """
    y, x = size if isinstance(size, (tuple, list)) else (size, size)
    sides = [side if isinstance(side, (tuple, list)) else (side, side) for side in (y, x)]
    return np.pad(image, [*sides, *[(0, 0)] * (image.ndim - 2)], mode=mode)


@with_old_names
def crop(image: np.ndarray, corner: tuple[int, int], size: tuple[int, int]) -> np.ndarray:
    """Cut out a box, as a view.

    Args:
        image: Any dtype.
        corner: The box's upper left corner, (row, column).
        size: The box's height and width.

    Raises:
        ValueError: the box is not within the image.
    """
    (top, left), (height, width) = corner, size
    if top < 0 or left < 0 or top + height > image.shape[0] or left + width > image.shape[1]:
        raise ValueError(
            f"crop: rows {top} to {top + height} and columns {left} to {left + width} are not within the image of "
            f"{image.shape[0]}x{image.shape[1]} (height x width); resize or pad it first"
        )
    return image[top : top + height, left : left + width]


def shift(image: np.ndarray, translation: tuple[int, int], mode: Border = "constant") -> np.ndarray:
    """Move the image by ``translation`` (down, right) whole pixels.

    Args:
        image: Any dtype.
        translation: Pixels down and right; negative ones move up and left.
        mode: What the pixels that come in hold, in the words of ``scipy.ndimage``, here for a row a b c d: ``"constant"`` (0),
            ``"nearest"`` (a a | a b c d | d d), ``"reflect"`` (b a | a b c d | d c), ``"mirror"`` (c b | a b c d | c b) or
            ``"wrap"`` (c d | a b c d | a b).
    """
    (down, right), (height, width) = translation, image.shape[:2]
    padded = pad(image, ((max(down, 0), max(-down, 0)), (max(right, 0), max(-right, 0))), _PADDINGS[mode])
    return crop(padded, (max(-down, 0), max(-right, 0)), (height, width))


@with_old_names
def resize(image: np.ndarray, shape: Size, interpolation: Interpolation = "bicubic", out: np.ndarray | None = None) -> np.ndarray:
    """Scale the image to ``shape`` (height, width).

    ``interpolation`` is ``"nearest"``, ``"bilinear"``, ``"bicubic"`` (or ``"cubic"``), ``"lanczos"`` or ``"area"``. With OpenCV only
    ``"area"`` antialiases when the image shrinks; with Pillow all but ``"nearest"`` do.
    """
    return image if image.shape[:2] == tuple(shape) else ops.scale(image, shape, interpolation, out)


@with_old_names
def rotate(image: np.ndarray, angle: float, interpolation: Sampling = "nearest", reshape: bool = False, fill: Fill = 0) -> np.ndarray:
    """Turn the image about its centre.

    Args:
        image: See above.
        angle: Degrees, counterclockwise as seen.
        interpolation: ``"nearest"``, ``"bilinear"``, or the order of a spline, 0 (nearest) to 5; from 2 on smoother and many times slower.
        reshape: Whether the result grows so that it holds the whole turned image; else it has the size of the image.
        fill: What new pixels hold: a number, or one for each channel; 0 with a spline of order 2 or more.
    """
    if angle % 360 == 0:
        return image
    size = image.shape[:2]
    return warp(image, rotation(size, angle, reshape), rotated_size(size, angle, reshape), interpolation, fill)


@with_old_names
def clipped_zoom(image: np.ndarray, zoom_factor: float, interpolation: Sampling = "nearest", place: Point = (0.5, 0.5)) -> np.ndarray:
    """Scale the image and keep its size.

    Args:
        image: See above.
        zoom_factor: Below 1 there is a border of 0 about the smaller image; above 1 a window is cut out of the larger one.
        interpolation: As for :func:`rotate`.
        place: Where the smaller image, or the window, lies from top to bottom and from left to right, each 0 to 1; the centre by default.
    """
    if zoom_factor == 1:
        return image
    return warp(image, zooming(image.shape[:2], zoom_factor, place), image.shape[:2], interpolation)


def rotation(size: tuple[int, int], angle: float, reshape: bool = False) -> np.ndarray:
    """Return where :func:`rotate` sends the points of an image of ``size``: float64 ``(2, 3)``, for x, y and 1."""
    sine, cosine = (round(f(math.radians(angle)), 12) for f in (math.sin, math.cos))
    turn = np.array([[cosine, sine], [-sine, cosine]])
    centre, new_centre = (np.array([width, height]) / 2 for height, width in (size, rotated_size(size, angle, reshape)))
    return np.column_stack([turn, new_centre - turn @ centre])


def rotated_size(size: tuple[int, int], angle: float, reshape: bool) -> tuple[int, int]:
    """Return height and width of the result of :func:`rotate`."""
    if not reshape:
        return size
    sine, cosine = (abs(round(f(math.radians(angle)), 12)) for f in (math.sin, math.cos))
    height, width = size
    return math.ceil(round(height * cosine + width * sine, 6)), math.ceil(round(height * sine + width * cosine, 6))


def zooming(size: Size, factor: float, place: Point = (0.5, 0.5)) -> np.ndarray:
    """Return where :func:`clipped_zoom` sends the points of an image of ``size``: float64 ``(2, 3)``, for x, y and 1."""
    (height, width), (down, right) = size, place
    return np.array([[factor, 0, (1 - factor) * width * right], [0, factor, (1 - factor) * height * down]])


def transpose(image: np.ndarray) -> np.ndarray:
    """Swap rows and columns, as a view."""
    return image.swapaxes(0, 1)


def rotate90(image: np.ndarray, turns: int) -> np.ndarray:
    """Turn the image by quarters of a circle, counterclockwise as seen.

    Args:
        image: Any dtype.
        turns: How many; negative ones are clockwise.
    """
    cv2 = ops.cv2_or_none()
    turns %= 4
    if turns == 0:
        return image
    if cv2 and ops.native(image) and (image.ndim == 2 or image.shape[2] <= 4):
        how = (cv2.ROTATE_90_COUNTERCLOCKWISE, cv2.ROTATE_180, cv2.ROTATE_90_CLOCKWISE)[turns - 1]
        turned: np.ndarray = cv2.rotate(np.ascontiguousarray(image), how)
        return turned.reshape(*turned.shape[:2], *image.shape[2:])
    return np.rot90(image, turns)


def paste(image: np.ndarray, shape: Size, corner: tuple[int, int], fill: Fill = 0) -> np.ndarray:
    """Lay the image on a larger one of one colour.

    Args:
        image: Any dtype.
        shape: Height and width of the larger one. What does not fit is cut off.
        corner: Where its upper left corner comes, (row, column).
        fill: The colour: a number, or one for each channel.
    """
    (top, left), (height, width) = corner, image.shape[:2]
    below, right, cv2 = shape[0] - top - height, shape[1] - left - width, ops.cv2_or_none()
    fits = min(top, left, below, right) >= 0 < image.size
    if cv2 and fits and fill == 0 and ops.native(image) and (image.ndim == 2 or image.shape[2] <= 4):
        bordered: np.ndarray = cv2.copyMakeBorder(image, top, below, left, right, cv2.BORDER_CONSTANT, value=0)
        return bordered.reshape(*shape, *image.shape[2:])
    result = np.empty((*shape, *image.shape[2:]), image.dtype)
    first, last = (max(top, 0), max(left, 0)), (min(top + height, shape[0]), min(left + width, shape[1]))
    result[: first[0]] = result[last[0] :] = fill
    result[first[0] : last[0], : first[1]] = result[first[0] : last[0], last[1] :] = fill
    result[first[0] : last[0], first[1] : last[1]] = image[first[0] - top : last[0] - top, first[1] - left : last[1] - left]
    return result

"""Move the pixels of an image: flip, pad, crop, resize and rotate.

``(H, W, C)`` or ``(H, W)``, uint8 or floats, in RGB; see :mod:`highway.functional`.
"""

from __future__ import annotations

import math
from typing import Literal

import numpy as np

from highway.functional.warping import Sampling, about_centre, warp
from highway.images import ops
from highway.images.ops import Interpolation, Size
from highway.images.sampling import Fill, fitting
from highway.renamed import with_old_names

Padding = Literal["constant", "edge", "linear_ramp", "maximum", "mean", "median", "minimum", "reflect", "symmetric", "wrap"]
Border = Literal["constant", "nearest", "reflect", "mirror", "wrap"]
Point = tuple[float, float]

# from modes of scipy.ndimage to modes of numpy; the two packages use "reflect" for different modes
_PADDINGS: dict[Border, Padding] = {"constant": "constant", "nearest": "edge", "reflect": "symmetric", "mirror": "reflect", "wrap": "wrap"}

# the modes that OpenCV also supports; OpenCV is several times as fast
_BORDERS = {"edge": "BORDER_REPLICATE", "reflect": "BORDER_REFLECT_101", "symmetric": "BORDER_REFLECT", "wrap": "BORDER_WRAP"}


def flip_x(image: np.ndarray, out: np.ndarray | None = None) -> np.ndarray:
    """Flip the image horizontally.

    Args:
        image: Any dtype.
        out: Array for the result, if shape and dtype fit.

    >>> flip_x(np.array([[1, 2, 3]], np.uint8))
    array([[3, 2, 1]], dtype=uint8)
    """
    return ops.flip(image, 1, out)


def flip_y(image: np.ndarray, out: np.ndarray | None = None) -> np.ndarray:
    """Flip the image vertically.

    Args:
        image: Any dtype.
        out: Array for the result, if shape and dtype fit.

    >>> flip_y(np.array([[1], [2]], np.uint8)).tolist()
    [[2], [1]]
    """
    return ops.flip(image, 0, out)


def pad(image: np.ndarray, size: int | tuple[int, int] | tuple[tuple[int, int], tuple[int, int]], mode: Padding = "constant") -> np.ndarray:
    """Add pixels on each side of the image.

    Args:
        image: Any dtype.
        size: Number of new pixels: one number for every side, (above and below, left and right), or ((above, below), (left, right)).
        mode: Values of the new pixels, as in ``numpy.pad``: ``"constant"`` (0), ``"edge"``, ``"reflect"``, ``"symmetric"``,
            ``"wrap"``, ``"linear_ramp"``, ``"maximum"``, ``"mean"``, ``"median"`` or ``"minimum"``.

    >>> pad(np.array([[1, 2]], np.uint8), ((0, 1), (2, 0)), "edge")
    array([[1, 1, 1, 2],
           [1, 1, 1, 2]], dtype=uint8)
    """
    y, x = size if isinstance(size, (tuple, list)) else (size, size)
    sides = [side if isinstance(side, (tuple, list)) else (side, side) for side in (y, x)]
    if mode in _BORDERS and (cv2 := ops.cv2_or_none()) and ops.movable(image):
        (above, below), (left, right) = sides
        if max(above, below) < image.shape[0] and max(left, right) < image.shape[1]:
            bordered: np.ndarray = cv2.copyMakeBorder(image, above, below, left, right, getattr(cv2, _BORDERS[mode]))
            return bordered if bordered.ndim == image.ndim else bordered[..., None]
    return np.pad(image, [*sides, *[(0, 0)] * (image.ndim - 2)], mode=mode)


@with_old_names
def crop(image: np.ndarray, corner: tuple[int, int], size: tuple[int, int]) -> np.ndarray:
    """Crop a box. The result is a view of the image.

    Args:
        image: Any dtype.
        corner: Upper left corner of the box, (row, column).
        size: Height and width of the box.

    Raises:
        ValueError: the box is not completely inside the image.

    >>> image = np.arange(16, dtype=np.uint8).reshape(4, 4)
    >>> crop(image, corner=(1, 2), size=(2, 2))
    array([[ 6,  7],
           [10, 11]], dtype=uint8)
    """
    (top, left), (height, width) = corner, size
    if top < 0 or left < 0 or top + height > image.shape[0] or left + width > image.shape[1]:
        raise ValueError(
            f"crop: rows {top} to {top + height} and columns {left} to {left + width} are not within the image of "
            f"{image.shape[0]}x{image.shape[1]} (height x width); resize or pad it first"
        )
    return image[top : top + height, left : left + width]


def shift(image: np.ndarray, translation: tuple[int, int], mode: Border = "constant") -> np.ndarray:
    """Move the image by whole numbers of pixels.

    Args:
        image: Any dtype.
        translation: Number of pixels to move down and right. Negative numbers move the image up and left.
        mode: Values of the new pixels, as in ``scipy.ndimage``. For a row a b c d: ``"constant"`` (0),
            ``"nearest"`` (a a | a b c d | d d), ``"reflect"`` (b a | a b c d | d c), ``"mirror"`` (c b | a b c d | c b) or
            ``"wrap"`` (c d | a b c d | a b).

    >>> shift(np.array([[1, 2, 3, 4]], np.uint8), (0, 1), "nearest")
    array([[1, 1, 2, 3]], dtype=uint8)
    """
    (down, right), (height, width) = translation, image.shape[:2]
    if mode == "constant":
        return paste(image, (height, width), translation)
    padded = pad(image, ((max(down, 0), max(-down, 0)), (max(right, 0), max(-right, 0))), _PADDINGS[mode])
    return crop(padded, (max(-down, 0), max(-right, 0)), (height, width))


@with_old_names
def resize(image: np.ndarray, shape: Size, interpolation: Interpolation = "bicubic", out: np.ndarray | None = None) -> np.ndarray:
    """Resize the image to ``shape`` (height, width).

    With OpenCV, only ``"area"`` averages pixels (antialiasing) when the image becomes smaller. Without OpenCV, highway uses Pillow. There,
    every method except ``"nearest"`` averages pixels.

    Args:
        image: uint8 or floats.
        shape: Height and width of the result in pixels.
        interpolation: ``"nearest"``, ``"bilinear"``, ``"bicubic"`` (or ``"cubic"``), ``"lanczos"`` or ``"area"``.
        out: Array for the result, if shape and dtype fit.

    >>> resize(np.zeros((300, 400, 3), np.uint8), (224, 224), "area").shape
    (224, 224, 3)
    """
    return image if image.shape[:2] == tuple(shape) else ops.scale(image, shape, interpolation, out)


@with_old_names
def rotate(image: np.ndarray, angle: float, interpolation: Sampling = "nearest", reshape: bool = False, fill: Fill = 0) -> np.ndarray:
    """Rotate the image around its centre.

    Args:
        image: uint8 or floats. With ``"nearest"`` or order 0, any dtype is allowed.
        angle: Angle in degrees, counterclockwise.
        interpolation: ``"nearest"``, ``"bilinear"``, or the order of a spline. Order 0 means nearest, and order 1 means bilinear. Orders 2
            to 5 are smoother, but many times slower.
        reshape: Whether the result is larger, so that it contains the whole rotated image. With ``False``, the result has the size of the
            image.
        fill: Value of new pixels: a number, or one number per channel. With a spline of order 2 or more, it must be 0.

    Raises:
        ValueError: ``fill`` does not fit the image or the interpolation.

    >>> image = np.arange(9, dtype=np.uint8).reshape(3, 3)
    >>> rotate(image, 90)
    array([[2, 5, 8],
           [1, 4, 7],
           [0, 3, 6]], dtype=uint8)
    """
    if angle % 360 == 0:
        return image
    size = image.shape[:2]
    return warp(image, rotation(size, angle, reshape), rotated_size(size, angle, reshape), interpolation, fill)


@with_old_names
def clipped_zoom(image: np.ndarray, zoom_factor: float, interpolation: Sampling = "nearest", place: Point = (0.5, 0.5)) -> np.ndarray:
    """Zoom the image. The result has the size of the image.

    Args:
        image: uint8 or floats. With ``"nearest"`` or order 0, any dtype is allowed.
        zoom_factor: The factor. With a factor below 1, the image becomes smaller and gets a border of 0. With a factor above 1, a window of
            the image is enlarged.
        interpolation: See :func:`rotate`.
        place: Vertical and horizontal position of the smaller image, or of the window, from 0 to 1. The default is the centre.

    >>> clipped_zoom(np.full((4, 4), 9, np.uint8), 0.5)
    array([[0, 0, 0, 0],
           [0, 9, 9, 0],
           [0, 9, 9, 0],
           [0, 0, 0, 0]], dtype=uint8)
    """
    if zoom_factor == 1:
        return image
    return warp(image, zooming(image.shape[:2], zoom_factor, place), image.shape[:2], interpolation)


def rotation(size: tuple[int, int], angle: float, reshape: bool = False) -> np.ndarray:
    """Return the affine matrix of :func:`rotate` for an image of ``size``: float64 ``(2, 3)``, applied to (x, y, 1).

    Args:
        size: Height and width of the image.
        angle: Angle in degrees, counterclockwise.
        reshape: See :func:`rotate`.

    >>> move_points(np.float32([[4, 0]]), rotation((4, 4), 90)).round(3).tolist()
    [[0.0, 0.0]]
    """
    sine, cosine = (round(f(math.radians(angle)), 12) for f in (math.sin, math.cos))
    return about_centre(size, ((cosine, sine), (-sine, cosine)), onto=rotated_size(size, angle, reshape))


def rotated_size(size: tuple[int, int], angle: float, reshape: bool) -> tuple[int, int]:
    """Return the height and width of the result of :func:`rotate`.

    Args:
        size: Height and width of the image.
        angle: Angle in degrees, counterclockwise.
        reshape: See :func:`rotate`.

    >>> rotated_size((300, 400), 90, reshape=True), rotated_size((300, 400), 90, reshape=False)
    ((400, 300), (300, 400))
    """
    if not reshape:
        return size
    sine, cosine = (abs(round(f(math.radians(angle)), 12)) for f in (math.sin, math.cos))
    height, width = size
    return math.ceil(round(height * cosine + width * sine, 6)), math.ceil(round(height * sine + width * cosine, 6))


def zooming(size: Size, factor: float, place: Point = (0.5, 0.5)) -> np.ndarray:
    """Return the affine matrix of :func:`clipped_zoom` for an image of ``size``: float64 ``(2, 3)``, applied to (x, y, 1).

    Args:
        size: Height and width of the image.
        factor: ``zoom_factor`` of :func:`clipped_zoom`.
        place: ``place`` of :func:`clipped_zoom`.

    >>> zooming((4, 4), 0.5).tolist()
    [[0.5, 0.0, 1.0], [0.0, 0.5, 1.0]]
    """
    (height, width), (down, right) = size, place
    return np.array([[factor, 0, (1 - factor) * width * right], [0, factor, (1 - factor) * height * down]])


def transpose(image: np.ndarray) -> np.ndarray:
    """Swap rows and columns. The result is a view of the image.

    Args:
        image: Any dtype.

    >>> transpose(np.array([[1, 2, 3]], np.uint8)).tolist()
    [[1], [2], [3]]
    """
    return image.swapaxes(0, 1)


def rotate90(image: np.ndarray, turns: int) -> np.ndarray:
    """Rotate the image by a multiple of 90 degrees.

    Args:
        image: Any dtype.
        turns: Number of rotations by 90 degrees counterclockwise. Negative numbers rotate clockwise.

    >>> rotate90(np.array([[1, 2, 3], [4, 5, 6]], np.uint8), 1)
    array([[3, 6],
           [2, 5],
           [1, 4]], dtype=uint8)
    """
    cv2 = ops.cv2_or_none()
    turns %= 4
    if turns == 0:
        return image
    if cv2 and ops.movable(image):
        how = (cv2.ROTATE_90_COUNTERCLOCKWISE, cv2.ROTATE_180, cv2.ROTATE_90_CLOCKWISE)[turns - 1]
        turned: np.ndarray = cv2.rotate(np.ascontiguousarray(image), how)
        return turned.reshape(*turned.shape[:2], *image.shape[2:])
    return np.rot90(image, turns)


def paste(image: np.ndarray, shape: Size, corner: tuple[int, int], fill: Fill = 0) -> np.ndarray:
    """Paste the image onto a canvas that has one colour.

    Args:
        image: Any dtype.
        shape: Height and width of the canvas. Pixels outside the canvas are cut off.
        corner: Position of the upper left corner of the image on the canvas, (row, column).
        fill: Colour of the canvas: a number, or one number per channel.

    Raises:
        ValueError: ``fill`` does not fit the number of channels or the dtype of the image.

    >>> paste(np.zeros((1, 2), np.uint8), (3, 4), (1, 1), fill=7)
    array([[7, 7, 7, 7],
           [7, 0, 0, 7],
           [7, 7, 7, 7]], dtype=uint8)
    """
    (top, left), (height, width), (rows, columns) = corner, shape, image.shape[:2]
    if top < 0 or left < 0 or top + rows > height or left + columns > width:  # max() would take several times as long
        up, down = -top if top < 0 else 0, height - top if height > top else 0
        image = image[up:down, -left if left < 0 else 0 : width - left if width > left else 0]
        top, left = top if top > 0 else 0, left if left > 0 else 0
        rows, columns = image.shape[:2]
    bottom, right = top + rows, left + columns
    if fill == 0 and image.size and (cv2 := ops.cv2_or_none()) and ops.movable(image):
        # The new pixels are 0.
        bordered: np.ndarray = cv2.copyMakeBorder(image, top, height - bottom, left, width - right, cv2.BORDER_CONSTANT)
        return bordered if bordered.ndim == image.ndim else bordered[..., None]
    fill = fitting(fill, image, "paste")
    result = np.empty((*shape, *image.shape[2:]), image.dtype)
    result[:top] = result[bottom:] = fill
    result[top:bottom, :left] = result[top:bottom, right:] = fill
    result[top:bottom, left:right] = image
    return result

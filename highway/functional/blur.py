"""Blur and sharpen images. Pixels beyond the border are mirrored pixels of the image, unless documented otherwise.

``(H, W, C)`` or ``(H, W)``, uint8 or floats; see :mod:`highway.functional`.
"""

from __future__ import annotations

import math
from typing import Literal

import numpy as np
from PIL import Image, ImageFilter

from highway.images import ops
from highway.images.ops import computed_in_float32, cv2_or_none


@computed_in_float32
def gaussian_blur(image: np.ndarray, sigma: float, size: int | None = None) -> np.ndarray:
    """Blur the image by a Gaussian.

    Args:
        image: Any number of channels.
        sigma: Standard deviation in pixels, above 0.
        size: Width of the kernel in pixels, an odd number. By default, the kernel extends three standard deviations to each side.

    For uint8 images, the weights of the kernel are multiples of 1/256, as in OpenCV's ``GaussianBlur``. At most 0.01% of the values differ
    from the result of OpenCV. The difference is at most 1.

    Raises:
        ValueError: ``sigma`` is not above 0, or ``size`` is an even number.

    >>> image = np.array([[0, 0, 0], [0, 160, 0], [0, 0, 0]], np.uint8)
    >>> gaussian_blur(image, sigma=0.5, size=3)
    array([[  7,  27,   7],
           [ 27, 100,  27],
           [  7,  27,   7]], dtype=uint8)
    """
    width = size or 2 * math.ceil(3 * sigma) + 1
    if sigma <= 0 or width % 2 == 0:
        raise ValueError(f"gaussian_blur: sigma={sigma}, size={size}; expected a deviation above 0, and an odd width")
    kernel = _gaussian(sigma, width, 256 if image.dtype == np.uint8 else None)
    if len(kernel) == 1:
        return image
    if cv2 := cv2_or_none():
        return ops.by_channels(image, lambda part: cv2.sepFilter2D(part, -1, kernel, kernel, borderType=cv2.BORDER_REFLECT_101))
    return _convolved(image, np.outer(kernel, kernel))


def _gaussian(sigma: float, width: int, steps: int | None) -> np.ndarray:
    """Return the weights of a Gaussian, as float32. Their sum is 1, and there are no zeros at the ends.

    With ``steps``, the weights are multiples of 1/``steps``, as in OpenCV for uint8. Each rounding error is added to the next weight, so
    that the sum stays 1.
    """
    half = [math.exp(-distance * distance / 2) for distance in (pixels / sigma for pixels in range(width // 2, 0, -1))]
    whole = 2 * sum(half) + 1
    if steps is None:
        return np.array([*half, 1.0, *half[::-1]], np.float32) / np.float32(whole)
    rounded: list[int] = []
    lost = 0.0
    for weight in half:
        exact = weight * steps / whole + lost
        nearest = round(exact)
        lost = exact - nearest
        if rounded or nearest:
            rounded.append(nearest)
    return np.array([*rounded, steps - 2 * sum(rounded), *rounded[::-1]], np.float32) / np.float32(steps)


@computed_in_float32
def median_blur(image: np.ndarray, size: int = 3) -> np.ndarray:
    """Replace each value by the median of its neighbourhood in the same channel.

    Args:
        image: Any number of channels. With ``size`` above 5, float images are many times slower than uint8 images.
        size: Width of the square neighbourhood in pixels, an odd number. Pixels beyond the border repeat the outermost pixels of the image.

    Raises:
        ValueError: ``size`` is not a positive odd number.

    >>> image = np.array([[10, 10, 10], [10, 255, 10], [10, 10, 10]], np.uint8)
    >>> median_blur(image, 3)[1]
    array([10, 10, 10], dtype=uint8)
    """
    if size < 1 or size % 2 == 0:
        raise ValueError(f"median_blur: size={size}; expected a positive odd number")
    if (cv2 := cv2_or_none()) and (image.dtype == np.uint8 or size <= 5):
        most = 4 if image.ndim == 3 and image.shape[2] in (3, 4) else 1
        return ops.by_channels(image, lambda part: cv2.medianBlur(part, size), most)
    if image.dtype == np.uint8:
        median = ImageFilter.MedianFilter(size)
        return ops.by_channels(image, lambda part: np.asarray(Image.fromarray(part).filter(median)), most=1)
    windows = np.lib.stride_tricks.sliding_window_view(_padded(image, (size // 2, size // 2), "edge"), (size, size), (0, 1))
    middle: np.ndarray = np.median(windows, axis=(-2, -1))
    return middle.astype(np.float32)


@computed_in_float32
def motion_blur(image: np.ndarray, size: int, angle: float) -> np.ndarray:
    """Blur the image along a line.

    Args:
        image: Any number of channels.
        size: Length of the line in pixels, an odd number.
        angle: Direction of the line in degrees, counterclockwise from the right.

    >>> motion_blur(np.array([[0, 0, 90, 0, 0]], np.uint8), 3, 0)
    array([[ 0, 30, 30, 30,  0]], dtype=uint8)
    """
    if size <= 1:
        return image
    right, down, middle = math.cos(math.radians(angle)), -math.sin(math.radians(angle)), size // 2
    places = {(round(middle + place * down), round(middle + place * right)) for place in range(-middle, middle + 1)}
    # For a horizontal line, this takes half the time.
    if (cv2 := cv2_or_none()) and all(row == middle for row, _ in places):
        return ops.by_channels(image, lambda part: cv2.blur(part, (size, 1)))
    kernel = np.zeros((size, size), np.float32)
    for place in places:
        kernel[place] = 1 / len(places)
    return _convolved(image, kernel)


@computed_in_float32
def sharpness(image: np.ndarray, factor: float) -> np.ndarray:
    """Interpolate between a smoothed image (``factor`` 0) and the original image (``factor`` 1). A factor above 1 sharpens the image.

    The smoothed image is the same as in Pillow's ``ImageEnhance.Sharpness``. Each of its pixels is a weighted mean of a pixel (weight 5/13)
    and its eight neighbours (weight 1/13 each). The outermost pixels do not change.

    Args:
        image: uint8 or floats, any number of channels.
        factor: Weight of the original image, at least 0.

    >>> image = np.array([[0, 0, 0], [0, 90, 0], [0, 0, 0]], np.uint8)
    >>> sharpness(image, 1.5)[1]
    array([  0, 118,   0], dtype=uint8)
    """
    if factor == 1 or min(image.shape[:2]) < 3:
        return image
    own, around = factor + (1 - factor) * 4 / 13, (1 - factor) * 9 / 13
    if cv2 := cv2_or_none():

        def mixed(part: np.ndarray) -> np.ndarray:
            smooth = cv2.blur(part, (3, 3))
            result: np.ndarray = cv2.addWeighted(part, own, smooth, around, 0, smooth)
            return result

        sharp = ops.by_channels(image, mixed)
    else:
        kernel = np.full((3, 3), around / 9, np.float32)
        kernel[1, 1] += own
        sharp = _convolved(image, kernel)
    sharp[:: len(image) - 1] = image[:: len(image) - 1]  # the first and the last row
    sharp[:, 0], sharp[:, -1] = image[:, 0], image[:, -1]
    return sharp


def _convolved(image: np.ndarray, kernel: np.ndarray) -> np.ndarray:
    if cv2 := cv2_or_none():
        return ops.by_channels(image, lambda part: cv2.filter2D(part, -1, kernel, borderType=cv2.BORDER_REFLECT_101))
    rows, columns = (length // 2 for length in kernel.shape)
    padded = _padded(image.astype(np.float32), (rows, columns), "reflect")
    total = np.zeros(image.shape, np.float32)
    for (row, column), weight in np.ndenumerate(kernel):
        if weight:
            total += np.float32(weight) * padded[row : row + image.shape[0], column : column + image.shape[1]]
    return ops.saturated(total, image.dtype)


def _padded(image: np.ndarray, size: tuple[int, int], mode: Literal["edge", "reflect"]) -> np.ndarray:
    padded: np.ndarray = np.pad(image, [(length, length) for length in size] + [(0, 0)] * (image.ndim - 2), mode=mode)
    return padded

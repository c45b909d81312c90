"""Functions that blur and sharpen: each pixel by its neighbours. Beyond the image are its own pixels, mirrored.

``(H, W, C)`` or ``(H, W)``, uint8 or floats: see :mod:`highway.functional`.
"""

from __future__ import annotations

import math
from functools import cache
from typing import Literal

import numpy as np
from PIL import Image, ImageFilter

from highway.images import ops
from highway.images.ops import computed_in_float32, cv2_or_none


@computed_in_float32
def gaussian_blur(image: np.ndarray, sigma: float, size: int | None = None) -> np.ndarray:
    """Blur by a Gaussian.

    Args:
        image: Any number of channels.
        sigma: Its deviation in pixels, above 0.
        size: Width of the kernel in pixels, odd; by default three deviations to each side.
    """
    width = size or 2 * math.ceil(3 * sigma) + 1
    distance = np.arange(width) - width // 2
    kernel = np.exp(-0.5 * (distance / sigma) ** 2)
    kernel /= kernel.sum()
    if cv2 := cv2_or_none():
        return ops.by_channels(image, lambda part: cv2.GaussianBlur(part, (width, width), sigma, borderType=cv2.BORDER_REFLECT_101))
    return _convolved(image, np.outer(kernel, kernel))


@computed_in_float32
def median_blur(image: np.ndarray, size: int = 3) -> np.ndarray:
    """Replace each value by the median of those around it, in its channel.

    Args:
        image: uint8; float images only with ``size`` 3 or 5.
        size: Width of the square of neighbours in pixels, odd; at the border the outermost pixels are repeated.
    """
    if cv2 := cv2_or_none():
        return ops.by_channels(image, lambda part: cv2.medianBlur(part, size))
    if image.dtype == np.uint8:
        median = ImageFilter.MedianFilter(size)
        return ops.by_channels(image, lambda part: np.asarray(Image.fromarray(part).filter(median)), most=1)
    windows = np.lib.stride_tricks.sliding_window_view(_padded(image, (size // 2, size // 2), "edge"), (size, size), (0, 1))
    middle: np.ndarray = np.median(windows, axis=(-2, -1))
    return middle.astype(np.float32)


@computed_in_float32
def motion_blur(image: np.ndarray, size: int, angle: float) -> np.ndarray:
    """Blur along a line.

    Args:
        image: Any number of channels.
        size: Length of the line in pixels, odd.
        angle: Its direction in degrees, counterclockwise from the right.
    """
    if size <= 1:
        return image
    right, down, middle = math.cos(math.radians(angle)), -math.sin(math.radians(angle)), (size - 1) / 2
    places = {(round(place * down + middle), round(place * right + middle)) for place in _along(size)}
    kernel = np.zeros((size, size))
    for place in places:
        kernel[place] = 1 / len(places)
    return _convolved(image, kernel)


@cache
def _along(size: int) -> list[float]:
    """Return places on a line of ``size`` pixels, four to a pixel, from its middle."""
    places: list[float] = (np.arange(4 * size) / (4 * size - 1) * (size - 1) - (size - 1) / 2).tolist()
    return places


@computed_in_float32
def sharpness(image: np.ndarray, factor: float) -> np.ndarray:
    """Multiply the distance of each pixel from a smoothed image by ``factor``: 0 is smooth, 1 the image, above that it is sharper.

    The smoothed image is that of Pillow's ``ImageEnhance.Sharpness``: a pixel has 5 of 13 parts, its eight neighbours one each. The
    outermost pixels stay as they are.
    """
    if factor == 1 or min(image.shape[:2]) < 3:
        return image
    own, around = factor + (1 - factor) * 4 / 13, (1 - factor) * 9 / 13
    if cv2 := cv2_or_none():

        def mixed(part: np.ndarray) -> np.ndarray:
            result: np.ndarray = cv2.addWeighted(part, own, cv2.blur(part, (3, 3)), around, 0)
            return result

        sharp = ops.by_channels(image, mixed)
    else:
        kernel = np.full((3, 3), around / 9)
        kernel[1, 1] += own
        sharp = _convolved(image, kernel)
    for edge in (0, -1):
        sharp[edge], sharp[:, edge] = image[edge], image[:, edge]
    return sharp


def _convolved(image: np.ndarray, kernel: np.ndarray) -> np.ndarray:
    if cv2 := cv2_or_none():
        return ops.by_channels(image, lambda part: cv2.filter2D(part, -1, kernel.astype(np.float32), borderType=cv2.BORDER_REFLECT_101))
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

"""Functions that change values, and the colours that they are.

``(H, W, C)`` or ``(H, W)``, uint8 or floats, in RGB: see :mod:`highway.functional`.
"""

from __future__ import annotations

import numpy as np

from highway.images import ops
from highway.images.ops import computed_in_float32

LUMA = np.array([0.299, 0.587, 0.114], np.float32)  # ITU-R BT.601


@computed_in_float32
def image_histogram_equalization(image: np.ndarray, number_bins: int = 256) -> np.ndarray:
    """Spread the values over 0 to 255 so that each is about equally frequent; one mapping for all channels, so that grey stays grey.

    The mapping is the cumulated histogram of all channels together: of uint8 exactly, for one channel as OpenCV's ``equalizeHist``; of
    floats over ``number_bins`` between least and greatest, interpolated linearly. An image of one value is returned as it is.
    """
    if image.size == 0 or (low := image.min()) == (high := image.max()):
        return image
    if image.dtype == np.uint8:
        counted = np.bincount(image.ravel(), minlength=256).cumsum()
        first = counted[low]
        return ops.lookup(image, ops.saturated((counted - first) * (255 / (image.size - first)), image.dtype))
    counts, edges = np.histogram(image, number_bins, (low, high))
    spread: np.ndarray = np.interp(image, edges, np.concatenate([[0.0], counts.cumsum() * (255 / image.size)]))
    return spread.astype(np.float32)


@computed_in_float32
def brightness(image: np.ndarray, factor: float) -> np.ndarray:
    """Multiply all values by ``factor``."""
    return _linear(image, factor, 0.0)


@computed_in_float32
def contrast(image: np.ndarray, factor: float) -> np.ndarray:
    """Multiply the distance of all values from the image's mean grey by ``factor``."""
    sums = image.sum(axis=0, dtype=np.float64 if image.dtype.kind == "f" else np.int64)
    means = sums.reshape(image.shape[1], -1).sum(axis=0) / max(1, image.shape[0] * image.shape[1])
    grey = float(means @ LUMA if len(means) == 3 else means.mean())
    return _linear(image, factor, (1 - factor) * grey)


@computed_in_float32
def saturation(image: np.ndarray, factor: float) -> np.ndarray:
    """Multiply the distance of each pixel from its own grey by ``factor``: 0 is grey, 1 the image. One channel stays as it is."""
    if factor == 1 or _is_grey(image, "saturation"):
        return image
    matrix = factor * np.eye(3, dtype=np.float32) + (1 - factor) * LUMA
    return ops.mix(image, matrix.astype(np.float32))


@computed_in_float32
def grayscale(image: np.ndarray, keep_channels: bool = True) -> np.ndarray:
    """Return the luma (ITU-R BT.601), in as many equal channels as the image has, or as ``(H, W, 1)`` without ``keep_channels``."""
    if _is_grey(image, "grayscale"):
        return image
    return ops.mix(image, np.tile(LUMA, (3 if keep_channels else 1, 1)))


def _linear(image: np.ndarray, scale: float, offset: float) -> np.ndarray:
    if scale == 1 and offset == 0:
        return image
    if image.dtype == np.uint8:
        return ops.lookup(image, ops.saturated(np.arange(256) * scale + offset, image.dtype))
    result: np.ndarray = image * np.float32(scale) + np.float32(offset)
    return result


def _is_grey(image: np.ndarray, what: str) -> bool:
    channels = image.shape[2] if image.ndim == 3 else 1
    if channels not in (1, 3):
        raise ValueError(f"{what}: the image has {channels} channels; expected 1 or 3 (RGB)")
    return channels == 1

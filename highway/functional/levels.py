"""Change the values of an image. Most functions use a lookup table for uint8 images.

``(H, W, C)`` or ``(H, W)``, uint8 or floats; see :mod:`highway.functional`. The full range of the values is 0 to 255 for uint8, and 0 to 1
for floats.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

import numpy as np

from highway.errors import ConfigError
from highway.extras import pip_install
from highway.functional.color import LUMA, is_grey
from highway.images import ops
from highway.images.ops import computed_in_float32, cv2_or_none

_LEVELS = np.arange(256)
_SHARES = _LEVELS / 255
_WIDE = _LEVELS.astype(np.float64)
# For each number of bits, a mask that keeps the upper bits.
_UPPER = tuple(np.array(256 - (1 << 8 - bits) & 255, np.uint8) for bits in range(9))


@computed_in_float32
def image_histogram_equalization(image: np.ndarray, number_bins: int = 256) -> np.ndarray:
    """Equalize the histogram of all channels together. The results range from 0 to 255. Grey pixels stay grey.

    The cumulative histogram of all channels together is applied to each channel. For uint8 images with one channel, the result is the same
    as from OpenCV's ``equalizeHist``. For floats, the histogram has ``number_bins`` bins between the minimum and the maximum, and is
    interpolated linearly. If all values are equal, the image is returned unchanged.

    Args:
        image: uint8 or floats, any number of channels.
        number_bins: Number of bins for floats.

    >>> image_histogram_equalization(np.array([[10, 10, 11, 12]], np.uint8))
    array([[  0,   0, 128, 255]], dtype=uint8)
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
    """Multiply all values by ``factor``.

    Args:
        image: uint8 or floats.
        factor: The factor, at least 0. With 1, the image does not change.

    >>> brightness(np.array([[0, 100, 200]], np.uint8), 1.5)
    array([[  0, 150, 255]], dtype=uint8)
    """
    return _linear(image, factor, 0.0)


@computed_in_float32
def contrast(image: np.ndarray, factor: float, per_channel: bool = False) -> np.ndarray:
    """Change the contrast: multiply the distance of each value from the mean grey value of the image by ``factor``.

    Args:
        image: uint8 or floats.
        factor: The factor, at least 0. With 1, the image does not change.
        per_channel: Whether to use the mean of each channel instead of the mean grey value.

    >>> contrast(np.array([[0, 100, 200]], np.uint8), 0.5)
    array([[ 50, 100, 150]], dtype=uint8)
    """
    means = ops.sums(image) / max(1, image.shape[0] * image.shape[1])
    if per_channel and len(means) > 1:
        offsets = (1 - factor) * means
        if image.dtype == np.uint8:
            return ops.lookup(image, ops.saturated(_WIDE * factor + offsets[:, None], image.dtype))
        channels: np.ndarray = image * np.float32(factor) + offsets.astype(np.float32)
        return channels
    grey = float(means @ LUMA if len(means) == 3 else means.mean())
    return _linear(image, factor, (1 - factor) * grey)


@computed_in_float32
def gamma(image: np.ndarray, exponent: float) -> np.ndarray:
    """Raise all values, as fractions of the full range, to the power ``exponent``. Floats below 0 become 0.

    Args:
        image: uint8, or floats from 0 to 1.
        exponent: The exponent, at least 0. An exponent below 1 makes the image brighter.

    Raises:
        ValueError: a float image has a value above 1.5.

    >>> gamma(np.array([[0, 100, 255]], np.uint8), 0.5)
    array([[  0, 160, 255]], dtype=uint8)
    """
    if image.dtype != np.uint8:
        ops.expect_shares(image, "gamma", "divide floats from 0 to 255 by 255 first, for example with ToFloat()")
    return image if exponent == 1 else _by_level(image, lambda share: np.maximum(share, 0) ** exponent)


def invert(image: np.ndarray) -> np.ndarray:
    """Return 255 minus the image, or 1 minus the image for floats.

    Args:
        image: uint8, or floats from 0 to 1.

    >>> invert(np.array([[0, 100, 255]], np.uint8))
    array([[255, 155,   0]], dtype=uint8)
    """
    return np.invert(image) if image.dtype == np.uint8 else _invert(image)


@computed_in_float32
def _invert(image: np.ndarray) -> np.ndarray:
    return np.float32(1) - image


@computed_in_float32
def solarize(image: np.ndarray, threshold: float) -> np.ndarray:
    """Invert all values of at least ``threshold``, as Pillow's ``ImageOps.solarize`` does.

    Args:
        image: uint8, or floats from 0 to 1.
        threshold: Threshold as a fraction of the full range, from 0 to 1.

    >>> solarize(np.array([[0, 100, 200]], np.uint8), 0.5)
    array([[  0, 100,  55]], dtype=uint8)
    """
    if image.dtype == np.uint8:
        return ops.lookup(image, _solarizing(threshold))
    return _solarized(image, threshold).astype(np.float32, copy=False)


def posterize(image: np.ndarray, bits: int) -> np.ndarray:
    """Keep the upper ``bits`` bits of each value. Floats are quantized to 8 bits first, and keep their dtype.

    Args:
        image: uint8, or floats from 0 to 1.
        bits: Number of bits, from 0 to 8.

    >>> posterize(np.array([[100, 128, 255]], np.uint8), 1)
    array([[  0, 128, 128]], dtype=uint8)
    """
    if image.dtype != np.uint8:
        return _posterize(image, bits)
    upper: np.ndarray = image if bits >= 8 else np.bitwise_and(image, _UPPER[bits])
    return upper


@computed_in_float32
def _posterize(image: np.ndarray, bits: int) -> np.ndarray:
    if bits >= 8:
        return image
    kept: np.ndarray = np.clip(image * 255, 0, 255).astype(np.uint8) & (256 - (1 << 8 - bits))
    return kept.astype(np.float32) / np.float32(255)


def clip(image: np.ndarray, low: float = 0.0, high: float = 255.0) -> np.ndarray:
    """Clip values to the range from ``low`` to ``high``. The dtype does not change.

    Args:
        image: Any dtype.
        low: Lower bound.
        high: Upper bound.

    >>> clip(np.array([[-0.5, 0.5, 1.5]], np.float32), 0, 1)
    array([[0. , 0.5, 1. ]], dtype=float32)
    """
    if image.dtype == np.uint8:
        return image if low <= 0 and high >= 255 else ops.lookup(image, _LEVELS.clip(low, high).astype(np.uint8))
    within: np.ndarray = image.clip(low, high)
    return within.astype(image.dtype, copy=False)


@computed_in_float32
def autocontrast(image: np.ndarray) -> np.ndarray:
    """Stretch the values of each channel to the full range, as Pillow's ``ImageOps.autocontrast`` does.

    The minimum of a channel becomes 0. The maximum becomes 255, or 1 for floats. If all values of a channel are equal, the channel does not
    change.

    Args:
        image: uint8, or floats from 0 to 1.

    >>> autocontrast(np.array([[50, 100, 150]], np.uint8))
    array([[  0, 127, 255]], dtype=uint8)
    """
    planes = image[..., None] if image.ndim == 2 else image
    if image.size == 0:
        return image
    low, high = (_extremes(planes, least) for least in (True, False))
    if (low == high).all():
        return image
    if image.dtype == np.uint8:
        scale = np.where(low < high, 255 / np.maximum(high - low, 1), 1.0)[:, None]
        tables = (_LEVELS * scale - np.where(low < high, low, 0)[:, None] * scale).clip(0, 255).astype(np.uint8)
        return _by_tables(image, tables)
    scale = np.where(low < high, 1 / np.where(low < high, high - low, 1), 1.0).astype(np.float32)
    stretched: np.ndarray = (planes - np.where(low < high, low, 0).astype(np.float32)) * scale
    return stretched.reshape(image.shape)


def equalize(image: np.ndarray) -> np.ndarray:
    """Equalize the histogram of each channel separately, as Pillow's ``ImageOps.equalize`` does.

    Args:
        image: uint8, any number of channels.

    Raises:
        TypeError: the image is not uint8.

    >>> image = np.tile(np.array([10, 20, 30, 40], np.uint8), (100, 1))
    >>> equalize(image)[0]
    array([  0, 100, 200, 255], dtype=uint8)
    """
    expect_bytes(image, "equalize")
    counts = ops.histograms(image)
    last = counts[np.arange(len(counts)), 255 - (counts[:, ::-1] > 0).argmax(axis=1)]
    steps = (counts.sum(axis=1) - last) // 255
    before = np.cumsum(counts, axis=1) - counts
    spread = (steps[:, None] // 2 + before) // np.maximum(steps, 1)[:, None]
    return _by_tables(image, np.where(steps[:, None] > 0, spread.clip(0, 255), _LEVELS).astype(np.uint8))


def clahe(image: np.ndarray, clip_limit: float = 4.0, tiles: tuple[int, int] = (8, 8)) -> np.ndarray:
    """Apply CLAHE: equalize the histogram of each tile with limited contrast. In RGB images, only the lightness (of LAB) changes.

    Args:
        image: uint8, 1 or 3 channels.
        clip_limit: Limit of the contrast: the maximum count of a value in the histogram of a tile, as a multiple of the average count.
            Counts above the limit are distributed over all values.
        tiles: Number of rows and columns of tiles.

    Raises:
        ConfigError: OpenCV is not installed.
        TypeError: the image is not uint8.
        ValueError: the image has neither 1 nor 3 channels.

    >>> image = np.arange(64, dtype=np.uint8).reshape(8, 8)
    >>> equalized = clahe(image, tiles=(2, 2))
    >>> int(image.max()), int(equalized.max()) > 200
    (63, True)
    """
    expect_bytes(image, "clahe")
    cv2 = cv2_or_none()
    if cv2 is None:
        raise ConfigError(f"clahe: needs OpenCV: {pip_install('fast')}")
    equalizer = cv2.createCLAHE(clip_limit, tiles[::-1])
    if is_grey(image, "clahe"):
        plane: np.ndarray = equalizer.apply(np.ascontiguousarray(image.reshape(image.shape[:2])))
        return plane.reshape(image.shape)
    lab = list(cv2.split(cv2.cvtColor(image, cv2.COLOR_RGB2LAB)))
    lab[0] = equalizer.apply(lab[0])
    spread: np.ndarray = cv2.cvtColor(cv2.merge(lab), cv2.COLOR_LAB2RGB)
    return spread


def expect_bytes(image: np.ndarray, what: str) -> None:
    """Raise TypeError if the image is not uint8."""
    if image.dtype != np.uint8:
        is_float = image.dtype.kind == "f"
        way_out = "put it before transforms that return floats, such as Normalize" if is_float else "convert it with astype()"
        raise TypeError(f"{what}: the image is {image.dtype}; expected uint8: {way_out}")


def _extremes(planes: np.ndarray, least: bool) -> np.ndarray:
    """Return the minimum or maximum of each channel of ``(H, W, C)``, float64 ``(C,)``."""
    # Reducing the two axes separately is ten times as fast as reducing both at once.
    rows = planes.min(axis=0) if least else planes.max(axis=0)
    return np.asarray(rows.min(axis=0) if least else rows.max(axis=0), np.float64)


def _by_level(image: np.ndarray, function: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
    """Apply a function that maps values to new values. Both are fractions of the full range."""
    if image.dtype == np.uint8:
        return ops.lookup(image, ops.saturated(255 * function(_SHARES), image.dtype))
    return function(image).astype(np.float32, copy=False)


@lru_cache(maxsize=256)
def _solarizing(threshold: float) -> np.ndarray:
    return ops.saturated(255 * _solarized(_SHARES, threshold), np.dtype(np.uint8))


def _solarized(shares: np.ndarray, threshold: float) -> np.ndarray:
    return np.where(shares < threshold, shares, 1 - shares)


def _by_tables(image: np.ndarray, tables: np.ndarray) -> np.ndarray:
    """Apply a lookup table to each channel. ``tables`` is uint8 ``(C, 256)``."""
    if image.ndim == 2 or (tables == tables[0]).all():
        return ops.lookup(image, tables[0])
    return ops.lookup(image, tables)


def _linear(image: np.ndarray, scale: float, offset: float) -> np.ndarray:
    if scale == 1 and offset == 0:
        return image
    if image.dtype == np.uint8:
        return ops.lookup(image, ops.saturated(_WIDE * scale + offset, image.dtype))
    result: np.ndarray = image * np.float32(scale) + np.float32(offset)
    return result

"""Change the range and dtype of the values of an image.

``(H, W, C)`` or ``(H, W)``, uint8 or floats, in RGB; see :mod:`highway.functional`.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from highway.images import ops

PerChannel = float | Sequence[float] | np.ndarray
_Numbers = float | tuple[float, ...]
IMAGENET_MEAN = (0.485, 0.456, 0.406)
IMAGENET_STD = (0.229, 0.224, 0.225)


def rescale(image: np.ndarray, scale: PerChannel = 1 / 128, offset: PerChannel = 128.0, out: np.ndarray | None = None) -> np.ndarray:
    """Return ``(image - offset) * scale`` as float32.

    Args:
        image: uint8 or floats.
        scale: A number, or one number per channel.
        offset: A number, or one number per channel. It is subtracted before the multiplication.
        out: float32 array for the result, if the shape fits.

    Raises:
        ValueError: ``scale`` or ``offset`` has more or fewer values than the image has channels.

    >>> rescale(np.array([[0, 128, 192]], np.uint8))
    array([[-1. ,  0. ,  0.5]], dtype=float32)
    """
    channels = image.shape[2] if image.ndim == 3 else 1
    scale, offset = _checked(channels, "rescale", scale=scale, offset=offset)
    target = ops.usable(out, image.shape, np.dtype(np.float32))
    target = np.empty(image.shape, np.float32) if target is None else target
    # Treat several rows of the image as one long row, and repeat the constants along this row. Broadcasting over three channels would take
    # ten times as long.
    short = image.dtype.itemsize < 4  # the values fit into float32, and converting them first is faster
    several = _rows_at_once(len(image), image.shape[1] * channels) if short or image.flags.c_contiguous else 1
    wide, pixels = target.reshape(len(image) // several, -1), several * image.shape[1]
    if short:
        target[...] = image
        wide -= _row(offset, channels, pixels)
    else:
        np.subtract(image.reshape(wide.shape), _row(offset, channels, pixels), out=wide)
    wide *= _row(scale, channels, pixels)
    return target


def normalize(
    image: np.ndarray, mean: PerChannel = IMAGENET_MEAN, std: PerChannel = IMAGENET_STD, out: np.ndarray | None = None
) -> np.ndarray:
    """Return ``(image - mean) / std`` as float32. uint8 images are divided by 255 first.

    Args:
        image: uint8 or floats.
        mean: A number, or one number per channel, as a fraction of the full range. By default, the values of ImageNet.
        std: A number, or one number per channel, above 0, as a fraction of the full range. By default, the values of ImageNet.
        out: float32 array for the result, if the shape fits.

    Raises:
        ValueError: ``mean`` or ``std`` has more or fewer values than the image has channels, or ``std`` is not above 0.

    >>> normalize(np.array([[0, 255]], np.uint8), mean=0.5, std=0.5)
    array([[-1.,  1.]], dtype=float32)
    """
    mean, std = _checked(image.shape[2] if image.ndim == 3 else 1, "normalize", mean=mean, std=std)
    return rescale(image, *_scale_and_offset(mean, std, 255.0 if image.dtype == np.uint8 else 1.0), out)


def to_float(image: np.ndarray, scale: float = 1 / 255, out: np.ndarray | None = None) -> np.ndarray:
    """Return the image times ``scale`` as float32.

    Args:
        image: uint8 or floats.
        scale: The factor. With the default, values from 0 to 255 become values from 0 to 1, even for float images.
        out: float32 array for the result, if the shape fits.

    >>> to_float(np.array([[0, 255]], np.uint8))
    array([[0., 1.]], dtype=float32)
    """
    target = ops.usable(out, image.shape, np.dtype(np.float32))
    target = np.empty(image.shape, np.float32) if target is None else target
    target[...] = image  # copying first and then multiplying in place is faster
    target *= np.float32(scale)
    return target


def to_uint8(image: np.ndarray, scale: float = 255.0) -> np.ndarray:
    """Return floats times ``scale`` as uint8, rounded and saturated. uint8 images are returned unchanged.

    Args:
        image: uint8 or floats.
        scale: The factor. The default is for floats from 0 to 1.

    Raises:
        ValueError: ``scale`` and a value of the image are both above 1.5.

    >>> to_uint8(np.array([[0, 0.2, 1]], np.float32))
    array([[  0,  51, 255]], dtype=uint8)
    """
    if image.dtype == np.uint8:
        return image
    if scale > 1.5:
        ops.expect_shares(image, "to_uint8", "for floats from 0 to 255, use scale=1")
    return ops.saturated(image * np.float32(scale), np.dtype(np.uint8))


def min_max_normalize(image: np.ndarray, low: float = 0.0, high: float = 255.0, all_channel: bool = True) -> np.ndarray:
    """Scale the values to the range from ``low`` to ``high``, as float32. If all values are equal, they become ``low``.

    Args:
        image: Any number of channels.
        low: Minimum of the result.
        high: Maximum of the result.
        all_channel: Whether to use the minimum and maximum of all channels together. With ``False``, each channel is scaled separately.

    >>> min_max_normalize(np.array([[50, 100, 150]], np.uint8), 1, 3).round(3)
    array([[1., 2., 3.]], dtype=float32)
    """
    if image.dtype == np.uint8 and all_channel and image.size and low <= high and (cv2 := ops.cv2_or_none()):
        by_cv2: np.ndarray = cv2.normalize(image, None, low, high, cv2.NORM_MINMAX, cv2.CV_32F)
        return by_cv2 if by_cv2.shape == image.shape else by_cv2.reshape(image.shape)
    # Reducing one axis after the other is ten times as fast as reducing both at once.
    rows = (image, image) if all_channel else (image.min(axis=0), image.max(axis=0))
    least, most = (np.float32(bound(axis=None if all_channel else 0)) for bound in (rows[0].min, rows[1].max))
    scale = np.float32(high - low) / np.where(most > least, most - least, 1).astype(np.float32)
    stretched: np.ndarray = (image - least) * scale + np.float32(low)
    return stretched.astype(np.float32, copy=False)


def mean_variance_normalize(image: np.ndarray, all_channel: bool = True) -> np.ndarray:
    """Return ``(image - mean) / deviation`` as float32, with the mean and standard deviation of the image.

    A deviation below ``1 / sqrt(number of values)`` is replaced by this limit, so that nothing is divided by 0.

    Args:
        image: Any number of channels.
        all_channel: Whether to use the mean and deviation of all channels together. With ``False``, each channel is normalized separately.

    >>> mean_variance_normalize(np.array([[1, 3]], np.uint8))
    array([[-1.,  1.]], dtype=float32)
    """
    axes = None if all_channel else (0, 1)
    wide = image.astype(np.float64)
    mean, deviation = np.float32(wide.mean(axis=axes)), np.float32(wide.std(axis=axes))
    least = 1 / np.sqrt(image.size if all_channel else image.shape[0] * image.shape[1])
    normal: np.ndarray = (image - mean) / np.maximum(deviation, np.float32(least))
    return normal.astype(np.float32, copy=False)


def _checked(channels: int, what: str, **values: PerChannel) -> list[_Numbers]:
    """Return each value as a number, or as a tuple with one number, or with one per channel."""
    checked: list[_Numbers] = []
    for name, value in values.items():
        numbers = value if isinstance(value, (int, float, tuple)) else np.asarray(value).tolist()
        if isinstance(numbers, (tuple, list)) and len(numbers) not in (1, channels):
            raise ValueError(
                f"{what}: {name}={value} has {len(numbers)} numbers, but the image has {channels} channels; pass one number, or one number "
                "for each channel"
            )
        checked.append(tuple(numbers) if isinstance(numbers, list) else numbers)
    return checked


@lru_cache(maxsize=64)
def _scale_and_offset(mean: _Numbers, std: _Numbers, full: float) -> tuple[tuple[float, ...], tuple[float, ...]]:
    means, stds = np.broadcast_arrays(np.atleast_1d(mean), np.atleast_1d(std))
    if not np.all(stds > 0):
        raise ValueError(f"normalize: std={std}; expected numbers above 0")
    return tuple((1 / (stds * full)).tolist()), tuple((means * full).tolist())


@lru_cache(maxsize=64)
def _rows_at_once(height: int, width: int) -> int:
    """Return the number of image rows to process as one long row of 4,096 to 32,768 values. This halves the time."""
    return next((several for several in range(1, height + 1) if height % several == 0 and 4096 < several * width <= 32768), 1)


@lru_cache(maxsize=64)
def _row(value: _Numbers, channels: int, width: int) -> np.ndarray:
    row = np.tile(np.broadcast_to(np.asarray(value, np.float32), (channels,)), width)
    row.flags.writeable = False
    return row

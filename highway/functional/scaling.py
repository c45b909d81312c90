"""Functions that change what values stand for: their range, their type.

``(H, W, C)`` or ``(H, W)``, uint8 or floats, in RGB: see :mod:`highway.functional`.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from highway.images import ops

PerChannel = float | tuple[float, ...]
IMAGENET_MEAN = (0.485, 0.456, 0.406)
IMAGENET_STD = (0.229, 0.224, 0.225)


def rescale(image: np.ndarray, scale: PerChannel = 1 / 128, offset: PerChannel = 128.0, out: np.ndarray | None = None) -> np.ndarray:
    """Return ``(image - offset) * scale`` as float32; ``scale`` and ``offset`` are numbers, or one for each channel.

    Raises:
        ValueError: there are not as many numbers as channels.
    """
    channels = image.shape[2] if image.ndim == 3 else 1
    for name, value in (("scale", scale), ("offset", offset)):
        if isinstance(value, tuple) and len(value) not in (1, channels):
            raise ValueError(
                f"rescale: {len(value)} numbers as {name} {value}, but the image has {channels} channels; give one for each, or one"
            )
    target = ops.usable(out, image.shape, np.dtype(np.float32))
    target = np.empty(image.shape, np.float32) if target is None else target
    rows, wide = image.reshape(len(image), -1), target.reshape(len(image), -1)
    # Whole rows against a row of numbers: broadcasting over three channels takes ten times as long.
    np.subtract(rows, _row(offset, channels, image.shape[1]), out=wide)
    np.multiply(wide, _row(scale, channels, image.shape[1]), out=wide)
    return target


def normalize(
    image: np.ndarray, mean: PerChannel = IMAGENET_MEAN, std: PerChannel = IMAGENET_STD, out: np.ndarray | None = None
) -> np.ndarray:
    """Return ``(image - mean) / std`` as float32; uint8 is divided by 255 first: ``mean`` and ``std`` are in units of the full range."""
    return rescale(image, *_scale_and_offset(mean, std, 255.0 if image.dtype == np.uint8 else 1.0), out)


@lru_cache(maxsize=64)
def _scale_and_offset(mean: PerChannel, std: PerChannel, full: float) -> tuple[tuple[float, ...], tuple[float, ...]]:
    means, stds = np.broadcast_arrays(np.atleast_1d(mean), np.atleast_1d(std))
    return tuple((1 / (stds * full)).tolist()), tuple((means * full).tolist())


@lru_cache(maxsize=64)
def _row(value: PerChannel, channels: int, width: int) -> np.ndarray:
    row = np.tile(np.broadcast_to(np.asarray(value, np.float32), (channels,)), width)
    row.flags.writeable = False
    return row

"""Add noise to an image.

``(H, W, C)`` or ``(H, W)``, uint8 or floats, in RGB; see :mod:`highway.functional`. Without ``rng``, the noise differs on each call.
"""

from __future__ import annotations

import io
from collections.abc import Iterable
from functools import cache, lru_cache
from statistics import NormalDist
from typing import Literal

import numpy as np
from numpy.random import SFC64, Generator
from PIL import Image

from highway.functional.color import hue, is_grey
from highway.functional.levels import expect_bytes
from highway.images import ops
from highway.images.decode import decode, simplejpeg_or_none
from highway.images.ops import Box, computed_in_float32, cv2_or_none
from highway.images.sampling import fitting
from highway.renamed import with_old_names


def generator(seed: int | None = None) -> Generator:
    """Return a random generator that is faster than NumPy's default."""
    return Generator(SFC64(seed))


@with_old_names
@computed_in_float32
def add_noise(image: np.ndarray, strength: float = 0.2, mu: float = 0.0, sigma: float = 50.0, rng: Generator | None = None) -> np.ndarray:
    """Add ``strength * noise`` to each value. The noise is normally distributed, with mean ``mu`` and standard deviation ``sigma``.

    The default ``sigma`` is for images with values from 0 to 255. For float images with values from 0 to 1, pass a smaller ``sigma``. The
    noise has 65,536 possible values, which are equally likely. They are within 4.33 standard deviations of the mean.

    Args:
        image: uint8 or floats, any number of channels.
        strength: Factor by which the noise is multiplied.
        mu: Mean of the noise before the multiplication.
        sigma: Standard deviation of the noise before the multiplication.
        rng: Generates the noise.

    >>> image = np.full((1, 4), 100, np.uint8)
    >>> add_noise(image, strength=1, sigma=10, rng=np.random.default_rng(0))
    array([[100, 110, 114, 104]], dtype=uint8)
    """
    noise = _normal(strength * mu, strength * sigma, image.dtype == np.uint8).take(_shorts(image.size, rng or generator()))
    if image.dtype == np.uint8:
        return _plus(image, noise.reshape(image.shape))
    added: np.ndarray = image + noise.reshape(image.shape)
    return added


@cache
def _quantiles() -> np.ndarray:
    """Return 65,536 quantiles of the normal distribution, for the middles of 65,536 equally likely ranges."""
    half = np.array([NormalDist().inv_cdf((number + 0.5) / 65536) for number in range(32768)])
    return np.concatenate([half, -half[::-1]])


@lru_cache(maxsize=64)
def _normal(mean: float, deviation: float, whole: bool) -> np.ndarray:
    values = _quantiles() * deviation + mean
    chosen: np.ndarray = np.rint(values).clip(-32768, 32767).astype(np.int16) if whole else values.astype(np.float32)
    return chosen


def _shorts(count: int, rng: Generator) -> np.ndarray:
    """Return uniformly distributed uint16 numbers, ``(count,)``."""
    words: np.ndarray = rng.integers(0, 2**64 - 1, -(-count // 4), np.uint64, endpoint=True)
    shorts: np.ndarray = words.view(np.uint16)[:count]
    return shorts


def _plus(image: np.ndarray, noise: np.ndarray) -> np.ndarray:
    """Add int16 noise to uint8 values, with saturation."""
    if (cv2 := cv2_or_none()) and (image.ndim == 2 or image.shape[2] <= 4):
        added: np.ndarray = cv2.add(image, noise, dtype=cv2.CV_8U)
        return added.reshape(image.shape)
    return ops.saturated(image.astype(np.int32) + noise, image.dtype)


@computed_in_float32
def salt_pepper(image: np.ndarray, salt: float = 0.05, pepper: float = 0.05, rng: Generator | None = None) -> np.ndarray:
    """Set some random pixels to white (the maximum of the range in all channels), and other random pixels to black (0).

    Args:
        image: uint8, or floats from 0 to 1.
        salt: Fraction of the pixels that become white.
        pepper: Fraction of the pixels that become black.
        rng: The random generator that selects the pixels.

    >>> image = np.full((1, 8), 100, np.uint8)
    >>> salt_pepper(image, salt=0.2, pepper=0.2, rng=np.random.default_rng(0))
    array([[100, 255, 255, 100, 255, 100, 100, 100]], dtype=uint8)
    """
    drawn = _shorts(image.shape[0] * image.shape[1], rng or generator()).reshape(image.shape[:2])
    result = image.copy()
    result[drawn < pepper * 65536] = 0
    result[drawn >= 65536 - salt * 65536] = 255 if image.dtype == np.uint8 else 1
    return result


@computed_in_float32
def iso_noise(image: np.ndarray, color_shift: float = 0.03, intensity: float = 0.3, rng: Generator | None = None) -> np.ndarray:
    """Add the noise of a camera sensor at high ISO: random changes of hue, and normally distributed changes of brightness.

    Args:
        image: uint8, or floats from 0 to 1, in RGB.
        color_shift: Maximum rotation of the hue, as a fraction of the colour circle.
        intensity: Standard deviation of the noise, relative to the image. 1 is the standard deviation of the image, averaged over the
            channels.
        rng: Generates the noise.

    Raises:
        ValueError: the image has neither 1 nor 3 channels.

    >>> image = np.full((2, 2, 3), 100, np.uint8)
    >>> image[0] = 50
    >>> iso_noise(image, rng=np.random.default_rng(0))[:, :, 0]
    array([[ 57,  50],
           [105,  95]], dtype=uint8)
    """
    rng = rng or generator()
    turned = hue(image, float(rng.uniform(-color_shift, color_shift)))
    full = 255 if image.dtype == np.uint8 else 1
    deviation = float(ops.mean_and_deviation(turned)[1].mean()) / full * intensity
    grey = _shorts(image.shape[0] * image.shape[1], rng).reshape(image.shape[:2])
    noise = (_quantiles().take(grey) * (deviation * full)).astype(np.float32)
    if image.ndim == 3:
        noise = noise[..., None]
    return ops.saturated(turned + noise, image.dtype)


def jpeg_noise(image: np.ndarray, quality: int) -> np.ndarray:
    """Encode the image as a JPEG, and decode this JPEG.

    Args:
        image: uint8, 1 or 3 channels.
        quality: Quality of the JPEG, from 1 to 100. A lower quality causes larger errors.

    Raises:
        TypeError: the image is not uint8.
        ValueError: the image has neither 1 nor 3 channels.

    >>> image = np.random.default_rng(0).integers(0, 256, (16, 16, 3), np.uint8)
    >>> noisy = jpeg_noise(image, quality=20)
    >>> noisy.shape, np.array_equal(noisy, image)
    ((16, 16, 3), False)
    """
    expect_bytes(image, "jpeg_noise")
    grey = is_grey(image, "jpeg_noise")
    solid = np.ascontiguousarray(image)
    if simplejpeg := simplejpeg_or_none():
        space, planes = ("GRAY", solid.reshape(*image.shape[:2], 1)) if grey else ("RGB", solid)
        data = simplejpeg.encode_jpeg(planes, quality, space, "444" if grey else "420")
        pixels: np.ndarray = simplejpeg.decode_jpeg(data, space)
        return pixels.reshape(image.shape)
    file = io.BytesIO()
    Image.fromarray(solid.reshape(image.shape[:2]) if grey else solid).save(file, "JPEG", quality=quality)
    pixels = decode(file.getvalue())
    return pixels[..., 0].reshape(image.shape) if grey else pixels


def erase(
    image: np.ndarray,
    holes: Iterable[Box],
    fill: float | tuple[float, ...] | Literal["random"] = 0.0,
    rng: Generator | None = None,
    out: np.ndarray | None = None,
) -> np.ndarray:
    """Fill boxes of an image.

    Args:
        image: Any dtype, any number of channels.
        holes: Top, left, height and width of each box in pixels.
        fill: Value of the filled pixels: a number, one number per channel, or ``"random"`` for noise over the full range.
        rng: Generates the noise.
        out: Array for the result, if shape and dtype fit.

    Raises:
        ValueError: ``fill`` does not fit the number of channels or the dtype of the image.

    >>> erase(np.full((3, 4), 9, np.uint8), [(0, 1, 2, 2)])
    array([[9, 0, 0, 9],
           [9, 0, 0, 9],
           [9, 9, 9, 9]], dtype=uint8)
    """
    result = None if out is None else ops.usable(out, image.shape, image.dtype)
    if result is None:
        result = image.copy()
    else:
        result[...] = image
    noise = (rng or generator()) if fill == "random" else None
    value = fitting(fill, image, "erase") if fill != "random" else 0
    for top, left, height, width in holes:
        hole = slice(top, top + height), slice(left, left + width)
        if noise is None:
            result[hole] = value
        elif image.dtype == np.uint8:
            result[hole] = noise.integers(0, 256, result[hole].shape, np.uint8)
        else:
            result[hole] = noise.random(result[hole].shape, np.float32)
    return result

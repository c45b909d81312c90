"""Change the colours of an image by mixing its channels.

``(H, W, C)`` or ``(H, W)``, uint8 or floats, in RGB; see :mod:`highway.functional`.
"""

from __future__ import annotations

from typing import Literal

import numpy as np

from highway.errors import ConfigError
from highway.extras import pip_install
from highway.images import ops
from highway.images.ops import computed_in_float32, cv2_or_none

LUMA = np.array([0.299, 0.587, 0.114], np.float32)  # ITU-R BT.601
Three = tuple[float, float, float]
Rows = tuple[Three, Three, Three]
# The principal axes of the colours in ImageNet: "ImageNet classification with deep CNNs", Krizhevsky et al. 2012.
EIGENVALUES: Three = (0.2175, 0.0188, 0.0045)
EIGENVECTORS: Rows = ((-0.5675, 0.7192, 0.4009), (-0.5808, -0.0045, -0.814), (-0.5836, -0.6948, 0.4203))
ColorMode = Literal[
    "RGB2BGR", "RGB2GRAY", "RGB2HSV", "HSV2RGB", "RGB2HLS", "HLS2RGB", "RGB2LAB", "LAB2RGB", "RGB2LUV", "LUV2RGB",
    "RGB2XYZ", "XYZ2RGB", "RGB2YCrCb", "YCrCb2RGB", "RGB2YUV", "YUV2RGB", "GRAY2RGB",
]  # fmt: skip


@computed_in_float32
def saturation(image: np.ndarray, factor: float) -> np.ndarray:
    """Interpolate between a grey image (``factor`` 0) and the original image (``factor`` 1). A factor above 1 makes the colours stronger.

    An image with one channel does not change.

    Args:
        image: uint8 or floats, in RGB.
        factor: Weight of the original image, at least 0.

    Raises:
        ValueError: the image has neither 1 nor 3 channels.

    >>> saturation(np.array([[[200, 100, 0]]], np.uint8), 0.5).tolist()
    [[[159, 109, 59]]]
    """
    if factor == 1 or is_grey(image, "saturation"):
        return image
    matrix = factor * np.eye(3, dtype=np.float32) + (1 - factor) * LUMA
    return ops.mix(image, matrix.astype(np.float32))


@computed_in_float32
def grayscale(image: np.ndarray, keep_channels: bool = True) -> np.ndarray:
    """Convert an image to grey values, by luma (ITU-R BT.601).

    Args:
        image: uint8 or floats, ``(H, W, 3)`` in RGB, or one channel.
        keep_channels: Whether the result has three equal channels. If ``False``, the result is ``(H, W, 1)``. An image with one channel is
            returned unchanged.

    Raises:
        ValueError: the image has neither 1 nor 3 channels.

    >>> grayscale(np.array([[[200, 100, 0]]], np.uint8)).tolist()
    [[[119, 119, 119]]]
    """
    if is_grey(image, "grayscale"):
        return image
    if cv2 := cv2_or_none():
        luma: np.ndarray = cv2.cvtColor(image, cv2.COLOR_RGB2GRAY)
        grey: np.ndarray = cv2.cvtColor(luma, cv2.COLOR_GRAY2RGB) if keep_channels else luma[..., None]
        return grey
    return ops.mix(image, np.tile(LUMA, (3 if keep_channels else 1, 1)))


@computed_in_float32
def hue(image: np.ndarray, turn: float) -> np.ndarray:
    """Rotate the hue (of HSV) by ``turn``. For example, 1/3 changes red to green.

    An image with one channel does not change. For uint8 images, ``turn`` is rounded to a multiple of 1/256.

    Args:
        image: uint8 or floats, in RGB.
        turn: A fraction of the colour circle, from -0.5 to 0.5.

    Raises:
        ValueError: the image has neither 1 nor 3 channels.

    >>> hue(np.array([[[200, 0, 0]]], np.uint8), 1 / 3).tolist()
    [[[0, 200, 0]]]
    """
    if turn == 0 or is_grey(image, "hue"):
        return image
    if cv2 := cv2_or_none():
        if image.dtype == np.uint8:
            hsv = cv2.cvtColor(image, cv2.COLOR_RGB2HSV_FULL)
            hsv[..., 0] += np.uint8(round(turn * 256) % 256)
            turned: np.ndarray = cv2.cvtColor(hsv, cv2.COLOR_HSV2RGB_FULL)
            return turned
        hsv = cv2.cvtColor(image, cv2.COLOR_RGB2HSV)
        hsv[..., 0] = (hsv[..., 0] + 360 * turn) % 360
        turned = cv2.cvtColor(hsv, cv2.COLOR_HSV2RGB)
        return turned
    return ops.saturated(_turned(image.astype(np.float32), round(turn * 256) / 256 if image.dtype == np.uint8 else turn), image.dtype)


def _turned(image: np.ndarray, turn: float) -> np.ndarray:
    """Compute :func:`hue` in float32, without OpenCV."""
    value, least = image.max(axis=2), image.min(axis=2)
    chroma = value - least
    red, green, blue = np.moveaxis(image, 2, 0)
    divisor = np.where(chroma > 0, chroma, 1)
    sixth = np.where(
        value == red, (green - blue) / divisor, np.where(value == green, (blue - red) / divisor + 2, (red - green) / divisor + 4)
    )
    place = ((sixth + 6 * turn)[..., None] + np.array([5, 3, 1], np.float32)) % 6
    turned: np.ndarray = value[..., None] - chroma[..., None] * np.clip(np.minimum(place, 4 - place), 0, 1)
    return turned


@computed_in_float32
def lighting(
    image: np.ndarray, strengths: tuple[float, float, float], values: Three = EIGENVALUES, vectors: Rows = EIGENVECTORS
) -> np.ndarray:
    """Add PCA colour noise (AlexNet): add the same colour to all pixels.

    The colour is a weighted sum of the principal axes of the colours in a dataset. An image with one channel does not change.

    Args:
        image: uint8, or floats from 0 to 1, in RGB.
        strengths: The factor of each axis.
        values: Eigenvalues of the axes, for colours from 0 to 1. By default, the values of ImageNet.
        vectors: Eigenvectors, with one column per axis and one row each for red, green and blue. By default, the values of ImageNet.

    Raises:
        ValueError: the image has neither 1 nor 3 channels.

    >>> grey = np.full((1, 1, 3), 128, np.uint8)
    >>> lighting(grey, strengths=(0.5, 0, 0)).tolist()
    [[[112, 112, 112]]]
    """
    if is_grey(image, "lighting"):
        return image
    added = np.array(vectors) @ (np.array(values) * np.array(strengths))
    if image.dtype == np.uint8:
        return ops.lookup(image, ops.saturated(np.arange(256) + 255 * added[:, None], image.dtype))
    result: np.ndarray = image + added.astype(np.float32)
    return result


@computed_in_float32
def color_space(image: np.ndarray, mode: ColorMode) -> np.ndarray:
    """Convert RGB to another colour space, or back, as OpenCV's ``cvtColor`` does.

    Args:
        image: uint8, or float32 with the ranges that OpenCV expects.
        mode: The conversion, such as ``"RGB2HSV"`` or ``"LAB2RGB"``.

    Raises:
        ConfigError: OpenCV is not installed.
        ValueError: the number of channels does not match the input colour space.

    >>> color_space(np.array([[[200, 0, 0]]], np.uint8), "RGB2HSV").tolist()
    [[[0, 255, 200]]]
    """
    cv2 = cv2_or_none()
    if cv2 is None:
        raise ConfigError(f"color_space: needs OpenCV: {pip_install('fast')}")
    channels, expected = image.shape[2] if image.ndim == 3 else 1, 1 if mode.startswith("GRAY") else 3
    if channels != expected:
        raise ValueError(f"color_space: the image has {channels} channels; expected {expected} for {mode}")
    converted: np.ndarray = cv2.cvtColor(image, getattr(cv2, f"COLOR_{mode}"))
    return converted


def is_grey(image: np.ndarray, what: str) -> bool:
    """Return whether an image has one channel. Raises ValueError if it has neither 1 nor 3 channels."""
    channels = image.shape[2] if image.ndim == 3 else 1
    if channels not in (1, 3):
        raise ValueError(f"{what}: the image has {channels} channels; expected 1 or 3 (RGB)")
    return channels == 1

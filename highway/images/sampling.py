"""Images sampled at other places, by affine and projective maps and one by one: by OpenCV where it is installed, else by Pillow and numpy.

Splines of higher order are in :mod:`highway.images.spline`.
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from PIL import Image

from highway.images.ops import Size, computed_in_float32, cv2_or_none, filled, native, pillow_channels, saturated

Linear = Literal["nearest", "bilinear"]
Fill = float | tuple[float, ...]  # a number, or one for each channel


def warp(image: np.ndarray, inverse: np.ndarray, shape: Size, interpolation: Linear = "bilinear", fill: Fill = 0) -> np.ndarray:
    """Sample an image at the places that a map names. No antialiasing.

    Args:
        image: Any dtype with ``"nearest"``, else uint8 or floats.
        inverse: float64 ``(2, 3)``, the affine map from output to input, in pixels with (0, 0) at the upper left corner of the upper left
            pixel; or ``(3, 3)``, a projective one.
        shape: Height and width of the result.
        interpolation: ``"nearest"`` or ``"bilinear"``. Where a place lies within a thousandth of a pixel between two pixels, the nearest
            may be the other with Pillow.
        fill: What lies outside: a number, or one for each channel.
    """
    if interpolation == "bilinear":
        return _warp(image, inverse, shape, fill)
    cv2 = cv2_or_none()
    if cv2 is None or (fill != 0 and not native(image)):
        return _sample(image, *_places(inverse, shape), fill)
    bits = _as_bits(image)
    flags = cv2.INTER_NEAREST | cv2.WARP_INVERSE_MAP
    upward = inverse.copy()  # half of the steps that OpenCV computes places in, so that a place between two pixels means the second
    upward[:2, 2] += 2**-11
    warped = filled(bits, shape, None, 4, lambda part, _: _by_cv2(cv2, part, upward, shape, flags, fill))
    return warped.view(image.dtype).reshape(*shape, *image.shape[2:])


@computed_in_float32
def _warp(image: np.ndarray, inverse: np.ndarray, shape: tuple[int, int], fill: Fill) -> np.ndarray:
    if cv2 := cv2_or_none():
        flags = cv2.INTER_LINEAR | cv2.WARP_INVERSE_MAP
        if isinstance(fill, tuple) and image.ndim == 3 and image.shape[2] > 4:
            return np.concatenate([_warp(image[..., [channel]], inverse, shape, one) for channel, one in enumerate(fill)], axis=2)
        return filled(image, shape, None, 4, lambda part, _: _by_cv2(cv2, part, inverse, shape, flags, fill))
    channels = pillow_channels(image)
    method, data = (Image.Transform.AFFINE, inverse) if len(inverse) == 2 else (Image.Transform.PERSPECTIVE, inverse / inverse[2, 2])
    numbers = tuple(data.ravel()[:8].tolist())

    def one(part: np.ndarray, value: Any) -> np.ndarray:
        picture = Image.fromarray(part)
        return np.asarray(picture.transform(shape[::-1], method, numbers, Image.Resampling.BILINEAR, fillcolor=value))

    if isinstance(fill, tuple) and image.ndim == 3 and channels == 1:
        planes = [one(np.ascontiguousarray(image[..., channel]), value) for channel, value in enumerate(fill)]
        return np.stack(planes, axis=2)
    whole = image.dtype == np.uint8
    value: Any = tuple(map(round, fill)) if isinstance(fill, tuple) else round(fill) if whole else fill
    if channels == 3 and not isinstance(fill, tuple):
        value = (value,) * 3
    return filled(image, shape, None, channels, lambda part, _: one(part, value))


def _by_cv2(cv2: Any, image: np.ndarray, inverse: np.ndarray, shape: Size, flags: int, fill: Fill) -> np.ndarray:
    centred = inverse.copy()  # OpenCV has (0, 0) at the centre of the upper left pixel
    centred[:, 2] += inverse[:, :2].sum(axis=1) / 2
    centred[:2] -= centred[2] / 2 if len(inverse) == 3 else (0, 0, 0.5)
    value = fill if isinstance(fill, tuple) else (fill,) * 4
    move = cv2.warpAffine if len(inverse) == 2 else cv2.warpPerspective
    moved: np.ndarray = move(image, centred, shape[::-1], flags=flags, borderMode=cv2.BORDER_CONSTANT, borderValue=value)
    return moved


def remap(image: np.ndarray, x: np.ndarray, y: np.ndarray, interpolation: Linear = "bilinear", fill: Fill = 0) -> np.ndarray:
    """Sample an image at places, float32 ``(H', W')`` each, in pixels with (0, 0) at the upper left corner of the upper left pixel.

    ``image``, ``interpolation`` and ``fill`` are as for :func:`warp`.
    """
    if interpolation == "nearest":
        return _sample(image, np.floor(x).astype(np.intp), np.floor(y).astype(np.intp), fill)
    return _remap(image, x, y, fill)


@computed_in_float32
def _remap(image: np.ndarray, x: np.ndarray, y: np.ndarray, fill: Fill) -> np.ndarray:
    if (cv2 := cv2_or_none()) and not (isinstance(fill, tuple) and image.ndim == 3 and image.shape[2] > 4):
        maps, value = (x - np.float32(0.5), y - np.float32(0.5)), fill if isinstance(fill, tuple) else (fill,) * 4

        def one(part: np.ndarray, _: np.ndarray | None) -> np.ndarray:
            moved: np.ndarray = cv2.remap(part, *maps, cv2.INTER_LINEAR, borderMode=cv2.BORDER_CONSTANT, borderValue=value)
            return moved

        return filled(image, x.shape, None, 4, one)
    left, top = np.floor(x - 0.5), np.floor(y - 0.5)
    total = np.zeros(x.shape + image.shape[2:], np.float32)
    for down, share_down in ((0, 1 - (y - 0.5 - top)), (1, y - 0.5 - top)):
        for right, share_right in ((0, 1 - (x - 0.5 - left)), (1, x - 0.5 - left)):
            part = _sample(image.astype(np.float32), (left + right).astype(np.intp), (top + down).astype(np.intp), fill)
            share = (share_down * share_right).astype(np.float32)
            total += part * (share if image.ndim == 2 else share[..., None])
    return saturated(total, image.dtype)


def _places(inverse: np.ndarray, shape: tuple[int, int]) -> tuple[np.ndarray, np.ndarray]:
    """Return column and row of the pixel that lies where the centre of each pixel of ``shape`` is sent."""
    x, y = np.arange(shape[1]) + 0.5, np.arange(shape[0])[:, None] + 0.5
    places = [a * x + b * y + c for a, b, c in inverse]
    column, row = (np.floor(place / places[2] if len(places) == 3 else place).astype(np.intp) for place in places[:2])
    return column, row


def _sample(image: np.ndarray, column: np.ndarray, row: np.ndarray, fill: Fill) -> np.ndarray:
    """Return the pixels at places; ``fill`` for those outside."""
    inside = (row >= 0) & (row < image.shape[0]) & (column >= 0) & (column < image.shape[1])
    result = np.empty(column.shape + image.shape[2:], image.dtype)
    result[...] = fill
    result[inside] = image[row[inside], column[inside]]
    return result


def _as_bits(image: np.ndarray) -> np.ndarray:
    """Return an image of any dtype as one that OpenCV can copy: the same bits, and several channels for long numbers."""
    size = image.dtype.itemsize
    kind = {1: np.uint8, 2: np.uint16}.get(size, np.float32)
    if size in (1, 2, 4):
        return np.ascontiguousarray(image).view(kind)
    planes = np.ascontiguousarray(image).reshape(*image.shape[:2], -1)
    return planes.view(kind)

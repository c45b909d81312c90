"""Sample images by affine and projective maps, or at given coordinates. This uses OpenCV if installed, otherwise Pillow and NumPy.

Splines of higher order are in :mod:`highway.images.spline`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, Literal

import numpy as np
from PIL import Image

from highway.images.ops import Size, channels_of, computed_in_float32, cv2_or_none, filled, merged, native, pillow_channels, saturated
from highway.images.scratch import scratch

Linear = Literal["nearest", "bilinear"]
Fill = float | tuple[float, ...]  # a number, or one number per channel


def fitting(fill: Fill, image: np.ndarray, what: str) -> Fill:
    """Check a fill value for an image. Return it as a number, or as a tuple with one number per channel.

    Raises:
        ValueError: the number of values does not fit the number of channels, or the image is uint8 and a value is not from 0 to 255.
    """
    several = tuple(fill) if isinstance(fill, (tuple, list)) else (fill,)
    channels = image.shape[2] if image.ndim == 3 else 1
    if len(several) not in (1, channels):
        raise ValueError(
            f"{what}: fill={fill} has {len(several)} numbers, but the image has {channels} channels; pass one number, or one number for "
            "each channel"
        )
    if image.dtype == np.uint8 and not (min(several) >= 0 and max(several) <= 255):
        raise ValueError(f"{what}: fill={fill} for a uint8 image; expected levels from 0 to 255")
    return several if len(several) > 1 else several[0]


def warp(image: np.ndarray, inverse: np.ndarray, shape: Size, interpolation: Linear = "bilinear", fill: Fill = 0) -> np.ndarray:
    """Warp an image by an inverse map, without antialiasing.

    Args:
        image: uint8 or floats. With ``"nearest"``, any dtype is allowed.
        inverse: The matrix that maps output points to input points: float64 ``(2, 3)`` (affine) or ``(3, 3)`` (projective). Points are in
            pixels with (0, 0) at the upper left corner of the upper left pixel.
        shape: Height and width of the result.
        interpolation: ``"nearest"`` or ``"bilinear"``. If a point is within 0.001 pixels of the middle between two pixels, Pillow and
            OpenCV can choose different pixels as the nearest.
        fill: Value of pixels outside the image: a number, or one number per channel.
    """
    fill = fitting(fill, image, "warp")
    if interpolation == "bilinear":
        return _warp(image, inverse, shape, fill)
    if (cv2 := cv2_or_none()) and (fill == 0 or native(image)):
        # Add half of OpenCV's coordinate step: for a point in the middle between two pixels, OpenCV then uses the second pixel.
        upward = inverse.copy()
        upward[:2, 2] += 2**-11
        return _nearest(cv2, image, shape, fill, _mover(cv2, upward, shape))
    return _sample(image, *_places(inverse, shape), fill)


@computed_in_float32
def _warp(image: np.ndarray, inverse: np.ndarray, shape: Size, fill: Fill) -> np.ndarray:
    if cv2 := cv2_or_none():
        return _bilinear(cv2, image, shape, fill, _mover(cv2, inverse, shape))
    channels = pillow_channels(image)
    method, data = (Image.Transform.AFFINE, inverse) if len(inverse) == 2 else (Image.Transform.PERSPECTIVE, inverse / inverse[2, 2])
    numbers = tuple(data.ravel()[:8].tolist())

    def one(part: np.ndarray, value: Any) -> np.ndarray:
        picture = Image.fromarray(part)
        return np.asarray(picture.transform(shape[::-1], method, numbers, Image.Resampling.BILINEAR, fillcolor=value))

    each = fill if isinstance(fill, tuple) else (fill,)
    values: list[Any] = [round(value) if image.dtype == np.uint8 else value for value in each]
    if isinstance(fill, tuple) and image.ndim == 3 and channels == 1:
        planes = [one(np.ascontiguousarray(image[..., channel]), value) for channel, value in enumerate(values)]
        return np.stack(planes, axis=2)
    value = (tuple(values) if len(values) == 3 else (values[0],) * 3) if channels == 3 else values[0]
    return filled(image, shape, None, channels, lambda part, _: one(part, value))


def remap(image: np.ndarray, x: np.ndarray, y: np.ndarray, interpolation: Linear = "bilinear", fill: Fill = 0) -> np.ndarray:
    """Sample an image at the coordinates ``x`` and ``y``, both float32 ``(H', W')``. (0, 0) is the *centre* of the upper left pixel.

    For ``image``, ``interpolation`` and ``fill``, see :func:`warp`.
    """
    fill = fitting(fill, image, "remap")
    if interpolation == "bilinear":
        return _remap(image, x, y, fill)
    if (cv2 := cv2_or_none()) and (fill == 0 or native(image)):
        return _nearest(cv2, image, (x.shape[0], x.shape[1]), fill, _mapper(cv2, x, y))
    column, row = (np.rint(part).astype(np.intp) for part in (x, y))
    return _sample(image, column, row, fill)


@computed_in_float32
def _remap(image: np.ndarray, x: np.ndarray, y: np.ndarray, fill: Fill) -> np.ndarray:
    if cv2 := cv2_or_none():
        return _bilinear(cv2, image, (x.shape[0], x.shape[1]), fill, _mapper(cv2, x, y))
    left, top = np.floor(x), np.floor(y)
    total = np.zeros(x.shape + image.shape[2:], np.float32)
    for down, share_down in ((0, 1 - (y - top)), (1, y - top)):
        for right, share_right in ((0, 1 - (x - left)), (1, x - left)):
            part = _sample(image.astype(np.float32), (left + right).astype(np.intp), (top + down).astype(np.intp), fill)
            share = (share_down * share_right).astype(np.float32)
            total += part * (share if image.ndim == 2 else share[..., None])
    return saturated(total, image.dtype)


# A function that samples an image of at most four channels with OpenCV. Its arguments are the image, the interpolation flag, the fill
# value, and an array for the result.
Sampler = Callable[[np.ndarray, int, Any, np.ndarray | None], np.ndarray]


def _mover(cv2: Any, inverse: np.ndarray, shape: Size) -> Sampler:
    rows = [[a, b, c + (a + b) / 2] for a, b, c in inverse.tolist()]  # in OpenCV, (0, 0) is the centre of the upper left pixel
    divisor = rows[2] if len(rows) == 3 else [0.0, 0.0, 1.0]
    matrix = np.array([[one - other / 2 for one, other in zip(row, divisor, strict=True)] for row in rows[:2]] + rows[2:])
    move, size = cv2.warpAffine if len(rows) == 2 else cv2.warpPerspective, (shape[1], shape[0])
    constant, backwards = cv2.BORDER_CONSTANT, cv2.WARP_INVERSE_MAP
    return lambda image, how, value, to: move(image, matrix, size, to, how | backwards, constant, value)


def _mapper(cv2: Any, x: np.ndarray, y: np.ndarray) -> Sampler:
    return lambda image, how, value, to: cv2.remap(image, x, y, how, to, cv2.BORDER_CONSTANT, value)


def _nearest(cv2: Any, image: np.ndarray, shape: Size, fill: Fill, sample: Sampler) -> np.ndarray:
    value = fill if isinstance(fill, tuple) else (fill,) * 4
    copied = filled(_as_bits(image), shape, None, 4, lambda part, to: sample(part, cv2.INTER_NEAREST, value, to))
    return copied.view(image.dtype).reshape(*shape, *image.shape[2:])


def _bilinear(cv2: Any, image: np.ndarray, shape: Size, fill: Fill, sample: Sampler) -> np.ndarray:
    if isinstance(fill, tuple) and image.ndim == 3 and image.shape[2] > 4:
        groups = [(image[..., first : first + 4], fill[first : first + 4]) for first in range(0, image.shape[2], 4)]
        return np.concatenate([_bilinear(cv2, np.ascontiguousarray(part), shape, values, sample) for part, values in groups], axis=2)
    value = fill if isinstance(fill, tuple) else (fill,) * 4

    def one(part: np.ndarray, to: np.ndarray | None) -> np.ndarray:
        """Sample three channels as four channels, which takes half the time, and two channels one by one."""
        channels, how = part.shape[2] if part.ndim == 3 else 1, cv2.INTER_LINEAR
        if channels in (1, 4) or (channels == 3 and max(part.size // 3, shape[0] * shape[1]) > _most_widened(part.dtype)):
            return sample(part, how, value, to)
        if channels == 2:
            return merged([sample(plane, how, value[place:], None) for place, plane in enumerate(channels_of(part))], to)
        wide, moved = (scratch(name, (*size, 4), part.dtype) for name, size in (("wide", part.shape[:2]), ("moved", shape)))
        narrow: np.ndarray = cv2.cvtColor(sample(cv2.cvtColor(part, cv2.COLOR_RGB2RGBA, wide), how, value, moved), cv2.COLOR_RGBA2RGB, to)
        return narrow

    return filled(image, shape, None, 4, one)


@cache
def _most_widened(dtype: np.dtype[Any]) -> int:
    """Return the number of pixels up to which three channels are faster as four channels. Larger images exceed the CPU caches."""
    if dtype == np.uint8:
        return 2**22
    cv2 = cv2_or_none()
    # In older versions of OpenCV, floats with four channels are slower.
    return 2**18 if cv2 and int(cv2.__version__.split(".")[0]) >= 5 else 0


def places(inverse: np.ndarray, shape: tuple[int, int]) -> tuple[np.ndarray, np.ndarray]:
    """Return x and y of the mapped centre of each output pixel. (0, 0) is the *centre* of the upper left pixel."""
    x, y = np.arange(shape[1]) + 0.5, np.arange(shape[0])[:, None] + 0.5
    found = [a * x + b * y + c for a, b, c in inverse]
    right, down = (place / found[2] if len(found) == 3 else place for place in found[:2])
    return right - 0.5, down - 0.5


def _places(inverse: np.ndarray, shape: tuple[int, int]) -> tuple[np.ndarray, np.ndarray]:
    """Return the column and row of the source pixel for each output pixel."""
    column, row = (np.floor(place + 0.5).astype(np.intp) for place in places(inverse, shape))
    return column, row


def _sample(image: np.ndarray, column: np.ndarray, row: np.ndarray, fill: Fill) -> np.ndarray:
    """Return the pixels at given columns and rows, and ``fill`` outside the image."""
    inside = (row >= 0) & (row < image.shape[0]) & (column >= 0) & (column < image.shape[1])
    result = np.empty(column.shape + image.shape[2:], image.dtype)
    result[...] = fill
    result[inside] = image[row[inside], column[inside]]
    return result


def _as_bits(image: np.ndarray) -> np.ndarray:
    """Return a view of an image in a dtype that OpenCV can copy. One long number becomes several channels."""
    size = image.dtype.itemsize
    kind = {1: np.uint8, 2: np.uint16}.get(size, np.float32)
    if size in (1, 2, 4):
        return np.ascontiguousarray(image).view(kind)
    planes = np.ascontiguousarray(image).reshape(*image.shape[:2], -1)
    return planes.view(kind)

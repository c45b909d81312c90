"""Plain functions on one image: ``(H, W, C)`` or ``(H, W)``, uint8 or floats, in RGB.

Dtype and channels are kept unless the text says otherwise. Results of uint8 are rounded and saturate; floats are computed in float32 and
never clipped, since their range is not known. What only moves pixels (flips, pad, crop, shift, and sampling of order 0) takes any dtype.
No function writes into its argument; a result may be the argument itself or a view of it. ``out`` may be filled and returned where its
shape and dtype fit.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Literal

import numpy as np
from numpy.random import Generator

from highway.images import ops, spline
from highway.images.ops import Interpolation, Size, computed_in_float32
from highway.renamed import with_old_names

Sampling = Literal["nearest", "bilinear", 0, 1, 2, 3, 4, 5]
Padding = Literal["constant", "edge", "linear_ramp", "maximum", "mean", "median", "minimum", "reflect", "symmetric", "wrap"]
Border = Literal["constant", "nearest", "reflect", "mirror", "wrap"]
PerChannel = float | tuple[float, ...]
Point = tuple[float, float]

# numpy's words for scipy.ndimage's; "reflect" is not the same in the two
_PADDINGS: dict[Border, Padding] = {"constant": "constant", "nearest": "edge", "reflect": "symmetric", "mirror": "reflect", "wrap": "wrap"}
LUMA = np.array([0.299, 0.587, 0.114], np.float32)  # ITU-R BT.601
IMAGENET_MEAN = (0.485, 0.456, 0.406)
IMAGENET_STD = (0.229, 0.224, 0.225)


def flip_x(image: np.ndarray, out: np.ndarray | None = None) -> np.ndarray:
    """Mirror left and right."""
    return ops.flip(image, 1, out)


def flip_y(image: np.ndarray, out: np.ndarray | None = None) -> np.ndarray:
    """Mirror top and bottom."""
    return ops.flip(image, 0, out)


def pad(image: np.ndarray, size: int | tuple[int, int] | tuple[tuple[int, int], tuple[int, int]], mode: Padding = "constant") -> np.ndarray:
    """Add pixels on each side.

    Args:
        image: Any dtype.
        size: Pixels on every side, or (above and below, left and right), or ((above, below), (left, right)).
        mode: What the new pixels hold, in the words of ``numpy.pad``: ``"constant"`` (0), ``"edge"``, ``"reflect"``, ``"symmetric"``,
            ``"wrap"``, ``"linear_ramp"``, ``"maximum"``, ``"mean"``, ``"median"`` or ``"minimum"``.
    """
    y, x = size if isinstance(size, (tuple, list)) else (size, size)
    sides = [side if isinstance(side, (tuple, list)) else (side, side) for side in (y, x)]
    return np.pad(image, [*sides, *[(0, 0)] * (image.ndim - 2)], mode=mode)


@with_old_names
def crop(image: np.ndarray, corner: tuple[int, int], size: tuple[int, int]) -> np.ndarray:
    """Cut out a box, as a view.

    Args:
        image: Any dtype.
        corner: The box's upper left corner, (row, column).
        size: The box's height and width.

    Raises:
        ValueError: the box is not within the image.
    """
    (top, left), (height, width) = corner, size
    if top < 0 or left < 0 or top + height > image.shape[0] or left + width > image.shape[1]:
        raise ValueError(
            f"crop: rows {top} to {top + height} and columns {left} to {left + width} are not within the image of "
            f"{image.shape[0]}x{image.shape[1]} (height x width); resize or pad it first"
        )
    return image[top : top + height, left : left + width]


def shift(image: np.ndarray, translation: tuple[int, int], mode: Border = "constant") -> np.ndarray:
    """Move the image by ``translation`` (down, right) whole pixels.

    Args:
        image: Any dtype.
        translation: Pixels down and right; negative ones move up and left.
        mode: What the pixels that come in hold, in the words of ``scipy.ndimage``, here for a row a b c d: ``"constant"`` (0),
            ``"nearest"`` (a a | a b c d | d d), ``"reflect"`` (b a | a b c d | d c), ``"mirror"`` (c b | a b c d | c b) or
            ``"wrap"`` (c d | a b c d | a b).
    """
    (down, right), (height, width) = translation, image.shape[:2]
    padded = pad(image, ((max(down, 0), max(-down, 0)), (max(right, 0), max(-right, 0))), _PADDINGS[mode])
    return crop(padded, (max(-down, 0), max(-right, 0)), (height, width))


@with_old_names
def resize(image: np.ndarray, shape: Size, interpolation: Interpolation = "bicubic", out: np.ndarray | None = None) -> np.ndarray:
    """Scale the image to ``shape`` (height, width).

    ``interpolation`` is ``"nearest"``, ``"bilinear"``, ``"bicubic"`` (or ``"cubic"``), ``"lanczos"`` or ``"area"``. With OpenCV only
    ``"area"`` antialiases when the image shrinks; with Pillow all but ``"nearest"`` do.
    """
    return image if image.shape[:2] == tuple(shape) else ops.scale(image, shape, interpolation, out)


@with_old_names
def rotate(image: np.ndarray, angle: float, interpolation: Sampling = "nearest", reshape: bool = False) -> np.ndarray:
    """Turn the image about its centre.

    Args:
        image: See above.
        angle: Degrees, counterclockwise as seen.
        interpolation: ``"nearest"``, ``"bilinear"``, or the order of a spline, 0 (nearest) to 5; from 2 on smoother and many times slower.
        reshape: Whether the result grows so that it holds the whole turned image; else it has the size of the image. New pixels are 0.
    """
    if angle % 360 == 0:
        return image
    size = image.shape[:2]
    return _sampled(image, rotation(size, angle, reshape), rotated_size(size, angle, reshape), interpolation)


@with_old_names
def clipped_zoom(image: np.ndarray, zoom_factor: float, interpolation: Sampling = "nearest", place: Point = (0.5, 0.5)) -> np.ndarray:
    """Scale the image and keep its size.

    Args:
        image: See above.
        zoom_factor: Below 1 there is a border of 0 about the smaller image; above 1 a window is cut out of the larger one.
        interpolation: As for :func:`rotate`.
        place: Where the smaller image, or the window, lies from top to bottom and from left to right, each 0 to 1; the centre by default.
    """
    if zoom_factor == 1:
        return image
    return _sampled(image, zooming(image.shape[:2], zoom_factor, place), image.shape[:2], interpolation)


def rotation(size: tuple[int, int], angle: float, reshape: bool = False) -> np.ndarray:
    """Return where :func:`rotate` sends the points of an image of ``size``: float64 ``(2, 3)``, for x, y and 1."""
    sine, cosine = (round(f(math.radians(angle)), 12) for f in (math.sin, math.cos))
    turn = np.array([[cosine, sine], [-sine, cosine]])
    centre, new_centre = (np.array([width, height]) / 2 for height, width in (size, rotated_size(size, angle, reshape)))
    return np.column_stack([turn, new_centre - turn @ centre])


def rotated_size(size: tuple[int, int], angle: float, reshape: bool) -> tuple[int, int]:
    """Return height and width of the result of :func:`rotate`."""
    if not reshape:
        return size
    sine, cosine = (abs(round(f(math.radians(angle)), 12)) for f in (math.sin, math.cos))
    height, width = size
    return math.ceil(round(height * cosine + width * sine, 6)), math.ceil(round(height * sine + width * cosine, 6))


def zooming(size: Size, factor: float, place: Point = (0.5, 0.5)) -> np.ndarray:
    """Return where :func:`clipped_zoom` sends the points of an image of ``size``: float64 ``(2, 3)``, for x, y and 1."""
    (height, width), (down, right) = size, place
    return np.array([[factor, 0, (1 - factor) * width * right], [0, factor, (1 - factor) * height * down]])


def move_points(points: np.ndarray, matrix: np.ndarray) -> np.ndarray:
    """Apply a ``(2, 3)`` matrix to points, float32 ``(N, 2)``."""
    moved: np.ndarray = points @ matrix[:, :2].T + matrix[:, 2]
    return moved.astype(np.float32)


@with_old_names
@computed_in_float32
def add_noise(image: np.ndarray, strength: float = 0.2, mu: float = 0.0, sigma: float = 50.0, rng: Generator | None = None) -> np.ndarray:
    """Add ``strength`` times normal noise of mean ``mu`` and deviation ``sigma`` to each value.

    The defaults are in grey levels, 0 to 255; for a float image that spans 0 to 1 give ``sigma`` in its units. Without ``rng`` the noise
    is another each time.
    """
    noise = (rng or np.random.default_rng()).standard_normal(image.shape, np.float32)
    noise *= strength * sigma
    noise += strength * mu
    noise += image
    return ops.saturated(noise, image.dtype)


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


def _linear(image: np.ndarray, scale: float, offset: float) -> np.ndarray:
    if scale == 1 and offset == 0:
        return image
    if image.dtype == np.uint8:
        return ops.lookup(image, ops.saturated(np.arange(256) * scale + offset, image.dtype))
    result: np.ndarray = image * np.float32(scale) + np.float32(offset)
    return result


def _sampled(image: np.ndarray, matrix: np.ndarray, shape: Size, interpolation: Sampling) -> np.ndarray:
    linear = np.linalg.inv(matrix[:, :2])
    inverse = np.column_stack([linear, -linear @ matrix[:, 2]])
    if interpolation in ("nearest", 0, "bilinear", 1):
        return ops.warp(image, inverse, shape, "nearest" if interpolation in ("nearest", 0) else "bilinear")
    return _warp(image, inverse, shape, int(interpolation))


@computed_in_float32
def _warp(image: np.ndarray, inverse: np.ndarray, shape: Size, order: int) -> np.ndarray:
    return ops.saturated(spline.warp(image, inverse, shape, order), image.dtype)


def _is_grey(image: np.ndarray, what: str) -> bool:
    channels = image.shape[2] if image.ndim == 3 else 1
    if channels not in (1, 3):
        raise ValueError(f"{what}: the image has {channels} channels; expected 1 or 3 (RGB)")
    return channels == 1

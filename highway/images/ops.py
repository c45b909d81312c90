"""Pixel operations. They use OpenCV if it is installed (the extra ``fast``), otherwise Pillow and NumPy, which are slower.

Flips, lookup tables and nearest neighbour sampling return exactly the same results with and without OpenCV. Resizing differs if an image
becomes smaller: OpenCV averages pixels (antialiasing) only with ``"area"``, but Pillow with every method except ``"nearest"``. Warping and
mixing differ by rounding. Warping also differs on the outermost half pixel.

An ``out`` argument is optional memory for the result. If its shape and dtype fit, a function can write the result into ``out``, and return
``out``. Otherwise, it returns a new array.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache, wraps
from typing import Any, Concatenate, Literal, ParamSpec

import numpy as np
from PIL import Image

Size = tuple[int, int]  # height, width in pixels
Box = tuple[int, int, int, int]  # top, left, height, width in pixels
Interpolation = Literal["nearest", "bilinear", "bicubic", "cubic", "lanczos", "area"]
P = ParamSpec("P")
MOST_CHANNELS = 128  # maximum number of channels of an image in OpenCV

_FILTERS = {  # from the name of an interpolation to the constants of OpenCV and Pillow
    "bilinear": ("INTER_LINEAR", Image.Resampling.BILINEAR),
    "bicubic": ("INTER_CUBIC", Image.Resampling.BICUBIC),
    "cubic": ("INTER_CUBIC", Image.Resampling.BICUBIC),
    "lanczos": ("INTER_LANCZOS4", Image.Resampling.LANCZOS),
    "area": ("INTER_AREA", Image.Resampling.BOX),
}
NATIVE = (np.dtype(np.uint8), np.dtype(np.float32))
_FEW = ((3,), (), (1,), (4,), (2,))  # numbers of channels, the most frequent first


@cache
def cv2_or_none() -> Any:
    """Return the module ``cv2``, or ``None`` if it is not installed. OpenCV's threads are disabled, because highway has its own."""
    try:
        import cv2
    except ModuleNotFoundError:
        return None
    cv2.setNumThreads(0)
    return cv2


def computed_in_float32(operation: Callable[Concatenate[np.ndarray, P], np.ndarray]) -> Callable[Concatenate[np.ndarray, P], np.ndarray]:
    """Extend an operation on uint8 and float32 images to float16 and float64 images, and keep their dtype. Other dtypes raise TypeError."""

    @wraps(operation)
    def run(image: np.ndarray, /, *args: P.args, **kwargs: P.kwargs) -> np.ndarray:
        if image.dtype in NATIVE:
            return operation(image, *args, **kwargs)
        if image.dtype.kind != "f":
            name = operation.__name__.strip("_")
            raise TypeError(f"{name}: the image is {image.dtype}; expected uint8 or a float type: convert it with astype()")
        return operation(image.astype(np.float32), *args, **kwargs).astype(image.dtype)

    return run


def usable(out: np.ndarray | None, shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray | None:
    """Return ``out`` if it is contiguous and has this shape and dtype, otherwise ``None``."""
    return out if out is not None and out.shape == shape and out.dtype == dtype and out.flags.c_contiguous else None


def flip(image: np.ndarray, axis: Literal[0, 1], out: np.ndarray | None = None) -> np.ndarray:
    """Reverse the rows (axis 0) or columns (axis 1) of an image of any dtype."""
    channels = image.shape[2:]
    if image.dtype in NATIVE and channels in _FEW and (cv2 := cv2_or_none()):
        if channels == (1,):  # OpenCV would drop the axis of the channels
            return filled(image, image.shape[:2], out, 4, lambda part, to: cv2.flip(part, axis, to))
        flipped: np.ndarray = cv2.flip(image, axis, None if out is None else usable(out, image.shape, image.dtype))
        return flipped
    target = usable(out, image.shape, image.dtype)
    target = np.empty(image.shape, image.dtype) if target is None else target
    target[...] = np.flip(image, axis)
    return target


def scale(image: np.ndarray, shape: Size, interpolation: Interpolation = "bilinear", out: np.ndarray | None = None) -> np.ndarray:
    """Resize an image to ``shape`` (height, width). With ``"nearest"``, any dtype is allowed. Otherwise, uint8 or floats are required."""
    if interpolation == "nearest":
        rows, columns = (((np.arange(new) + 0.5) * old / new).astype(np.intp) for new, old in zip(shape, image.shape, strict=False))
        sampled: np.ndarray = image.take(rows, axis=0).take(columns, axis=1)
        return sampled
    return _resize(image, shape, interpolation, out)


@computed_in_float32
def _resize(image: np.ndarray, shape: tuple[int, int], interpolation: Interpolation, out: np.ndarray | None) -> np.ndarray:
    size, (name, resample) = (shape[1], shape[0]), _FILTERS[interpolation]
    if cv2 := cv2_or_none():
        flag = getattr(cv2, name)
        return filled(image, shape, out, 4, lambda part, to: cv2.resize(part, size, to, 0, 0, flag))
    return filled(image, shape, out, pillow_channels(image), lambda part, _: np.asarray(Image.fromarray(part).resize(size, resample)))


@cache
def translate_or_none() -> Callable[..., Any] | None:
    """Return the lookup function of stringzilla, or ``None`` if it is not installed. It is ten times as fast as OpenCV."""
    try:
        from stringzilla import translate
    except ModuleNotFoundError:
        return None
    found: Callable[..., Any] = translate
    return found


def lookup(image: np.ndarray, table: np.ndarray) -> np.ndarray:
    """Replace each value ``v`` of a uint8 image by ``table[v]``.

    Args:
        image: uint8.
        table: uint8 ``(256,)``, or ``(C, 256)`` with one table for each channel of an image ``(H, W, C)``.
    """
    if table.ndim == 2:
        return merged([lookup(plane, one) for plane, one in zip(channels_of(image), table, strict=True)])
    target = np.empty(image.shape, np.uint8)
    if (translate := translate_or_none()) and image.size:
        source = image if image.flags.c_contiguous else np.ascontiguousarray(image)
        translate(source.data, table.tobytes(), out=target.data)
    elif cv2 := cv2_or_none():
        cv2.LUT(image.reshape(len(image), -1), table, dst=target.reshape(len(image), -1))
    else:
        table.take(image, out=target, mode="clip")
    return target


def channels_of(image: np.ndarray) -> Sequence[np.ndarray]:
    """Return the channels of an image ``(H, W, C)``, uint8 or floats, as separate ``(H, W)`` arrays."""
    if (cv2 := cv2_or_none()) and image.size and image.shape[2] <= MOST_CHANNELS:
        planes: Sequence[np.ndarray] = cv2.split(image)
        return planes
    return [np.ascontiguousarray(image[..., channel]) for channel in range(image.shape[2])]


def merged(channels: Sequence[np.ndarray], out: np.ndarray | None = None) -> np.ndarray:
    """Return ``(H, W)`` channels as one image ``(H, W, C)``."""
    target = usable(out, (*channels[0].shape, len(channels)), channels[0].dtype)
    if (cv2 := cv2_or_none()) and 1 < len(channels) <= MOST_CHANNELS and channels[0].size:
        together: np.ndarray = cv2.merge(channels, target)
        return together
    return np.stack(channels, axis=-1, out=target)


def histograms(image: np.ndarray) -> np.ndarray:
    """Return the histogram of each channel of a uint8 image: int64 ``(C, 256)``."""
    planes = image[..., None] if image.ndim == 2 else image
    if cv2 := cv2_or_none():
        part = np.ascontiguousarray(planes)
        counts = [cv2.calcHist([part], [channel], None, [256], [0, 256]).ravel() for channel in range(planes.shape[2])]
        return np.array(counts).astype(np.int64)
    return np.array([np.bincount(planes[..., channel].ravel(), minlength=256) for channel in range(planes.shape[2])])


def sums(image: np.ndarray) -> np.ndarray:
    """Return the sum of each channel. The sums are exact for uint8, and float64 for floats."""
    channels = image.shape[2] if image.ndim == 3 else 1
    if (cv2 := cv2_or_none()) and image.dtype == np.uint8 and channels <= 4 and image.size:
        return np.array(cv2.sumElems(image)[:channels])
    columns = image.sum(axis=0, dtype=np.float64 if image.dtype.kind == "f" else np.int64)
    total: np.ndarray = columns.reshape(image.shape[1], -1).sum(axis=0)
    return total


def mean_and_deviation(image: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the mean and the standard deviation of each channel, float64 ``(C,)``."""
    planes = image[..., None] if image.ndim == 2 else image
    if (cv2 := cv2_or_none()) and planes.shape[2] <= 4 and planes.size:
        mean, deviation = cv2.meanStdDev(planes)
        return mean[:, 0], deviation[:, 0]
    flat = planes.reshape(-1, planes.shape[2]).astype(np.float64)
    return flat.mean(axis=0), flat.std(axis=0)


def by_channels(image: np.ndarray, operation: Callable[[np.ndarray], np.ndarray], most: int = MOST_CHANNELS) -> np.ndarray:
    """Apply an operation to an image with any number of channels. The operation supports ``(H, W)``, and 2 to ``most`` channels."""
    return filled(image, image.shape[:2], None, most, lambda part, _: operation(part))


def mix(image: np.ndarray, matrix: np.ndarray) -> np.ndarray:
    """Multiply each pixel of a uint8 or float32 image ``(H, W, 3)`` by a float32 matrix ``(C, 3)``. Round and clip uint8 results."""
    if cv2 := cv2_or_none():
        mixed: np.ndarray = cv2.transform(image, matrix).reshape(*image.shape[:2], len(matrix))
        return mixed
    return saturated(image.astype(np.float32) @ matrix.T, image.dtype)


def saturated(values: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """Return floats as float32, or as uint8, rounded and clipped to the range from 0 to 255."""
    if dtype != np.uint8:
        return values.astype(np.float32, copy=False)
    whole = np.rint(values)
    clipped: np.ndarray = whole.clip(0, 255, out=whole)
    return clipped.astype(np.uint8)


def expect_shares(image: np.ndarray, function: str, advice: str) -> None:
    """Raise ValueError if a float image has a value above 1.5. Values slightly above 1 are allowed, because transforms can cause them."""
    if image.size and (greatest := float(image.max())) > 1.5:
        raise ValueError(f"{function}: an image of floats with values up to {greatest:g}; expected 0 to 1; {advice}")


def native(image: np.ndarray) -> bool:
    """Return whether OpenCV and Pillow support the dtype of the image."""
    return image.dtype in NATIVE


def movable(image: np.ndarray) -> bool:
    """Return whether OpenCV can move the pixels of an image directly: a native dtype, and at most four channels."""
    return image.dtype in NATIVE and image.shape[2:] in _FEW


def pillow_channels(image: np.ndarray) -> int:
    """Return how many channels Pillow can process at once: three for RGB uint8, else one. Pillow would treat a fourth channel as alpha."""
    return 3 if image.dtype == np.uint8 and image.ndim == 3 and image.shape[2] == 3 else 1


Operation = Callable[[np.ndarray, np.ndarray | None], np.ndarray]


def filled(image: np.ndarray, shape: tuple[int, int], out: np.ndarray | None, most: int, operation: Operation) -> np.ndarray:
    """Like :func:`by_channels`, for an operation that can write its result into its second argument. Use ``out`` if possible."""
    whole = image.ndim == 2 or 1 < image.shape[2] <= most
    if out is None and whole:
        return operation(image, None)
    full = (*shape, *image.shape[2:])
    out = usable(out, full, image.dtype)
    if whole:
        result = operation(image, out)
        if out is None or result is out:
            return result
        out[...] = result  # OpenCV has not written into ``out``
        return out
    planes: list[np.ndarray] = []
    channels = channels_of(image)
    for first in range(0, len(channels), most):
        group = channels[first : first + most]
        done = operation(group[0] if len(group) == 1 else merged(group), None)
        planes += [done] if len(group) == 1 else channels_of(done)
    return merged(planes, out)

"""Decode image files to uint8 RGB: a whole image, or a box scaled into a row of a batch. Only this module selects decoders.

JPEGs are decoded by the first of these that is installed: highway's C extension, simplejpeg, OpenCV, Pillow. The C extension stops decoding
at the end of the box. If OpenCV is installed, it decodes PNG and BMP. Pillow decodes GIF (the first picture), PPM, TIFF, WEBP and CMYK. Any
other format raises an error. The result is always ``(H, W, 3)`` uint8 in RGB, upright (Exif's orientation is applied). Grey values are
repeated three times, palettes are resolved, 16-bit values are reduced to the high byte, and alpha is dropped without blending.

JPEGs are decoded with the fast inverse DCT and the fast chroma upsampling, which is 7% faster. The result differs from the exact result by
1 to 2 of 255 levels on average, which is less than the loss by compression. If a box is at least twice as large as its output in both
directions, the decoder decodes the box at 1/2, 1/4 or 1/8 of its size, and the result is interpolated. Decoding at a smaller size is
faster, and causes less aliasing because the decoder averages pixels.

A truncated file raises an error with every decoder. Damage inside a JPEG raises an error with simplejpeg. With the extension, damage raises
an error if it is before the end of the box. OpenCV and Pillow ignore such damage.
"""

from __future__ import annotations

import logging
from functools import cache
from typing import Any

import numpy as np

from highway.errors import ImageError
from highway.images.header import Header, opened, read_header
from highway.images.ops import Box, Size, cv2_or_none, flip, scale
from highway.images.sampling import warp

log = logging.getLogger("highway")

MAX_PIXELS = 1 << 26  # a larger image raises an error before memory is allocated (an image of this size has 201 MB)
EXTENSION = "highway._jpeg"  # the extension's name in counters, receivers and `highway doctor`
_EXTENSION_API = 4  # the version of the extension's functions
_REDUCTIONS = (8, 4, 2)
_ROWS_REVERSED = (3, 4, 7, 8)  # Exif orientations with reversed rows (or columns); from 5 on, rows and columns are swapped first
_COLUMNS_REVERSED = (2, 3, 6, 7)
_CV2_FORMATS = ("JPEG", "PNG", "BMP")


@cache
def extension_or_none() -> Any:
    """Return the module ``highway.images._jpeg``, or ``None`` if it is missing, or built for another version of highway or libjpeg."""
    try:
        import highway.images._jpeg as extension
    except ImportError:
        return None
    if getattr(extension, "API", 1) != _EXTENSION_API:
        log.warning("the C extension was built for another version of highway, so it is not used: install highway-data again")
        return None
    return extension


@cache
def simplejpeg_or_none() -> Any:
    """Return the module ``simplejpeg``; ``None`` if it is not installed."""
    try:
        import simplejpeg
    except ModuleNotFoundError:
        return None
    return simplejpeg


def backend() -> str:
    """Return the fastest installed decoder of JPEGs: ``"highway._jpeg"``, ``"simplejpeg"``, ``"cv2"`` or ``"pillow"``."""
    if extension_or_none():
        return EXTENSION
    if simplejpeg_or_none():
        return "simplejpeg"
    return "cv2" if cv2_or_none() else "pillow"


def decode(data: bytes, max_pixels: int = MAX_PIXELS) -> np.ndarray:
    """Decode a whole image file.

    Args:
        data: The file's bytes.
        max_pixels: Maximum number of pixels (height x width) in the file's header.

    Returns:
        uint8 ``(H, W, 3)`` in RGB.

    Raises:
        ImageError: the bytes are not an image, are damaged or truncated, or the header has more pixels than ``max_pixels``.
    """
    header = checked_header(data, max_pixels)
    return np.ascontiguousarray(_upright(_pixels(data, header, 1), header.orientation))


def checked_header(data: bytes, max_pixels: int = MAX_PIXELS) -> Header:
    """Return the header of an image file. Raises the errors of :func:`decode`, for example if the image is too large."""
    header = read_header(data)
    if header.height * header.width > max_pixels:
        raise ImageError(
            f"the header declares {header.height} x {header.width} pixels, more than max_pixels={max_pixels}; raise max_pixels if you "
            "trust the file, or shrink the image"
        )
    return header


def decode_crop(data: bytes, header: Header, box: Box, out: np.ndarray, flipped: bool = False, antialias: bool = False) -> None:
    """Decode a box of an image and scale it into ``out``.

    Args:
        data: The file's bytes.
        header: The header from :func:`checked_header`.
        box: Top, left, height and width of a box within the upright image, in pixels.
        out: uint8 ``(H, W, 3)``, contiguous: a row of a batch.
        flipped: Whether to mirror the result left to right.
        antialias: Whether to average over all source pixels when the image shrinks, which is slower. Without OpenCV, pixels are always
            averaged.

    Raises:
        ImageError: the bytes are damaged or truncated.
        ValueError: the box is not within the image.
    """
    box, shape = _as_stored(box, header), out.shape[:2] if header.orientation < 5 else out.shape[1::-1]
    upright, reduction = header.orientation == 1, _reduction(box, shape)
    if extension := _extension_for(header):
        part = out if upright else np.empty((*shape, 3), np.uint8)
        _by_extension(extension, data, header, box, part, reduction, flipped and upright, antialias)
        flipped = flipped and not upright
    else:
        part = _scaled(_pixels(data, header, reduction), header, box, shape, antialias, out if upright else None)
    if not upright:
        part = np.ascontiguousarray(_upright(part, header.orientation))
    if flipped:
        flip(part, 1, out=out)
    elif part is not out:
        out[...] = part


def _as_stored(box: Box, header: Header) -> Box:
    """Convert a box of the upright image to the coordinates of the stored image."""
    (height, width), (top, left, rows, columns) = header.size, box
    if not (0 <= top < top + rows <= height and 0 <= left < left + columns <= width):
        raise ValueError(f"the box (top, left, height, width) = {box} extends beyond the image of {height} x {width} pixels")
    top = height - top - rows if header.orientation in _ROWS_REVERSED else top
    left = width - left - columns if header.orientation in _COLUMNS_REVERSED else left
    return (left, top, columns, rows) if header.orientation >= 5 else (top, left, rows, columns)


def _upright(pixels: np.ndarray, orientation: int) -> np.ndarray:
    """Return an upright view of an image."""
    if orientation >= 5:
        pixels = pixels.swapaxes(0, 1)
    if orientation in _ROWS_REVERSED:
        pixels = pixels[::-1]
    return pixels[:, ::-1] if orientation in _COLUMNS_REVERSED else pixels


def _scaled(pixels: np.ndarray, header: Header, box: Box, shape: Size, antialias: bool, out: np.ndarray | None) -> np.ndarray:
    """Scale the box of a decoded image to ``shape``, into ``out`` if possible. The decoder might have reduced the size of ``pixels``."""
    top, left, rows, columns = box
    sizes = {(-(-header.height // by), -(-header.width // by)): by for by in (*_REDUCTIONS, 1)}
    by = sizes.get(pixels.shape[:2], 0)  # by: the reduction that the decoder has applied
    if by == 0:
        raise ImageError(
            f"the header declares {header.height} x {header.width} pixels, but the file contains {pixels.shape[0]} x {pixels.shape[1]}"
        )
    if by > 1:
        inverse = np.array([[columns / by / shape[1], 0, left / by], [0, rows / by / shape[0], top / by]])
        return warp(pixels, inverse, shape)
    part = pixels[top : top + rows, left : left + columns]
    if (rows, columns) == shape:
        return part
    return scale(part, shape, "area" if antialias and (rows > shape[0] or columns > shape[1]) else "bilinear", out=out)


def _reduction(box: Box, shape: Size) -> int:
    """Return the largest reduction of the image at which the box is at least as large as the output."""
    times = min(box[2] // shape[0], box[3] // shape[1])
    return next((by for by in _REDUCTIONS if times >= by), 1)


def _pixels(data: bytes, header: Header, reduction: int) -> np.ndarray:
    """Decode an image in its stored orientation. If the decoder supports reductions, reduce both sides."""
    if extension := _extension_for(header):
        whole = np.empty((header.height, header.width, 3), np.uint8)
        _by_extension(extension, data, header, (0, 0, header.height, header.width), whole)
        return whole
    try:
        if header.channels != 4:
            if header.format == "JPEG" and simplejpeg_or_none():
                return _by_simplejpeg(data, header, reduction)
            if header.format in _CV2_FORMATS and (cv2 := cv2_or_none()):
                return _by_cv2(cv2, data, header, reduction)
        return _by_pillow(data, header, reduction)
    except (MemoryError, ImageError):
        raise
    except Exception as error:  # decoders raise many types of errors for hostile bytes: OSError, SyntaxError, struct.error, zlib.error, ...
        raise _damaged(header, error) from error


def _damaged(header: Header, why: object) -> ImageError:
    return ImageError(f"the {header.format} is damaged or truncated: {why}")


def _extension_for(header: Header) -> Any:
    """Return the extension if it is installed and decodes this format, otherwise ``None``."""
    return extension_or_none() if header.format == "JPEG" and header.channels != 4 else None


def _by_extension(
    extension: Any, data: bytes, header: Header, box: Box, out: np.ndarray, by: int = 1, flipped: bool = False, antialias: bool = False
) -> None:
    """Decode a box of the stored image and scale it into ``out``."""
    try:
        extension.decode_crop(data, (header.height, header.width), box, by, out, flipped, antialias)
    except ValueError as error:
        raise _damaged(header, error) from error


def _by_simplejpeg(data: bytes, header: Header, reduction: int) -> np.ndarray:
    least = {}
    if reduction > 1:
        least = {"min_height": -(-header.height // reduction), "min_width": -(-header.width // reduction), "min_factor": reduction}
    pixels: np.ndarray = simplejpeg_or_none().decode_jpeg(data, fastdct=True, fastupsample=True, **least)
    return pixels


def _by_cv2(cv2: Any, data: bytes, header: Header, reduction: int) -> np.ndarray:
    if header.format == "JPEG" and data.find(b"\xff\xd9", data.find(b"\xff\xda")) < 0:
        raise ImageError("the JPEG is truncated: it has no end marker")  # OpenCV would fill the rest with grey and report no error
    flags = cv2.IMREAD_COLOR if reduction == 1 or header.format != "JPEG" else getattr(cv2, f"IMREAD_REDUCED_COLOR_{reduction}")
    pixels: np.ndarray | None = cv2.imdecode(np.frombuffer(data, np.uint8), flags | cv2.IMREAD_IGNORE_ORIENTATION)
    if pixels is None:
        raise _damaged(header, "OpenCV cannot decode it")
    cv2.cvtColor(pixels, cv2.COLOR_BGR2RGB, dst=pixels)
    return pixels


def _by_pillow(data: bytes, header: Header, reduction: int) -> np.ndarray:
    with opened(data) as image:
        if reduction > 1 and header.channels != 4:
            image.draft("RGB", (header.width // reduction, header.height // reduction))
        if image.mode.startswith("I"):  # 16-bit grey: Pillow's own conversion would clip
            grey = (np.asarray(image) >> 8).clip(0, 255).astype(np.uint8)
            return np.repeat(grey[..., None], 3, axis=2)
        return np.asarray(image.convert("RGB"))

"""Decode image files to uint8 RGB: a whole image, or a box that is scaled into a row of a batch. Only this module selects decoders.

The decoder for JPEGs is the first of the following that is installed: the C extension of highway, simplejpeg, OpenCV, Pillow. The C
extension stops decoding at the end of the box. OpenCV, if installed, decodes PNG and BMP. Pillow decodes GIF (the first picture), PPM,
TIFF, WEBP and JPEGs in CMYK. Any other format raises an error. The result is always ``(H, W, 3)`` uint8 in RGB. It is upright: the
orientation in the Exif data is applied. Grey values are repeated three times. The colours of palettes are looked up. 16-bit values are
reduced to their high byte. Alpha is dropped without blending.

The C extension and simplejpeg use the fast inverse DCT and the fast chroma upsampling, which takes 7% less time. The result differs from
the exact result by 1 to 2 of 255 levels on average. This is less than the loss by compression. If a box is at least twice as large as its
output in both directions, the decoder decodes the box at 1/2, 1/4 or 1/8 of its size. The result is then interpolated. This is faster, and
causes less aliasing, because the decoder averages pixels.

A truncated file raises an error with every decoder. Damage inside a JPEG raises an error with simplejpeg. With the C extension, only damage
before the end of the box raises an error. OpenCV and Pillow ignore damage inside a JPEG.
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
EXTENSION = "highway._jpeg"  # the name of the C extension in counters, in warnings and in `highway doctor`
_EXTENSION_API = 4  # the version of the functions in the C extension
_REDUCTIONS = (8, 4, 2)
# Exif orientations with reversed rows, and with reversed columns; for 5 to 8, rows and columns are swapped first.
_ROWS_REVERSED = (3, 4, 7, 8)
_COLUMNS_REVERSED = (2, 3, 6, 7)
_CV2_FORMATS = ("JPEG", "PNG", "BMP")


@cache
def extension_or_none() -> Any:
    """Return the C extension, or ``None`` if it is missing, or was built for another version of highway or libjpeg."""
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
    """Return the module ``simplejpeg``, or ``None`` if it is not installed."""
    try:
        import simplejpeg
    except ModuleNotFoundError:
        return None
    return simplejpeg


def backend() -> str:
    """Return the name of the fastest installed decoder for JPEGs: ``"highway._jpeg"``, ``"simplejpeg"``, ``"cv2"`` or ``"pillow"``."""
    if extension_or_none():
        return EXTENSION
    if simplejpeg_or_none():
        return "simplejpeg"
    return "cv2" if cv2_or_none() else "pillow"


def decode(data: bytes, max_pixels: int = MAX_PIXELS) -> np.ndarray:
    """Decode a whole image file.

    Args:
        data: The bytes of the file.
        max_pixels: Maximum number of pixels (height x width) in the header of the file.

    Returns:
        uint8 ``(H, W, 3)`` in RGB.

    Raises:
        ImageError: the bytes are not an image, are damaged or truncated, or the header declares more than ``max_pixels`` pixels.
    """
    header = checked_header(data, max_pixels)
    return np.ascontiguousarray(_upright(_pixels(data, header, 1), header.orientation))


def checked_header(data: bytes, max_pixels: int = MAX_PIXELS) -> Header:
    """Return the header of an image file. Raises ImageError for the reasons listed in :func:`decode`."""
    header = read_header(data)
    if header.height * header.width > max_pixels:
        raise ImageError(
            f"the header declares {header.height} x {header.width} pixels, more than max_pixels={max_pixels}; raise max_pixels if you "
            "trust the file, or shrink the image"
        )
    return header


def decode_crop(data: bytes, header: Header, box: Box, out: np.ndarray, flipped: bool = False, antialias: bool = False) -> None:
    """Decode a box of an image, and scale it into ``out``.

    Args:
        data: The bytes of the file.
        header: The header from :func:`checked_header`.
        box: Top, left, height and width of a box in the upright image, in pixels.
        out: uint8 ``(H, W, 3)``, contiguous: a row of a batch.
        flipped: Whether to mirror the result left to right.
        antialias: Whether to average all source pixels of an output pixel if the box becomes smaller. This is slower. If Pillow scales the
            box, pixels are always averaged.

    Raises:
        ImageError: the bytes are damaged or truncated.
        ValueError: the box is not completely inside the image.
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
    """Scale a box of a decoded image to ``shape``, into ``out`` if possible. The decoder might have reduced the size of ``pixels``."""
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
    """Return the largest reduction (8, 4, 2 or 1) after which the box is at least as large as the output."""
    times = min(box[2] // shape[0], box[3] // shape[1])
    return next((by for by in _REDUCTIONS if times >= by), 1)


def _pixels(data: bytes, header: Header, reduction: int) -> np.ndarray:
    """Decode an image without applying its orientation. If the decoder supports it, reduce both sides by ``reduction``."""
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
    """Return the C extension if it is installed and decodes this format, otherwise ``None``."""
    return extension_or_none() if header.format == "JPEG" and header.channels != 4 else None


def _by_extension(
    extension: Any, data: bytes, header: Header, box: Box, out: np.ndarray, by: int = 1, flipped: bool = False, antialias: bool = False
) -> None:
    """Decode a box of the stored image, and scale it into ``out``."""
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
        raise ImageError("the JPEG is truncated: it has no end marker")  # OpenCV would fill the missing pixels with grey without an error
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
        if image.mode.startswith("I"):  # 16-bit grey: convert("RGB") would clip the values
            grey = (np.asarray(image) >> 8).clip(0, 255).astype(np.uint8)
            return np.repeat(grey[..., None], 3, axis=2)
        return np.asarray(image.convert("RGB"))

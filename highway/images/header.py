"""Read the size and orientation of an image from the first bytes of its file, without decoding the image.

This module itself reads the headers of JPEG (ITU T.81, annex B), PNG (ISO/IEC 15948) and BMP (Microsoft's BITMAPINFOHEADER and the older
BITMAPCOREHEADER), and the orientation of Exif 2.3. Pillow reads the headers of GIF, PPM, TIFF and WEBP. Pillow must not open any other
format, because some formats start other programs. For example, EPS starts Ghostscript.
"""

from __future__ import annotations

import io
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import NamedTuple

from PIL import Image, UnidentifiedImageError

from highway.errors import ImageError

FORMATS = ("BMP", "GIF", "JPEG", "PNG", "PPM", "TIFF", "WEBP")  # the names of the supported formats, as in Pillow

_EXIF = b"Exif\0\0"
_ORIENTATION = 0x0112
_NO_SEGMENT = {0x01, *range(0xD0, 0xD8)}  # markers without a segment: TEM, RST0 to RST7
_FRAMES = {*range(0xC0, 0xD0)} - {0xC4, 0xC8, 0xCC}  # the SOFn markers, which contain the size


class Header(NamedTuple):
    """The header of an image file.

    Args:
        format: One of :data:`FORMATS`.
        height: Number of stored rows, before the orientation is applied.
        width: Number of stored columns, before the orientation is applied.
        orientation: The orientation of Exif, from 1 to 8. 1 means upright. If it is at least 5, height and width are exchanged.
        channels: Number of colour components of a JPEG (1, 3, or 4 for CMYK). 0 for other formats.
    """

    format: str
    height: int
    width: int
    orientation: int = 1
    channels: int = 0

    @property
    def size(self) -> tuple[int, int]:
        """Height and width of the upright image in pixels."""
        return (self.width, self.height) if self.orientation >= 5 else (self.height, self.width)


def read_header(data: bytes) -> Header:
    """Read the header of an image file.

    Raises:
        ImageError: the bytes are empty, have an unknown format, or end within the header.
    """
    if not data:
        raise ImageError("the file is empty")
    try:
        for magic, read in _READERS.items():
            if data.startswith(magic):
                return read(data)
        return _ask_pillow(data)
    except (struct.error, IndexError):
        raise ImageError(f"the file ends within its header, after {len(data)} bytes") from None


def _jpeg(data: bytes) -> Header:
    orientation, at = 1, 2
    while True:
        if data[at] != 0xFF:
            raise ImageError(f"not a JPEG: expected a marker (0xff) at byte {at}, found {data[at]:#04x}")
        while data[at] == 0xFF:  # any number of fill bytes can precede a marker
            at += 1
        marker, at = data[at], at + 1
        if marker in _NO_SEGMENT:
            continue
        (length,) = struct.unpack_from(">H", data, at)
        if marker in _FRAMES:
            height, width, channels = struct.unpack_from(">HHB", data, at + 3)
            return _checked(Header("JPEG", height, width, orientation, channels))
        if marker == 0xE1 and data.startswith(_EXIF, at + 2):
            orientation = _exif_orientation(data[at + 2 + len(_EXIF) : at + length])
        at += length


def _png(data: bytes) -> Header:
    """Read the header, and check that all chunks are complete. Some decoders would allocate memory for a chunk before they check this."""
    first, width, height = struct.unpack_from(">4sII", data, 12)
    if first != b"IHDR":
        raise ImageError(f"not a PNG: expected the chunk IHDR first, found {first!r}")
    orientation, at, kind = 1, 8, b""
    while kind != b"IEND":
        length, kind = struct.unpack_from(">I4s", data, at) if at + 8 <= len(data) else (len(data), b"IEND")
        if at + 12 + length > len(data):
            raise ImageError(
                f"the PNG is damaged or truncated: the chunk at byte {at} extends beyond the end of the file at byte {len(data)}"
            )
        if kind == b"eXIf":
            orientation = _exif_orientation(data[at + 8 : at + 8 + length])
        at += length + 12
    return _checked(Header("PNG", height, width, orientation))


def _bmp(data: bytes) -> Header:
    (kind,) = struct.unpack_from("<I", data, 14)
    width, height = struct.unpack_from("<HH" if kind == 12 else "<ii", data, 18)
    return _checked(Header("BMP", abs(height), width))  # a negative height means that the top row comes first


@contextmanager
def opened(data: bytes) -> Iterator[Image.Image]:
    """Open an image of one of the :data:`FORMATS` with Pillow.

    Raises:
        ImageError: the image does not have one of these formats, cannot be read, or has more pixels than Pillow allows.
    """
    try:
        with Image.open(io.BytesIO(data), formats=FORMATS) as image:
            limit = Image.MAX_IMAGE_PIXELS
            if limit is not None and image.height * image.width > limit:  # Pillow only issues a warning in this case
                raise Image.DecompressionBombError(f"the header declares {image.height} x {image.width} pixels")
            yield image
    except UnidentifiedImageError:
        raise ImageError(f"not an image: the file begins with {data[:12]!r}; expected one of {', '.join(FORMATS)}") from None
    except (Image.DecompressionBombError, Image.DecompressionBombWarning) as error:
        raise ImageError(
            f"Pillow treats the file as a decompression bomb: {error}; if you trust the file, raise PIL.Image.MAX_IMAGE_PIXELS (now "
            f"{Image.MAX_IMAGE_PIXELS}) and max_pixels"
        ) from error


def _ask_pillow(data: bytes) -> Header:
    try:
        with opened(data) as image:
            return _checked(Header(image.format or "", image.height, image.width, _valid(image.getexif().get(_ORIENTATION))))
    except (OSError, SyntaxError) as error:
        raise ImageError(f"not an image that can be read: {error}") from error


def _checked(header: Header) -> Header:
    if header.height < 1 or header.width < 1:
        raise ImageError(f"a {header.format} of height {header.height} and width {header.width}; expected at least 1 x 1 pixels")
    return header


def _exif_orientation(tiff: bytes) -> int:
    """Return the orientation in an Exif block, or 1 if the block has no orientation or is damaged."""
    with suppress(KeyError, struct.error):
        order = {b"II": "<", b"MM": ">"}[tiff[:2]]
        (at,) = struct.unpack_from(order + "I", tiff, 4)
        (entries,) = struct.unpack_from(order + "H", tiff, at)
        for entry in range(entries):
            tag, kind, _, value = struct.unpack_from(order + "HHIH", tiff, at + 2 + 12 * entry)
            if tag == _ORIENTATION and kind == 3:
                return _valid(value)
    return 1


def _valid(orientation: object) -> int:
    return orientation if isinstance(orientation, int) and 1 <= orientation <= 8 else 1


_READERS: dict[bytes, Callable[[bytes], Header]] = {b"\xff\xd8": _jpeg, b"\x89PNG\r\n\x1a\n": _png, b"BM": _bmp}

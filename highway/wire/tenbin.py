"""The tenbin format. :mod:`highway.wire.chunks` puts several arrays into one buffer. The public module is :mod:`highway.tenbin`.

Every array is a header, and the data in C order. A header is a sequence of little-endian int64s:

- the code of the dtype: 8 ASCII bytes, padded with zeros,
- the info, which is the name of the array: 8 ASCII bytes,
- the rank: 0 to 9,
- the dimensions.

More int64s can follow the dimensions. :mod:`highway.wire.envelope` stores metadata there. This module ignores the metadata.

Names and semantics are the same as in tensorcom. Decoded arrays are read-only views of the buffers.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from highway.engine.batch import how_to_flatten
from highway.errors import FrameError, ItemError

Buffer = Any  # bytes, bytearray, memoryview, numpy array or zmq.Frame: anything that memoryview() takes
Array = np.ndarray[Any, Any]
ARRAYS = (np.ndarray, np.generic)
Infos = bool | Sequence[str] | None

long_to_short: dict[str, str] = {
    "float16": "f2",
    "float32": "f4",
    "float64": "f8",
    "int8": "i1",
    "int16": "i2",
    "int32": "i4",
    "int64": "i8",
    "uint8": "u1",
    "uint16": "u2",
    "uint32": "u4",
    "uint64": "u8",
}
"""numpy's name of a dtype -> code of the dtype in a header. tensorcom itself can neither send nor read ``u4``."""
short_to_long: dict[str, str] = {short: long for long, short in long_to_short.items()}

MAX_RANK = 9
_WIDE = {np.dtype(name) for name in ("float64", "int64", "uint64")}
_CODES = {np.dtype(long).newbyteorder("<"): short.encode().ljust(8, b"\0") for long, short in long_to_short.items()}
_DTYPES = {code: dtype for dtype, code in _CODES.items()}
_HEADERS = [struct.Struct(f"<8s8sq{rank}q") for rank in range(MAX_RANK + 1)]
_START = struct.Struct("<8s8sq")
_LARGEST = _START.size + 8 * MAX_RANK
_DIMENSIONS = [struct.Struct(f"<{rank}q") for rank in range(MAX_RANK + 1)]


def bytelen(a: Buffer) -> int:
    """Return the number of bytes in a buffer or array.

    Args:
        a: An array, or any object with a buffer.

    >>> bytelen(np.zeros(3, np.float32))
    12
    """
    return memoryview(a).nbytes


def bytedata(a: Buffer) -> Buffer:
    """Return the bytes of a buffer or array, without a copy if the buffer or array is contiguous.

    Args:
        a: An array, or any object with a buffer.

    >>> bytedata(np.zeros(3, np.float32)).nbytes
    12
    """
    if isinstance(a, np.ndarray):
        return bytes_of(a)
    return a if isinstance(a, (bytes, bytearray, memoryview)) else memoryview(a)


def str64(s: str) -> int:
    """Return a string of at most 8 ASCII characters as an int64.

    Args:
        s: Up to 8 ASCII characters.

    Raises:
        ValueError: the string has more than 8 characters, or is not ASCII.

    >>> str64("ab")
    25185
    """
    return int(struct.unpack("<q", _info(s))[0])


def unstr64(i: int) -> str:
    """Return the string that :func:`str64` converted to an int64.

    Args:
        i: The integer.

    Raises:
        FrameError: the bytes of the integer are not ASCII.

    >>> unstr64(str64("ab"))
    'ab'
    """
    return _text(struct.pack("<q", i))


def check_acceptable_input_type(data: Sequence[Array], allow64: bool) -> None:
    """Check that arrays can be sent.

    Args:
        data: The arrays.
        allow64: Whether 64-bit elements are allowed.

    Raises:
        TypeError: a value is not an array, has an unsupported dtype or more than 9 dimensions, or has 64-bit elements although ``allow64``
            is false.

    >>> check_acceptable_input_type([np.zeros(3, np.float32)], allow64=False)
    """
    for position, array in enumerate(data):
        if not isinstance(array, ARRAYS):
            raise no_array(position, type(array))
        check_type(array.dtype, array.ndim, position, allow64)


def no_array(field: object, found: type) -> ItemError:
    """Return the error for a value that is not an array."""
    way_out = "convert it to an array, such as np.asarray(value, np.int32)"
    if found is list:
        way_out += "; resize images of different sizes first, such as with Augmentations([Resize((224, 224))])"
        way_out += "; for fields of different lengths, use Batch(ragged='pad') or ragged='offsets' instead of ragged='list'"
    way_out = how_to_flatten(field, found).removeprefix("; ") or way_out  # type: ignore[arg-type]  # a name or position
    return ItemError(f"field {field!r} is a {found.__name__}, but only numpy arrays can be sent: {way_out}")


def check_type(dtype: np.dtype[Any], rank: int, field: object, allow64: bool) -> None:
    """Check that arrays of this dtype and number of dimensions can be sent. Raises the errors of :func:`check_acceptable_input_type`."""
    little = dtype if dtype in _CODES else dtype.newbyteorder("<")
    if little not in _CODES and little != np.bool_:
        raise ItemError(f"field {field!r} has dtype {dtype}; dtypes that can be sent are bool, {', '.join(long_to_short)}")
    if not allow64 and little in _WIDE:
        narrow = f"{dtype.name[:-2]}32"
        raise ItemError(f"field {field!r} has the 64-bit dtype {dtype}; send astype(np.{narrow}), or pass allow64=True")
    if rank > MAX_RANK:
        raise ItemError(f"field {field!r} has {rank} dimensions; an array that is sent can have at most {MAX_RANK}")


def check_infos(data: Any, infos: Sequence[str], required_infos: Infos = None) -> Any:
    """Check that the names of arrays equal the required names, and return ``data``.

    Args:
        data: The arrays.
        infos: The names of the arrays.
        required_infos: The required names. ``True`` checks nothing and returns ``(data, infos)``. ``None`` or ``False`` checks nothing and
            returns ``data``.

    Raises:
        FrameError: the names differ from the required names.

    >>> arrays = [np.uint8([1, 2])]
    >>> check_infos(arrays, ["labels"], ["labels"]) is arrays
    True
    """
    if required_infos is None or required_infos is False:
        return data
    if required_infos is True:
        return data, infos
    if list(required_infos) != list(infos):
        raise FrameError(f"expected the infos {list(required_infos)}, found {list(infos)}")
    return data


def encode_header(a: Array, info: str = "", extension: bytes = b"") -> bytes:
    """Return the header of an array. tensorcom itself ignores ``extension``.

    Args:
        a: The array.
        info: A name of up to 8 ASCII characters.
        extension: Bytes to append after the dimensions.

    Raises:
        TypeError: the format does not support the dtype.
        ValueError: the info has more than 8 characters or is not ASCII, or the array has more than 9 dimensions.

    >>> len(encode_header(np.zeros((2, 3), np.float32), "images"))
    40
    """
    return header(a.dtype, a.shape, info) + extension


def header(dtype: np.dtype[Any], shape: tuple[int, ...], info: str = "") -> bytes:
    """Return the header of arrays of this dtype and shape. Raises the errors of :func:`encode_header`."""
    code = _CODES.get(dtype)
    if code is None:
        check_type(dtype, 0, info or "array", allow64=True)
        code = b"u1\0\0\0\0\0\0" if dtype == np.bool_ else _CODES[dtype.newbyteorder("<")]
    if len(shape) > MAX_RANK:
        raise ValueError(f"the array has {len(shape)} dimensions; the format allows at most {MAX_RANK}")
    return _HEADERS[len(shape)].pack(code, _info(info) if info else b"", len(shape), *shape)


def decode_header(h: Buffer) -> tuple[tuple[int, ...], np.dtype[Any], str]:
    """Return the shape, dtype and info in a header.

    Args:
        h: The bytes of the header.

    Raises:
        FrameError: the buffer is not a header. The message names the byte offset and the expected content.

    >>> decode_header(encode_header(np.zeros((2, 3), np.float32), "images"))
    ((2, 3), dtype('<f4'), 'images')
    """
    return layout(h)[:3]


def encode_list(l: Sequence[Array], infos: Sequence[str] | None = None) -> list[Buffer]:  # noqa: E741 - tensorcom's name
    """Return arrays as a list of buffers: alternating headers and data.

    If an array is contiguous and little-endian, its data are a view of the array, otherwise a copy. Booleans become ``u1``.

    Args:
        l: The arrays.
        infos: As for :func:`encode_buffer`.

    Raises:
        TypeError, ValueError: as for :func:`encode_header`; or the number of ``infos`` differs from the number of arrays.

    >>> len(encode_list([np.uint8([1, 2]), np.uint8([3])]))
    4
    """
    if infos is not None and len(infos) != len(l):
        raise ValueError(f"{len(infos)} infos for {len(l)} arrays; expected one for each")
    buffers: list[Buffer] = []
    for position, array in enumerate(l):
        buffers.append(encode_header(array, infos[position] if infos else ""))
        buffers.append(bytes_of(array))
    return buffers


def decode_list(l: Sequence[Buffer], infos: Infos = False) -> Any:  # noqa: E741 - tensorcom's name
    """Return the arrays in a list of buffers, as views of the buffers. With ``infos=True``, return ``(arrays, infos)``.

    Args:
        l: Buffers: a header and the data of each array.
        infos: As for :func:`decode_buffer`.

    Raises:
        FrameError: the buffers are not alternating headers and data, or the names differ from the list ``infos``.

    >>> decode_list(encode_list([np.uint8([1, 2])]))
    [array([1, 2], dtype=uint8)]
    """
    return check_infos(*decode_frames(l), infos)


def decode_frames(frames: Sequence[Buffer], first: ArrayLayout | None = None) -> tuple[list[Array], list[str]]:
    """Return the arrays in a list of buffers, as views, and their infos. ``first`` is the content of the first header, if known.

    Raises the errors of :func:`decode_list`.
    """
    if len(frames) % 2:
        raise FrameError(f"the message has {len(frames)} frames; expected an even number, with a header and the data of each array")
    arrays: list[Array] = []
    infos: list[str] = []
    for position in range(0, len(frames), 2):
        try:
            shape, dtype, info, size = layout(frames[position]) if position or first is None else first
            data = frames[position + 1]
            if type(data) is not memoryview:
                data = memoryview(data)
            if data.nbytes != size:
                raise FrameError(
                    f"the data have {data.nbytes} bytes, but the header announces {size} bytes, for shape {shape} and dtype {dtype}"
                )
            arrays.append(np.ndarray(shape, dtype, data if data.readonly else data.toreadonly()))
        except ValueError as error:  # a FrameError, or an error of numpy, because even a shape without elements can exceed numpy's limits
            raise FrameError(f"array {position // 2}: {error}") from None
        infos.append(info)
    return arrays, infos


def behind_header(h: Buffer) -> memoryview:
    """Return the bytes after the dimensions in a valid header."""
    view = memoryview(h).cast("B")
    return view[_START.size + 8 * view[16] :]


class ArrayLayout(NamedTuple):
    """The content of a header."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    info: str
    size: int  # bytes of the data


def layout(buffer: Buffer) -> ArrayLayout:
    """Return the content of a header. Bytes after the dimensions are ignored. Raises the errors of :func:`decode_header`."""
    view = memoryview(buffer)
    if view.nbytes > _LARGEST:  # cut off the bytes after the dimensions: they differ in each message, so the cache would not work
        _check_length(view.nbytes)
        view = view.cast("B")
        view = view[: _START.size + 8 * min(view[16], MAX_RANK)]
    return _layout(bytes(view))


def _check_length(length: int) -> None:
    if length < _START.size or length % 8:
        raise FrameError(f"the header has {length} bytes; expected a multiple of 8, at least {_START.size}")


@lru_cache(4096)  # a cache, because a stream repeats the same few headers, and parsing them is most of the work
def _layout(header: bytes) -> ArrayLayout:
    _check_length(len(header))
    code, info, rank = _START.unpack_from(header)
    dtype = _DTYPES.get(code)
    if dtype is None:
        raise FrameError(f"unknown dtype {code!r} at byte 0 of the header; expected one of {', '.join(short_to_long)}")
    if not 0 <= rank <= MAX_RANK:
        raise FrameError(f"the rank at byte 16 of the header is {rank}; expected 0 to {MAX_RANK}")
    if len(header) < _START.size + 8 * rank:
        raise FrameError(f"a header of {len(header)} bytes is too short for its {rank} dimensions")
    shape = _DIMENSIONS[rank].unpack_from(header, _START.size)
    if rank and min(shape) < 0:
        raise FrameError(f"the shape {shape} has a negative dimension")
    return ArrayLayout(shape, dtype, _text(info), math.prod(shape) * dtype.itemsize)


def _info(text: str) -> bytes:
    try:
        raw = text.encode("ascii")
    except UnicodeEncodeError:
        raise ValueError(f"the info {text!r} is not ASCII") from None
    if len(raw) > 8:
        raise ValueError(f"the info {text!r} has {len(raw)} characters; expected at most 8")
    return raw.ljust(8, b"\0")


def _text(raw: bytes) -> str:
    try:
        return raw.strip(b"\0").decode("ascii")
    except UnicodeDecodeError:
        raise FrameError(f"{raw!r} in a header is not ASCII") from None


def bytes_of(array: Array | np.generic) -> memoryview:
    """Return the bytes of the elements in C order, little-endian.

    If the array has this layout in memory, the result is a view, otherwise a copy.
    """
    if array.dtype not in _CODES:
        array = np.asarray(array)
        array = array.view(np.uint8) if array.dtype == np.bool_ else array.astype(array.dtype.newbyteorder("<"))
    data = array.data
    return data if data.c_contiguous else np.ascontiguousarray(array).data

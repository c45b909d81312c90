"""Encode and decode the columns of MDS.

===========================================  ==============================  ==========================================================
encoding                                     read as                         written from
===========================================  ==============================  ==========================================================
``bytes``                                    bytes                           bytes
``jpeg``, ``png``                            bytes; ``DecodeImage`` decodes  bytes in a field ``jpeg``, ``jpg`` or
                                             them in many workers            ``png``
``str``                                      str                             str
``int``                                      int64                           int
``int8`` ... ``uint64``, ``float16`` ...     a number of this dtype          a number of this dtype; a float as float64
``ndarray``, ``ndarray:DTYPE[:SHAPE]``       array                           array
``json``                                     the JSON value                  dict, list, bool, None
``pil``                                      uint8 ``(H, W)`` or             -
                                             ``(H, W, C)``
``jpeg_array``, ``list[...]``                a list of images              -
``str_int``, ``str_float``, ``str_decimal``  int, float, Decimal             -
``pkl``                                      not read: it can run any code   -
===========================================  ==============================  ==========================================================
"""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Callable
from decimal import Decimal
from functools import partial
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from PIL import Image

from highway.datasets.writing import kind_of
from highway.engine.batch import how_to_flatten
from highway.errors import DatasetError, ItemError
from highway.images.decode import MAX_PIXELS

_DTYPES = {8: "uint8", 9: "int8", 16: "uint16", 17: "int16", 18: "float16", 32: "uint32", 33: "int32", 34: "float32", 64: "uint64"}
_DTYPES |= {65: "int64", 66: "float64"}
_NUMBERS = {name: number for number, name in _DTYPES.items()}
_LENGTHS = ("<u1", "<u2", "<u4", "<u8")  # dtypes of the lengths in a shape, by code
_PIL = struct.Struct("<3I")  # width, height, and the length of the mode
_MODES = {"L": 1, "P": 1, "RGB": 3, "RGBA": 4}  # number of channels of each mode
_IMAGES = {"jpg": "jpeg", "jpeg": "jpeg", "png": "png"}  # the encoding of each image field


class Encoding(NamedTuple):
    """The encoding of a column.

    Args:
        decode: A function that decodes bytes. The function raises ValueError if the bytes are invalid.
        size: Number of bytes of each value; ``None`` if the size varies.
    """

    decode: Callable[[bytes], Any]
    size: int | None = None


def encoding_of(name: str) -> Encoding:
    """Return an encoding by its name.

    Raises:
        DatasetError: the name is unknown, or highway does not read this encoding.
    """
    kind, *details = name.split(":")
    try:
        if kind == "ndarray":
            return _ndarray_encoding(*details)
        if kind in _NUMBERS or kind == "int":
            dtype = np.dtype("int64" if kind == "int" else kind).newbyteorder("<")
            return Encoding(partial(_number, dtype), dtype.itemsize)
        return Encoding(_DECODERS[kind])
    except (KeyError, TypeError, ValueError):
        if kind == "pkl":
            raise DatasetError("the encoding 'pkl' is a pickle, which could run any code; select other columns by fields") from None
        raise DatasetError(
            f"the encoding {name!r} is unknown; expected one of {', '.join([*_DECODERS, 'int', *_NUMBERS, 'ndarray'])}"
        ) from None


def _number(dtype: np.dtype[Any], data: bytes) -> Any:
    if len(data) != dtype.itemsize:
        raise ValueError(f"expected {dtype.itemsize} bytes for {dtype.name}, found {len(data)}")
    return np.frombuffer(data, dtype)[0]


def _ndarray_encoding(dtype: str | None = None, shape: str | None = None) -> Encoding:
    lengths = tuple(map(int, shape.split(","))) if shape is not None else None
    if (dtype is not None and dtype not in _NUMBERS) or any(length < 1 for length in lengths or ()):
        raise ValueError
    size = None if dtype is None or lengths is None else math.prod(lengths) * np.dtype(dtype).itemsize
    return Encoding(partial(_ndarray, dtype, lengths), size)


def _ndarray(dtype: str | None, shape: tuple[int, ...] | None, data: bytes) -> np.ndarray:
    at = 0
    if dtype is None:
        dtype, at = _DTYPES[data[0]], 1
    if shape is None:
        axes, kind = divmod(data[at], 4)
        lengths = np.frombuffer(data, _LENGTHS[kind], axes, at + 1)
        shape, at = tuple(lengths.tolist()), at + 1 + lengths.nbytes
    little = np.dtype(dtype).newbyteorder("<")
    if (expected := math.prod(shape) * little.itemsize) != len(data) - at:
        raise ValueError(f"expected {expected} bytes for the shape {shape} and dtype {dtype}, found {len(data) - at}")
    return np.frombuffer(data, little, offset=at).reshape(shape).copy()


def _pil(data: bytes) -> np.ndarray:
    width, height, length = _PIL.unpack_from(data)
    mode, pixels = data[_PIL.size : _PIL.size + length].decode(), data[_PIL.size + length :]
    if mode not in _MODES or width * height > MAX_PIXELS or len(pixels) != width * height * _MODES[mode]:
        found = f"the image has mode {mode[:9]!r}, {height} x {width} pixels and {len(pixels)} bytes"
        raise ValueError(f"{found}; expected one of the modes {', '.join(_MODES)}, and the bytes of all pixels")
    return np.array(Image.frombytes(mode, (width, height), pixels))


def as_bytes(data: bytes) -> bytes:
    return data


def _listed(decode: Callable[[bytes], Any], begin: int, data: bytes) -> list[Any]:
    """Return a list of values. At ``begin``, ``data`` contains the number of values, the size of each value, and the values."""
    (count,) = struct.unpack_from("<I", data, begin)
    ends = np.cumsum([begin + 4 * (count + 1), *np.frombuffer(data, "<u4", count, begin + 4).tolist()]).tolist()
    if ends[-1] != len(data):
        raise ValueError(f"the list of {count} values ends at byte {ends[-1]}; expected byte {len(data)}, the end of the data")
    return [decode(data[first:end]) for first, end in pairwise(ends)]


_DECODERS: dict[str, Callable[[bytes], Any]] = {
    "bytes": as_bytes,
    "jpeg": as_bytes,
    "png": as_bytes,
    "jpeg_array": partial(_listed, as_bytes, 0),
    "jpegarray": partial(_listed, as_bytes, 0),
    "list[jpeg]": partial(_listed, as_bytes, 4),
    "list[png]": partial(_listed, as_bytes, 4),
    "list[pil]": partial(_listed, _pil, 4),
    "str": bytes.decode,
    "json": json.loads,
    "pil": _pil,
    "str_int": lambda data: int(data.decode()),
    "str_float": lambda data: float(data.decode()),
    "str_decimal": lambda data: Decimal(data.decode()),
}


def encoding_for(name: str, value: Any) -> str:
    """Return the encoding for writing a field. The encoding depends on the name and the first value of the field.

    Raises:
        ItemError: no encoding supports the value.
    """
    kind = "json" if value is None else kind_of(value)
    if kind is not None and (encoding := _ENCODINGS[kind](name, value)):
        return encoding
    what = f"{value.dtype} {value.shape}" if isinstance(value, (np.ndarray, np.generic)) else f"a {type(value).__name__}"
    way_out = how_to_flatten(name, type(value))
    raise ItemError(f"field {name!r} is {what}, for which MDS has no encoding; make it an array of numbers, a str or bytes{way_out}")


def _encoding_of_numbers(name: str, value: Any) -> str:
    if not isinstance(value, (np.ndarray, np.generic)):
        return _PYTHON.get(type(value), "")
    if value.dtype.name not in _NUMBERS:
        return ""
    return str(value.dtype.name) if value.ndim == 0 else "ndarray"


_PYTHON = {bool: "json", int: "int", float: "float64"}
# For each kind of value, a function that returns the encoding; empty if there is no encoding.
_ENCODINGS: dict[str, Callable[[str, Any], str]] = {
    "bytes": lambda name, value: _IMAGES.get(name.rpartition(".")[2], "bytes"),
    "str": lambda name, value: "str" if type(value) is str else "",
    "number": _encoding_of_numbers,
    "array": _encoding_of_numbers,
    "json": lambda name, value: "json",
}


def encode(name: str, encoding: str, value: Any) -> bytes:
    """Encode a value.

    Raises:
        ItemError: the encoding does not support the value.
    """
    if encoding_for(name, value) != encoding:
        raise ItemError(f"field {name!r} would be encoded as {encoding_for(name, value)}, but the first sample has the encoding {encoding}")
    if isinstance(value, str):
        return value.encode()
    if encoding == "json":
        return _as_json(name, value)
    if encoding == "int" and not -(1 << 63) <= value < 1 << 63:
        raise ItemError(f"field {name!r} is {value}, which does not fit into 64 bits; make it a str")
    if encoding == "ndarray":
        return _as_ndarray(name, value)
    if encoding in _NUMBERS or encoding == "int":
        return bytes(np.asarray(value, np.dtype("int64" if encoding == "int" else encoding).newbyteorder("<")).tobytes())
    return bytes(value)


def _as_json(name: str, value: Any) -> bytes:
    try:
        written = json.dumps(value, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise ItemError(
            f"field {name!r} cannot be JSON: {error}; make it an array, a str or bytes{how_to_flatten(name, type(value))}"
        ) from error
    if json.loads(written) != value:
        way_out = how_to_flatten(name, type(value))
        raise ItemError(f"field {name!r} would change in JSON: names must be str, and tuples would become lists{way_out}")
    return written.encode()


def _as_ndarray(name: str, value: np.ndarray) -> bytes:
    if value.size == 0 or value.ndim > 63:
        raise ItemError(f"field {name!r} is an array of shape {value.shape}; MDS supports only non-empty arrays of up to 63 axes")
    kind = next(kind for kind, dtype in enumerate(_LENGTHS) if max(value.shape) <= np.iinfo(dtype).max)
    little = value.astype(value.dtype.newbyteorder("<"), copy=False)
    return bytes([_NUMBERS[value.dtype.name], value.ndim << 2 | kind]) + np.array(value.shape, _LENGTHS[kind]).tobytes() + little.tobytes()

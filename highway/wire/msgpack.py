"""The codec of Highway 2017: an item as msgpack, with arrays in the format of the package msgpack-numpy, all in one frame.

An array is the map ``{"nd": True, "type": "|u1", "kind": "", "shape": [...], "data": bytes}`` with byte strings as keys. A numpy scalar is
``{"nd": False, "type": ..., "data": ...}``. Arrays of Python objects, which msgpack-numpy would pickle, raise errors on both sides.

Highway 2017 used msgpack before version 1.0, which wrote byte strings as texts. The keys of the first array in a message show whether such
a version wrote the message. If so, the texts of the message become ``bytes``. If a value of a database has no arrays, its texts become
``bytes`` if one of them is not UTF-8, for example a JPEG file.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any, NamedTuple

import msgpack
import numpy as np

from highway.errors import FrameError, ItemError
from highway.wire.envelope import check_sender

MAX_ROW = 10_000  # maximum elements of a list or map: msgpack allocates a list before it reads the elements, and lists can be nested
END = 0x48  # code of the msgpack extension type of an end message
_ARRAY = re.compile(rb"[\x83\x85](?:\xc4\x02|\xa2)nd[\xc2\xc3](?:\xc4\x04|\xa4)type")  # beginning of the map that represents an array
_KINDS = "biufcSU"  # kinds of dtypes whose elements are plain values


class StreamEnd(NamedTuple):
    """An end message: the name of the sender, and how many messages it has sent."""

    sender: bytes
    number: int


def encode(item: Any) -> bytes:
    """Return an item as msgpack. Each array is copied once.

    Raises:
        TypeError: msgpack cannot express a value of the item; the message names its type.
    """
    try:
        packed: bytes = msgpack.packb(item, default=_encode)
    except ValueError as error:  # an integer or a string beyond msgpack's limits, or an item that contains itself
        raise ItemError(f"the item cannot be sent as msgpack: {error}") from error
    return packed


def decode(frame: Any, stored: bool = False) -> Any:
    """Return the item in a frame. Arrays are read-only. Lists become tuples.

    Args:
        frame: The message, or a value of a database.
        stored: Whether ``frame`` is a value of a database.

    Raises:
        FrameError: the frame is not msgpack, or an array does not match its description.
    """
    view = memoryview(frame)
    try:
        return _unpacked(view, _decode)
    except (_BytesAsText, UnicodeDecodeError) as error:
        if not _has_bytes_as_text(bytes(view), stored):
            raise FrameError(f"not valid msgpack: {error}") from None
    return _unpacked(view, _decode_old, raw=True)


def _unpacked(view: memoryview, hook: Callable[[dict[Any, Any]], Any], raw: bool = False) -> Any:
    try:
        return msgpack.unpackb(
            view,
            object_hook=hook,
            ext_hook=_end,
            use_list=False,
            strict_map_key=False,
            max_array_len=MAX_ROW,
            max_map_len=MAX_ROW,
            raw=raw,
        )
    except (FrameError, _BytesAsText, UnicodeDecodeError):
        raise
    except (ValueError, TypeError, msgpack.UnpackException, RecursionError) as error:
        raise FrameError(f"not valid msgpack: {error or type(error).__name__}") from None


class _BytesAsText(Exception):
    """An array of msgpack-numpy has texts as keys, not byte strings."""


def _has_bytes_as_text(frame: bytes, without_array: bool) -> bool:
    """Return whether msgpack before version 1.0 wrote a message: the first key of the first array is then a text, not a byte string.

    For a message without arrays, return ``without_array``.
    """
    old, new = frame.find(b"\xa2nd"), frame.find(b"\xc4\x02nd")
    return (old < new or new < 0) if old >= 0 else new < 0 and without_array


def begins_array(value: bytes | memoryview) -> bool:
    """Return whether an array of msgpack-numpy begins near the start of a value, even if the value is invalid."""
    return _ARRAY.search(value, 0, 4096) is not None


def encode_end(sender: bytes, number: int) -> bytes:
    """Return an end message, which announces the end of a sender."""
    packed: bytes = msgpack.packb(msgpack.ExtType(END, msgpack.packb([sender, number])))
    return packed


def _encode(value: Any) -> Any:
    if isinstance(value, np.ndarray) and value.dtype.kind in _KINDS:
        data = np.ascontiguousarray(value)
        return {b"nd": True, b"type": value.dtype.str, b"kind": b"", b"shape": value.shape, b"data": data.reshape(-1).view(np.uint8).data}
    if isinstance(value, (np.bool_, np.number)):
        return {b"nd": False, b"type": value.dtype.str, b"data": value.tobytes()}
    what = f"an array of dtype {value.dtype}" if isinstance(value, np.ndarray) else f"a {type(value).__name__}"
    raise ItemError(f"{what} cannot be sent as msgpack; expected arrays of numbers, numbers, strings, bytes, lists and dicts")


def _decode(value: dict[Any, Any]) -> Any:
    if b"nd" not in value:
        if "nd" in value and "type" in value and "data" in value:
            raise _BytesAsText('the key "nd" of an array is a text; expected bytes')
        return value
    try:
        kind, descr, data = value.get(b"kind", b""), value[b"type"], value[b"data"]
        shape = value[b"shape"] if value[b"nd"] else ()
    except KeyError as error:
        raise FrameError(f"an array has no {error.args[0]!r}") from None
    if kind not in (b"", ""):
        raise FrameError(f"an array has kind {kind!r}, which means Python objects or records; expected numbers")
    dtype = _dtype(descr)
    if not isinstance(data, bytes) or not isinstance(shape, tuple) or not all(type(n) is int and n >= 0 for n in shape):
        raise FrameError(
            f"an array has shape {shape!r:.80} and data of type {type(data).__name__}; expected a shape of whole numbers, "
            f"and data of type bytes"
        )
    if len(data) != math.prod(shape) * dtype.itemsize:
        raise FrameError(
            f"an array of shape {shape} and dtype {dtype} needs {math.prod(shape) * dtype.itemsize} bytes, but has {len(data)} bytes"
        )
    try:
        array: np.ndarray[Any, Any] = np.ndarray(shape, dtype, data)
    except ValueError as error:  # numpy does not support this number or size of dimensions
        raise FrameError(f"an array of shape {shape!r:.80}: {error}") from None
    return array if value[b"nd"] else array[()]


def _decode_old(value: dict[Any, Any]) -> Any:
    if b"nd" in value:
        return _decode(value)
    return {key.decode(errors="surrogateescape") if isinstance(key, bytes) else key: content for key, content in value.items()}


def _dtype(descr: Any) -> np.dtype[Any]:
    try:
        dtype = np.dtype(descr.decode() if isinstance(descr, bytes) else descr) if isinstance(descr, (str, bytes)) else None
    except (TypeError, ValueError, SyntaxError):
        dtype = None
    if dtype is None or dtype.kind not in _KINDS:
        raise FrameError(f"an array has type {descr!r:.80}; expected a type such as '|u1' or '<f4'")
    return dtype


def _end(code: int, data: bytes) -> Any:
    if code != END:
        raise FrameError(f"the message contains an extension type with code {code}; expected only the standard types of msgpack")
    values = msgpack.unpackb(data, max_array_len=2)
    if not isinstance(values, list) or list(map(type, values)) != [bytes, int]:
        raise FrameError("the message that ends a stream lacks the name of the sender or the number of messages")
    sender, number = values
    check_sender(sender, number)
    return StreamEnd(sender, number)

"""Decode and encode ``tf.train.Example`` without TensorFlow.

::

    message Example   { Features features = 1; }
    message Features  { map<string, Feature> feature = 1; }   // an entry is a message: key = 1, value = 2
    message Feature   { oneof kind { BytesList bytes_list = 1; FloatList float_list = 2; Int64List int64_list = 3; } }
    message BytesList { repeated bytes value = 1; }
    message FloatList { repeated float value = 1; }           // packed, or one by one
    message Int64List { repeated int64 value = 1; }           // packed, or one by one

A feature of an Example is a list of bytes, int64 or float32. A field of a sample is stored as one feature. If the field has another type
than its feature, or a shape, the writer adds the feature ``__types__``. The value of this feature is JSON with the original types of these
fields. ``"<i4"`` is a number, ``["<f8", [2, 3]]`` is an array with its shape, and ``"str"`` is a string. Other types, such as ``"json"``,
are file extensions of :mod:`highway.datasets.field_codecs`.

Bools, and integers of up to 64 bits, are stored in ``int64_list``, except uint8 and uint64. float16 and float32 are stored in
``float_list``. All other numbers are stored in ``bytes_list``, in C order, little-endian. ``tf.io.decode_raw`` can read these bytes.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import lru_cache, partial
from itertools import takewhile
from typing import Any

import numpy as np

from highway.datasets.field_codecs import IMAGES, decode_field, encode_field
from highway.datasets.records.protobuf import Data, read_fields, read_int64s, read_varint, write_bytes, write_int64s

KEY, TYPES = "__key__", "__types__"  # the features with the key of a sample, and with the types of its fields
_FIRST, _SECOND, _FLOATS = 0x0A, 0x12, 0x0D  # protobuf tags: bytes as field 1, bytes as field 2, a float as field 1
_BYTES_LIST, _FLOAT_LIST, _INT64_LIST = 0x0A, 0x12, 0x1A
_LISTS = (_BYTES_LIST, _FLOAT_LIST, _INT64_LIST)
_DTYPES = {_FLOAT_LIST: np.float32, _INT64_LIST: np.int64}
_BEGIN = re.compile(  # an Example whose first feature is the key; groups: length of the feature, of its list, and of its value
    rb"\n[\x80-\xff]{0,9}[\x00-\x7f]\n[\x80-\xff]?[\x00-\x7f]\n%c%b\x12([\x00-\x7f])\n([\x00-\x7f])\n([\x00-\x7f])"
    % (len(KEY), KEY.encode()),
    re.DOTALL,
)
_NUMBERS = "biufc"  # kinds of dtypes
_AS_INT64, _AS_FLOAT = ("i1", "i2", "i4", "i8", "u2", "u4", "b1"), ("f2", "f4")


def decode_example(data: Data, wanted: Collection[str] | None = None, views: bool = False) -> dict[str, Any]:
    """Return the features of an Example.

    Args:
        data: The bytes of the Example.
        wanted: The names of the features to decode; ``None``: all features.
        views: Whether the result can contain views of ``data`` instead of ``bytes``.

    Returns:
        A dict of features. A feature with one value is ``bytes``, an int64 or a float32. A feature with several values is a list of
        ``bytes``, or an array. If :func:`encode_example` wrote the Example, numbers, arrays and texts have their original types; Python
        numbers become NumPy scalars. A feature without a list is omitted.

    Raises:
        ValueError: the bytes are not an Example, or are incomplete.
    """
    found: dict[str, Any] = {}
    for encoded, content, begin, end in _features(data):
        name = _text(encoded)
        if wanted is None or name in wanted or name == TYPES:
            found[name] = _feature(content, begin, end)
    types = _copied(found.pop(TYPES, None))
    if isinstance(types, bytes):
        for name, restore in _restoring(types).items():
            if name in found:
                try:
                    found[name] = restore(_copied(found[name]))
                except (TypeError, ValueError, AttributeError, RecursionError) as error:
                    raise ValueError(f"the field {name!r} does not match its type in {TYPES!r}, {types!r:.200}: {error}") from None
    return {name: value if views else _copied(value) for name, value in found.items() if value is not None}


def _copied(value: Any) -> Any:
    """Return a feature, with ``bytes`` instead of views."""
    if isinstance(value, list):
        return list(map(bytes, value))
    return bytes(value) if isinstance(value, memoryview) else value


def key_of(data: Data, name: str) -> str | None:
    """Return the key of a sample, which is in the feature ``name``. Return ``None`` if the Example has no such feature.

    Raises:
        ValueError: the bytes are not an Example, or are incomplete.
        ValueError: the feature is neither a string nor a number.
    """
    for found, content, begin, end in _features(data):
        if _text(found) == name:
            value = _copied(_feature(content, begin, end))
            if isinstance(value, bytes):
                return value.decode()
            if isinstance(value, np.generic):
                return str(value)
            raise ValueError(f"the feature {name!r} contains a {type(value).__name__}; expected bytes or a number, for the key of a sample")
    return None


def first_key(start: bytes) -> str | None:
    """Return the key of a sample from the first bytes of its Example. In files of highway, the key is the first feature.

    Return ``None`` if the key is not the first feature, has more than 123 bytes, or is not completely in ``start``.
    """
    if (found := _BEGIN.match(start)) is None:
        return None
    begin, (feature, values, size) = found.end(), found[1] + found[2] + found[3]
    end = begin + size
    return start[begin:end].decode() if feature == size + 4 and values == size + 2 and end <= len(start) else None


Place = tuple[Data, int, int]  # the data that contains a message, and the begin and end of the message


def _features(data: Data) -> list[tuple[bytes, Data, int, int]]:
    """Return the name and place of each feature; see :data:`Place`."""
    found: list[tuple[bytes, Data, int, int]] = []
    for tag, begin, end in read_fields(data, 0, len(data)):
        if tag == _SECOND:
            raise ValueError("a SequenceExample, whose lists of features differ in length; expected an Example: read the records as bytes")
        if tag == _FIRST:
            for entry, start, stop in read_fields(data, begin, end):
                if entry == _FIRST:
                    found.append(_entry_of(data, start, stop))
    return found


def _entry_of(data: Data, begin: int, end: int) -> tuple[bytes, Data, int, int]:
    """Return the name and place of a feature."""
    if end - begin > 3 and data[begin] == _FIRST:  # the usual case: a short name, and then the feature
        middle = begin + 2 + data[begin + 1]
        kind, first = _single(data, middle, end)
        if kind == _SECOND and data[begin + 1] < 0x80:
            return bytes(data[begin + 2 : middle]), data, first, end
    fields = read_fields(data, begin, end)
    name = next((bytes(data[first:last]) for tag, first, last in reversed(fields) if tag == _FIRST), b"")
    return name, *_merged(data, [(first, last) for tag, first, last in fields if tag == _SECOND])


def _merged(data: Data, pieces: Sequence[tuple[int, int]]) -> Place:
    """Concatenate the pieces of a message, and return its place. Protocol Buffers allows a message to be in several pieces."""
    if len(pieces) == 1:
        return data, *pieces[0]
    joined = b"".join(data[begin:end] for begin, end in pieces)
    return joined, 0, len(joined)


def _single(data: Data, begin: int, end: int) -> tuple[int, int]:
    """Return the tag of the only field of a message, and the byte offset of its content.

    Return zeros if the message is not a single field of bytes.
    """
    if end - begin < 2:
        return 0, 0
    size, first = data[begin + 1], begin + 2
    if size >= 0x80:
        size, first = read_varint(data, begin + 1)
    return (data[begin], first) if first + size == end else (0, 0)


def _feature(data: Data, begin: int, end: int) -> Any:
    """Return a feature. If ``data`` is a view, the feature contains views instead of ``bytes``."""
    kind, first = _single(data, begin, end)
    if kind not in _LISTS:
        lists = [field for field in read_fields(data, begin, end) if field[0] in _LISTS]
        if not lists:
            return None
        kind = lists[-1][0]  # in a oneof, only the last kind is valid; its pieces are at the end of the list
        last = takewhile(lambda field: field[0] == kind, reversed(lists))
        data, first, end = _merged(data, [(first, end) for _, first, end in last][::-1])
    tag, start = _single(data, first, end)
    if kind == _INT64_LIST and tag == _FIRST and 0 < end - start <= 2 and data[end - 1] < 0x80:
        value, stop = read_varint(data, start)
        if stop == end:  # a single small number, such as a label
            return np.int64(value)
    parts = [(tag, start, end)] if tag == _FIRST else read_fields(data, first, end)
    if kind == _BYTES_LIST:
        items = [data[start:stop] for tag, start, stop in parts if tag == _FIRST]
        return items[0] if len(items) == 1 else items
    convert = _floats if kind == _FLOAT_LIST else _int64s
    arrays = [convert(data, *part) for part in parts if part[0] >> 3 == 1]  # skip fields of later versions
    array = arrays[0] if len(arrays) == 1 else np.concatenate(arrays) if arrays else np.empty(0, _DTYPES[kind])
    return array[0] if len(array) == 1 else array


@lru_cache
def _text(name: bytes) -> str:
    return name.decode()


def _floats(data: Data, tag: int, begin: int, end: int) -> np.ndarray:
    if tag not in (_FIRST, _FLOATS) or (end - begin) % 4:
        raise ValueError(f"byte {begin}: a list of floats contains a field {tag >> 3} of type {tag & 7} with {end - begin} bytes")
    return np.frombuffer(data, "<f4", (end - begin) // 4, begin).astype(np.float32)


def _int64s(data: Data, tag: int, begin: int, end: int) -> np.ndarray:
    if tag == _FIRST:
        return read_int64s(data, begin, end)
    if tag != 0x08:
        raise ValueError(f"a list of int64 contains a field {tag >> 3} of type {tag & 7}")
    return np.array([begin], np.uint64).view(np.int64)


@lru_cache
def _restoring(types: bytes) -> dict[str, Callable[[Any], Any]]:
    """Return a function for each field in ``__types__``. The function restores the original value."""
    try:
        return {name: _restorer(kind) for name, kind in json.loads(types).items()}
    except (TypeError, ValueError, AttributeError, RecursionError) as error:
        raise ValueError(f"the feature {TYPES!r} does not contain types as JSON, {types!r:.200}: {error}") from None


def _restorer(kind: Any) -> Callable[[Any], Any]:
    if kind == "str":
        return bytes.decode
    if isinstance(kind, str) and not kind.startswith(("<", "|")):
        return partial(decode_field, kind)
    descr, shape = (kind, []) if isinstance(kind, str) else kind
    dtype = np.dtype(descr)
    if dtype.kind not in _NUMBERS or not all(type(size) is int and size >= 0 for size in shape):
        raise ValueError(f"expected a dtype and a shape, found {descr!r}, {shape!r}")
    return partial(_number_of, dtype) if isinstance(kind, str) else partial(_array_of, dtype, shape)


def _number_of(dtype: np.dtype[Any], value: Any) -> Any:
    return value.astype(dtype) if isinstance(value, np.generic) else _array_of(dtype, [], value)[()]


def _array_of(dtype: np.dtype[Any], shape: Sequence[int], value: Any) -> np.ndarray:
    array = np.frombuffer(value, dtype) if isinstance(value, bytes) else np.asarray(value).reshape(-1)
    return array.astype(dtype).reshape(shape)


def encode_example(key: str, sample: Mapping[str, Any]) -> bytes:
    """Encode a sample as an Example, with the key and the types of the fields.

    Raises:
        TypeError: an Example cannot contain the value of a field, or the name of a field is reserved.
    """
    types: dict[str, Any] = {}
    entries = [_entry(KEY, write_bytes(_BYTES_LIST, write_bytes(_FIRST, key.encode())))]
    for name, value in sample.items():
        if name in (KEY, TYPES):
            raise TypeError(f"the field name {name!r} is reserved for the writer; rename the field")
        feature, kind = _encoded(name, value)
        entries.append(_entry(name, feature))
        if kind is not None:
            types[name] = kind
    if types:
        entries.append(_entry(TYPES, write_bytes(_BYTES_LIST, write_bytes(_FIRST, json.dumps(types).encode()))))
    return write_bytes(_FIRST, b"".join(entries))


def _entry(name: str, feature: bytes) -> bytes:
    return write_bytes(_FIRST, write_bytes(_FIRST, name.encode()) + write_bytes(_SECOND, feature))


def _encoded(name: str, value: Any) -> tuple[bytes, Any]:
    """Encode a value as a Feature.

    Return the Feature, and the type for ``__types__``; ``None`` if the value is bytes, an image, or has the type of the Feature.
    """
    if isinstance(value, (bytes, bytearray, memoryview)):
        return write_bytes(_BYTES_LIST, write_bytes(_FIRST, bytes(value))), None
    if isinstance(value, str):
        return write_bytes(_BYTES_LIST, write_bytes(_FIRST, value.encode())), "str"
    if isinstance(value, list) and len(value) != 1 and all(isinstance(item, bytes) for item in value):
        return write_bytes(_BYTES_LIST, b"".join(write_bytes(_FIRST, item) for item in value)), None
    if isinstance(value, (bool, int, float)):
        value = np.asarray(value)[()]
    if isinstance(value, (np.ndarray, np.generic)) and value.dtype.kind in _NUMBERS and name.rpartition(".")[2] not in IMAGES:
        return _array(np.asarray(value), isinstance(value, np.generic))
    extension, data = encode_field(name, value)
    kind = extension.rpartition(".")[2]
    return write_bytes(_BYTES_LIST, write_bytes(_FIRST, data)), None if kind in IMAGES else kind


def _array(array: np.ndarray, is_number: bool) -> tuple[bytes, Any]:
    array = np.asarray(array, array.dtype.newbyteorder("<"))
    descr, kind = array.dtype.str, array.dtype.str[1:]
    is_plain = (array.ndim == 1 and array.size != 1) or is_number
    said = descr if is_number else [descr, list(array.shape)]
    if kind in _AS_INT64:
        return write_bytes(
            _INT64_LIST, write_bytes(_FIRST, write_int64s(array.ravel().tolist()))
        ), None if is_plain and kind == "i8" else said
    if kind in _AS_FLOAT:
        floats = array.astype("<f4").tobytes()
        return write_bytes(_FLOAT_LIST, write_bytes(_FIRST, floats)), None if is_plain and kind == "f4" else said
    return write_bytes(_BYTES_LIST, write_bytes(_FIRST, array.tobytes())), said

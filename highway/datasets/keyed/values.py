"""Encode and decode the values of a database.

A value that highway writes is a msgpack map. The first entry is ``"__fields__"`` with the version, 1. Each other entry is a field of the
sample: an extension, and bytes. :mod:`highway.datasets.field_codecs` encodes the fields. For example, this is the value of
``{"jpg": JPEG, "cls": 7}``::

    83                              a map of three entries
    aa 5f5f6669656c64735f5f  01     "__fields__": 1
    a3 6a7067  c6 000186a0 ...      "jpg": 100,000 bytes
    a3 636c73  c4 01 37             "cls": the byte string "7"
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Literal

import msgpack
import numpy as np

from highway.datasets.dataset import chosen, named
from highway.datasets.field_codecs import decode_field, encode_field
from highway.datasets.records import trusted_pickle
from highway.datasets.records.example import KEY, decode_example
from highway.datasets.records.protobuf import BYTES, Data, read_fields
from highway.datasets.tar_samples import decoded_sample
from highway.wire import msgpack as msgpack_numpy

Decode = Literal["bytes", "fields", "msgpack", "caffe", "example", "ten", "npy", "json", "trusted_pickle"]

_MARK, _VERSION = "__fields__", 1
_MARKED = b"\xaa__fields__"
Fields = Mapping[str, str] | None
PICKLES = trusted_pickle.refusal("the values are pickles", 'decode="trusted_pickle"', "LMDBSerializer")


def encode_sample(sample: Mapping[str, Any]) -> bytes:
    """Encode a sample as a value.

    Raises:
        TypeError: two fields have the same name, or a field has a reserved name.
        ItemError: a field has a value that cannot be encoded. An ItemError is a TypeError.
    """
    files = [encode_field(name, value) for name, value in sample.items()]
    if len(entries := {_MARK: _VERSION, **dict(files)}) != len(files) + 1:
        names = ", ".join(extension for extension, _ in files)
        raise TypeError(f"two fields have the same name, or a field has the reserved name {_MARK!r}: {names}; rename the field")
    packed: bytes = msgpack.packb(entries)
    return packed


def _fields(data: Data, fields: Fields) -> Any:
    try:
        files = msgpack.unpackb(data)
    except (ValueError, TypeError, msgpack.UnpackException, RecursionError) as error:
        raise ValueError(f"not msgpack: {error or type(error).__name__}") from None
    if not isinstance(files, dict) or (version := files.pop(_MARK, None)) is None:
        raise ValueError(f"not a msgpack map with {_MARK!r}, found {bytes(data[:16])!r}")
    if version != _VERSION:
        raise ValueError(f"{_MARK!r} is {version!r}, expected {_VERSION}: another version of highway has written the value")
    if strange := next((name for name, content in files.items() if type(name) is not str or type(content) is not bytes), None):
        raise ValueError(f"the field {strange!r} holds a {type(files[strange]).__name__}; expected bytes")
    return decoded_sample(list(files), list(files.values()).__getitem__, fields)


# Caffe's Datum: channels, height and width, data, label, float_data, encoded.
_CHANNELS, _HEIGHT, _WIDTH, _DATA, _LABEL, _FLOATS, _ENCODED = range(1, 8)
_TAGS = {0x08, 0x10, 0x18, 0x22, 0x28, 0x32, 0x35, 0x38}


def _caffe(data: Data, fields: Fields) -> dict[str, Any]:
    """Return ``image`` (encoded bytes, or an array ``(H, W, C)`` with the channels in the stored order) and ``label`` (an int32)."""
    numbers, contents, floats = {}, b"", list[bytes]()
    for tag, begin, end in read_fields(data, 0, len(data)):
        if tag not in _TAGS:
            raise ValueError(f"not a Datum: it has a field {tag >> 3} of type {tag & 7}")
        if tag == _DATA << 3 | BYTES:
            contents = bytes(data[begin:end])
        elif tag >> 3 == _FLOATS:
            floats.append(bytes(data[begin:end]))
        else:
            numbers[tag >> 3] = begin
    label = np.uint64(numbers.get(_LABEL, 0)).astype(np.int32)
    if numbers.get(_ENCODED) and contents:
        return dict(chosen({"image": contents, "label": label}, fields))
    shape = tuple(numbers.get(size, 0) for size in (_CHANNELS, _HEIGHT, _WIDTH))
    pixels = np.frombuffer(b"".join(floats), "<f4") if floats else np.frombuffer(contents, np.uint8)
    if len(pixels) != shape[0] * shape[1] * shape[2] or not len(pixels):
        raise ValueError(f"the Datum has {len(pixels)} values; expected the shape {shape} (channels, height, width)")
    image = np.ascontiguousarray(pixels.reshape(shape).transpose(1, 2, 0))
    return dict(chosen({"image": image, "label": label}, fields))


def _msgpack(data: Data, fields: Fields) -> Any:
    try:
        value = msgpack_numpy.decode(data, stored=True)
    except ValueError as error:
        if trusted_pickle.looks_like_pickle(data):
            raise ValueError(PICKLES) from error
        raise
    return _selected(value, fields)


def _selected(value: Any, fields: Fields) -> Any:
    if isinstance(value, dict):
        return dict(chosen(value, fields))
    if fields is not None:
        raise ValueError(f"the value is not a dict but {type(value).__name__}, so it has no fields; remove fields={dict(fields)!r}")
    return value


def _example(data: Data, fields: Fields) -> dict[str, Any]:
    found = decode_example(data, named(fields))
    if fields is None:
        found.pop(KEY, None)
    return dict(chosen(found, fields))


def _as_file(extension: str) -> Callable[[Data, Fields], Any]:
    return lambda data, fields: _selected(decode_field(extension, bytes(data)), fields)


# Each function decodes a value, selects and renames fields, and returns a sample. The sample does not share memory with the value. The
# functions raise ValueError.
DECODERS: dict[str, Callable[..., Any]] = {
    "bytes": lambda data, fields: bytes(data),
    "fields": _fields,
    "msgpack": _msgpack,
    "caffe": _caffe,
    "example": _example,
    "ten": _as_file("ten"),
    "npy": _as_file("npy"),
    "json": _as_file("json"),
    "trusted_pickle": lambda data, fields: _selected(trusted_pickle.load(data), fields),
}


def decoder(name: str, fields: Fields) -> Callable[[Data], Any]:
    """Return the function that decodes values of a format. ``name`` is a key of ``DECODERS``."""
    return bytes if name == "bytes" else partial(DECODERS[name], fields=fields)


def recognised(value: Data) -> Decode:
    """Return the format of a value, or ``"bytes"`` if the format is not recognised.

    Raises:
        ValueError: the value is a pickle.
    """
    if trusted_pickle.looks_like_pickle(value):
        raise ValueError(PICKLES)
    start = bytes(value[:16])
    if start[1:].startswith(_MARKED) or start[3:].startswith(_MARKED):
        return "fields"
    try:
        found = msgpack.unpackb(
            value,
            strict_map_key=False,
            unicode_errors="surrogateescape",  # the Highway library of 2017 wrote bytes as strings
            ext_hook=_refuse,
            max_array_len=msgpack_numpy.MAX_ROW,
            max_map_len=msgpack_numpy.MAX_ROW,
        )
        if isinstance(found, (list, dict)):
            return "msgpack"
    except (ValueError, TypeError, msgpack.UnpackException, RecursionError):
        if msgpack_numpy.begins_array(value):
            return "msgpack"  # a damaged value; an error is raised when it is decoded
    try:
        _caffe(value, None)
        return "caffe"
    except ValueError:
        return "bytes"


def _refuse(code: int, data: bytes) -> Any:
    raise ValueError(f"an extension of code {code}")

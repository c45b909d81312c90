"""Read and write the parts of Protocol Buffers that ``tf.train.Example`` and Caffe's ``Datum`` use.

A message consists of fields. A field is a tag, ``number << 3 | type``, and a value. The tag is a varint: an integer with seven bits per
byte, lowest bits first. If another byte follows, the highest bit of a byte is 1. The type determines the form of the value: a varint (0),
eight bytes (1), a length as a varint and this number of bytes (2), or four bytes (5). Source:
https://protobuf.dev/programming-guides/encoding/
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5  # types
_LONGEST = 10  # maximum bytes of a varint of 64 bits

Data = bytes | memoryview
Field = tuple[int, int, int]  # the tag, and the begin and end of the value; for a varint, the value itself and the end


def read_fields(data: Data, at: int, end: int) -> list[Field]:
    """Return the fields of the message between two byte offsets.

    Raises:
        ValueError: the message is invalid or incomplete.
    """
    found: list[Field] = []
    try:
        while at < end:
            tag = data[at]
            at += 1
            if tag >= 0x80:
                tag, at = read_varint(data, at - 1)
            kind = tag & 7
            if kind == BYTES:
                size = data[at]
                at += 1
                if size >= 0x80:
                    size, at = read_varint(data, at - 1)
                found.append((tag, at, at := at + size))
            elif kind == VARINT:
                value, at = read_varint(data, at)
                found.append((tag, value, at))
            elif kind in (FIXED32, FIXED64):
                found.append((tag, at, at := at + (4 if kind == FIXED32 else 8)))
            else:
                raise ValueError(f"byte {at - 1}: the field has the type {kind}; expected 0, 1, 2 or 5")
    except IndexError:
        at = end + 1
    if at != end:
        raise ValueError(f"a message of {end} bytes ends within one of its fields")
    return found


def read_varint(data: Data, at: int) -> tuple[int, int]:
    """Return the value of an unsigned varint, and the byte offset after the varint.

    Raises:
        ValueError: the varint is incomplete or too long.
    """
    value, shift, place = 0, 0, at
    try:
        while shift < 7 * _LONGEST:
            byte = data[place]
            place += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value if shift < 63 else value & 0xFFFF_FFFF_FFFF_FFFF, place
            shift += 7
    except IndexError:
        raise ValueError(f"byte {at}: the number is incomplete") from None
    raise ValueError(f"byte {at}: the number has more than {_LONGEST} bytes")


def read_int64s(data: Data, begin: int, end: int) -> np.ndarray:
    """Return consecutive varints as int64.

    Raises:
        ValueError: the last varint is incomplete, or a varint has more than 10 bytes.
    """
    found = np.frombuffer(data, np.uint8, end - begin, begin)
    last = found < 0x80
    if last.all():
        return found.astype(np.int64)
    ends = np.flatnonzero(last) + 1
    if not last[-1]:
        raise ValueError(f"byte {end}: the last number is incomplete")
    begins = np.concatenate([[0], ends[:-1]])
    sizes = ends - begins
    if (longest := int(sizes.max())) > _LONGEST:
        raise ValueError(f"a number has {longest} bytes; expected at most {_LONGEST}")
    shifts = 7 * (np.arange(len(found)) - np.repeat(begins, sizes)).astype(np.uint64)
    return np.bitwise_or.reduceat((found & 0x7F).astype(np.uint64) << shifts, begins).view(np.int64)


def write_varint(value: int) -> bytes:
    """Encode an integer of 64 bits as a varint. A negative integer takes ten bytes."""
    value &= 0xFFFF_FFFF_FFFF_FFFF
    found = bytearray()
    while value >= 0x80:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    found.append(value)
    return bytes(found)


def write_int64s(values: Iterable[int]) -> bytes:
    """Encode integers as consecutive varints."""
    return b"".join(map(write_varint, values))


def write_bytes(tag: int, data: bytes) -> bytes:
    """Encode a field that contains bytes or a message."""
    return b"%c%b%b" % (tag, write_varint(len(data)), data)

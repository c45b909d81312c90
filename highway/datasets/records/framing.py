"""The framing of TFRecord files: each record stands between its length and two checksums.

::

    uint64 length, uint32 checksum of these eight bytes, length bytes, uint32 checksum of them        all little-endian

A checksum is a CRC-32C, its bits rotated right by 15, plus 0xa282ead8. https://www.tensorflow.org/tutorials/load_data/tfrecord
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np

from highway.datasets.file import FileState, UnchangingFile
from highway.datasets.index_file import index_path, load_index, save_index
from highway.distribution import import_extra
from highway.engine.cancel import check_cancelled
from highway.errors import DatasetError

HEADER, FOOTER = 12, 4  # bytes before and behind a record's data
_LENGTH, _CHECKSUM = struct.Struct("<Q"), struct.Struct("<I")
_DELTA = 0xA282EAD8
_VERSION = "tfrecord 1"
_WINDOW = 1 << 20  # bytes that are looked through at once, where many records are in them
_MANY = 32
_AT_ONCE = 1 << 16  # headers that are checked together
_COMPRESSED = {b"\x1f\x8b": "GZIP", b"\x78\x01": "ZLIB", b"\x78\x5e": "ZLIB", b"\x78\x9c": "ZLIB", b"\x78\xda": "ZLIB"}


@cache
def _crc32c() -> Any:
    return import_extra("google_crc32c", "tfrecord", "TFRecord").value


def checksum(data: bytes) -> int:
    """Return the checksum of some bytes."""
    crc: int = _crc32c()(data)
    return ((crc >> 15 | crc << 17) + _DELTA) & 0xFFFF_FFFF


def framed(data: bytes) -> bytes:
    """Return a record as it stands in a file."""
    length = _LENGTH.pack(len(data))
    return b"".join((length, _CHECKSUM.pack(checksum(length)), data, _CHECKSUM.pack(checksum(data))))


def read_records(path: str, data: bytes, begin: int, places: Sequence[tuple[int, int]]) -> list[bytes]:
    """Return the data of records.

    Args:
        path: The file, for messages.
        data: What stands in it from ``begin`` on.
        begin: Where the first of them begins.
        places: Where in the file each begins and ends.

    Raises:
        DatasetError: one has another length, or its data do not fit their checksum.
    """
    found, crc32c, length_at, checksum_at = list[bytes](), _crc32c(), _LENGTH.unpack_from, _CHECKSUM.unpack_from
    for first, last in places:
        start, end = first - begin, last - begin - FOOTER
        record = data[start + HEADER : end]
        if (length := length_at(data, start)[0]) != len(record):
            raise DatasetError(f"{path}: byte {first}: expected a record of {len(record)} bytes, found one of {length}; remove the index")
        crc = crc32c(record)
        if (((crc >> 15 | crc << 17) + _DELTA) & 0xFFFF_FFFF,) != checksum_at(data, end):
            raise _damaged(path, first, record, data[end:])
        found.append(record)
    return found


def checked_data(path: str, data: bytes, footer: bytes, begin: int) -> bytes:
    """Return the data of a record that begins at a place, once it fits the checksum behind it. Raises as :func:`read_records`."""
    if checksum(data) != _CHECKSUM.unpack(footer)[0]:
        raise _damaged(path, begin, data, footer)
    return data


def _damaged(path: str, begin: int, data: bytes, footer: bytes) -> DatasetError:
    how = f"expected {_CHECKSUM.unpack_from(footer)[0]:#010x}, found {checksum(data):#010x}"
    where = f"{path}: byte {begin}: the checksum of its {len(data)} bytes does not fit ({how})"
    return DatasetError(f"{where}: the record is damaged, or its index: remove that")


def offsets_of(file: UnchangingFile, path: str, index: bool | str) -> np.ndarray:
    """Return where the records of a file begin, and its end behind them: uint32 or uint64 ``(N + 1,)``.

    Args:
        file: The file.
        path: Where it is.
        index: Whether they are kept in a file beside it, or the folder in which they are.

    Raises:
        DatasetError: it is no TFRecord file, is compressed, damaged or cut short; says where.
    """
    for place in dict.fromkeys([index_path(path, index), index_path(path, False)]):
        if found := load_index(place, _VERSION, ["state", "offsets"]):
            state, offsets = found
            if FileState(*state.tolist()) == file.state and _fit(offsets, file.state.size):
                return offsets
    offsets = _scanned(file)
    if index:
        save_index(index_path(path, index), _VERSION, {"state": np.array(file.state), "offsets": offsets})
    return offsets


def _fit(offsets: np.ndarray, size: int) -> bool:
    """Say whether offsets in an index are those of a file of so many bytes."""
    if offsets.ndim != 1 or offsets.dtype.kind != "u" or not len(offsets) or offsets[0] != 0 or offsets[-1] != size:
        return False
    return bool((np.diff(offsets.astype(np.int64)) >= HEADER + FOOTER).all())


def _scanned(file: UnchangingFile) -> np.ndarray:
    size, position, window = file.state.size, 0, _WINDOW
    offsets, headers, checked = array("Q"), bytearray(), 0
    unpack = _LENGTH.unpack_from
    while position < size:
        check_cancelled()
        data = file.read(position, min(window, size - position))
        at, last, before = 0, len(data) - HEADER, len(offsets)
        while at <= last:
            offsets.append(position + at)
            headers += data[at : at + HEADER]
            at += unpack(data, at)[0] + HEADER + FOOTER
        if len(headers) >= _AT_ONCE * HEADER or position + at >= size or at == 0:
            _check_lengths(file, headers, offsets, checked)
            headers.clear()
            checked = len(offsets)
        if at == 0 or position + at > size:
            begin = offsets[-1] if at else position
            raise DatasetError(
                f"{file.path}: byte {begin}: a record of {max(position + at - begin, HEADER)} bytes, of which {size - begin} are there: "
                "the file was cut short"
            )
        window = _WINDOW if at * _MANY <= _WINDOW * (len(offsets) - before) else HEADER
        position += at
    offsets.append(size)
    return np.asarray(offsets).astype(np.uint32 if size < 1 << 32 else np.uint64)


def _check_lengths(file: UnchangingFile, headers: bytes | bytearray, offsets: array[int], first: int) -> None:
    """Raise DatasetError if one of several lengths does not fit its checksum.

    Args:
        file: The file.
        headers: Lengths and checksums.
        offsets: Where in the file records begin.
        first: Which of these the headers begin with.
    """
    rows = np.frombuffer(bytes(headers), np.uint8).reshape(-1, HEADER)
    tables, zeros = _tables()
    found = np.full(len(rows), zeros, np.uint32)
    for place in range(_LENGTH.size):
        found ^= tables[place][rows[:, place]]
    found = (found >> np.uint32(15) | found << np.uint32(17)) + np.uint32(_DELTA)
    expected = rows[:, _LENGTH.size :].copy().view("<u4")[:, 0]
    wrong = np.flatnonzero(found != expected)
    if not len(wrong):
        return
    row = int(wrong[0])
    offset = offsets[first + row]
    how = f"expected {expected[row]:#010x}, found {found[row]:#010x}"
    if offset:
        raise DatasetError(
            f"{file.path}: byte {offset}, record {first + row}: the checksum of its length does not fit ({how}): it is damaged"
        )
    start = rows[0].tobytes()
    if kind := _COMPRESSED.get(start[:2]):
        raise DatasetError(
            f"{file.path}: compressed by {kind}: its records have no places; decompress it first"
            + (", with `gzip -d`" if kind == "GZIP" else ", with Python's zlib.decompress")
        )
    raise DatasetError(f"{file.path}: no TFRecord file: the checksum of the first length does not fit ({how})")


@cache
def _tables() -> tuple[np.ndarray, int]:
    """Return what each byte at each of eight places adds to the CRC-32C of eight zeros, uint32 ``(8, 256)``, and that itself."""
    crc, size = _crc32c(), _LENGTH.size
    zeros = crc(bytes(size))
    table = [[crc(bytes(place) + bytes([byte]) + bytes(size - 1 - place)) ^ zeros for byte in range(256)] for place in range(size)]
    return np.array(table, np.uint32), zeros

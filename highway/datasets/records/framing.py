"""The framing of TFRecord files. A length and a checksum of the length precede each record. A checksum of the data follows the record.

::

    uint64 length, uint32 checksum of these eight bytes, length bytes of data, uint32 checksum of the data     all little-endian

A checksum is a CRC-32C, rotated right by 15 bits, plus 0xa282ead8. https://www.tensorflow.org/tutorials/load_data/tfrecord
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np

from highway.datasets.index.file import Group
from highway.datasets.records.protobuf import Data
from highway.engine.cancel import check_cancelled
from highway.errors import DatasetError
from highway.extras import import_extra
from highway.stores.file import open_file
from highway.stores.unchanging import UnchangingFile

HEADER, FOOTER = 12, 4  # number of bytes before and after the data of a record
_LENGTH, _CHECKSUM = struct.Struct("<Q"), struct.Struct("<I")
_DELTA = 0xA282EAD8
VERSION = "tfrecord 1"  # version of the index of a file
WINDOW = 1 << 20  # number of bytes to scan at once, if they contain many records
_MANY = 32
HEADERS_AT_ONCE = 1 << 16  # number of headers to check together
_COMPRESSED = {b"\x1f\x8b": "GZIP", b"\x78\x01": "ZLIB", b"\x78\x5e": "ZLIB", b"\x78\x9c": "ZLIB", b"\x78\xda": "ZLIB"}


@cache
def _crc32c() -> Any:
    return import_extra("google_crc32c", "tfrecord", "TFRecord").value


def checksum(data: bytes) -> int:
    """Return the checksum of bytes."""
    crc: int = _crc32c()(data)
    return ((crc >> 15 | crc << 17) + _DELTA) & 0xFFFF_FFFF


def framed(data: bytes) -> bytes:
    """Return a record with its framing."""
    length = _LENGTH.pack(len(data))
    return b"".join((length, _CHECKSUM.pack(checksum(length)), data, _CHECKSUM.pack(checksum(data))))


def check_records(file: UnchangingFile, records: Sequence[Data], footers: Sequence[Data], begins: Sequence[int]) -> None:
    """Raise DatasetError if a record does not match its checksum.

    Args:
        file: The file, to name it in errors and to read the length of a wrong record.
        records: The data of each record.
        footers: The checksum of each record, as bytes.
        begins: The byte offset of each record in the file.
    """
    contents = (np.frombuffer(data, np.uint8) if isinstance(data, memoryview) else data for data in records)  # crc32c takes no memoryview
    found = _masked(np.fromiter(map(_crc32c(), contents), np.uint32, len(records)))
    expected = np.frombuffer(b"".join(footers), "<u4")
    for wrong in np.flatnonzero(found != expected).tolist():
        begin, size, path = begins[wrong], len(records[wrong]), file.path
        (length,) = _LENGTH.unpack(file.read(begin, _LENGTH.size))
        if length != size:
            sizes = f"the index lists a record of {size} bytes, but the file has a record of {length} bytes"
            raise DatasetError(f"{path}: byte {begin}: {sizes}; remove the index file, and highway creates it again")
        how = f"expected {expected[wrong]:#010x}, found {found[wrong]:#010x}"
        raise DatasetError(
            f"{path}: byte {begin}: the record of {size} bytes does not match its checksum ({how}). Remove the index file, which may be "
            "damaged; if the error stays, the record is damaged: fetch the file again"
        )


def _masked(crcs: np.ndarray) -> np.ndarray:
    """Convert CRC-32Cs to checksums, uint32."""
    masked: np.ndarray = (crcs >> np.uint32(15) | crcs << np.uint32(17)) + np.uint32(_DELTA)
    return masked


def index_of(path: str) -> Group:
    """Return the index of a file. Its only array, ``(N + 1,)``, contains the byte offsets of the records, and the size of the file.

    Raises:
        DatasetError: the file is not a TFRecord file, or is compressed, damaged or truncated. Errors of damage name the byte offset.
    """
    file = open_file(path)
    return Group.of(file.state, [_scanned(file)])


def _scanned(file: UnchangingFile) -> np.ndarray:
    size, position, window = file.state.size, 0, WINDOW
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
        if len(headers) >= HEADERS_AT_ONCE * HEADER or position + at >= size or at == 0:
            _check_lengths(file, headers, offsets, checked)
            headers.clear()
            checked = len(offsets)
        if at == 0 or position + at > size:
            begin = offsets[-1] if at else position
            raise DatasetError(
                f"{file.path}: byte {begin}: the file has only {size - begin} of the {max(position + at - begin, HEADER)} bytes of a "
                f"record: the file was truncated; fetch it again"
            )
        window = WINDOW if at * _MANY <= WINDOW * (len(offsets) - before) else HEADER
        position += at
    offsets.append(size)
    return np.asarray(offsets).astype(np.uint32 if size < 1 << 32 else np.uint64)


def _check_lengths(file: UnchangingFile, headers: bytes | bytearray, offsets: array[int], first: int) -> None:
    """Raise DatasetError if a length does not match its checksum.

    Args:
        file: The file.
        headers: The lengths and their checksums, concatenated.
        offsets: The byte offsets of the records in the file.
        first: The index in ``offsets`` of the record to which the first header belongs.
    """
    rows = np.frombuffer(bytes(headers), np.uint8).reshape(-1, HEADER)
    tables, zeros = _tables()
    found = np.full(len(rows), zeros, np.uint32)
    for place in range(_LENGTH.size):
        found ^= tables[place][rows[:, place]]
    found = _masked(found)
    expected = rows[:, _LENGTH.size :].copy().view("<u4")[:, 0]
    wrong = np.flatnonzero(found != expected)
    if not len(wrong):
        return
    row = int(wrong[0])
    offset = offsets[first + row]
    how = f"expected {expected[row]:#010x}, found {found[row]:#010x}"
    if offset:
        raise DatasetError(
            f"{file.path}: byte {offset}, record {first + row}: the length of the record does not match its checksum ({how}): the file is "
            "damaged; fetch it again"
        )
    start = rows[0].tobytes()
    if kind := _COMPRESSED.get(start[:2]):
        raise DatasetError(
            f"{file.path}: the file is compressed with {kind}, so there is no random access to its records; decompress it first"
            + (", with `gzip -d`" if kind == "GZIP" else ", with Python's zlib.decompress")
        )
    raise DatasetError(f"{file.path}: not a TFRecord file: the checksum of the first length does not match ({how})")


@cache
def _tables() -> tuple[np.ndarray, int]:
    """Return tables for computing the CRC-32Cs of many 8-byte lengths together, and the CRC-32C of eight zero bytes.

    The tables are uint32 ``(8, 256)``. Entry ``[place, byte]`` is the change of the CRC-32C, by XOR, if the zero byte at
    ``place`` is replaced with ``byte``.
    """
    crc, size = _crc32c(), _LENGTH.size
    zeros = crc(bytes(size))
    table = [[crc(bytes(place) + bytes([byte]) + bytes(size - 1 - place)) ^ zeros for byte in range(256)] for place in range(size)]
    return np.array(table, np.uint32), zeros

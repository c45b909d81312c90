"""Parse plain tar headers much faster than tarfile does, and check the end of an archive.

A plain header contains only a name and a size. Before a header, an archive can have a pax header, which contains further records.
An end mark of at least two blocks of zeros ends the archive. Zeros can follow as padding.
"""

from __future__ import annotations

import re
import struct
import tarfile
import zlib
from typing import NamedTuple

BLOCK = tarfile.BLOCKSIZE
PAX_BLOCKS = 3  # blocks of a pax header, its records, and the header of the file
MOST_ZEROS = 2 * BLOCK + tarfile.RECORDSIZE  # size of the end mark with the longest padding that tar writes by default

_FIELDS = struct.Struct("99sB24x12s12x8sB188xB166x")  # name, last byte of the name, size, checksum, kind, first byte of the name's prefix
_FILE, _PAX = b"0\0", ord("x")
# Pax records without a name or a size. Python's tarfile writes such a record if a modification time is not a whole second.
_SILENT = re.compile(rb"(\d+) (?:[amc]time|[ug]id|[ug]name)=[^\n]*\n")


class PlainFile(NamedTuple):
    """A regular file in an archive.

    Args:
        name: The path.
        size: Length of the file in bytes.
        header: Length of the header in bytes, including the pax header, if there is one.
    """

    name: str
    size: int
    header: int


def is_header(data: bytes, at: int = 0) -> bool:
    """Return whether a header with a valid checksum begins at byte offset ``at`` in ``data``."""
    if len(data) - at < BLOCK:
        return False
    return _number(_FIELDS.unpack_from(data, at)[3]) == _checksum(data, at)


def plain_file(data: bytes, at: int = 0) -> PlainFile | None:
    """Return the file whose header begins at byte offset ``at``. Return ``None`` if the header is not plain, or is invalid or truncated."""
    if len(data) - at < BLOCK:
        return None
    if data[at + 156] == _PAX:
        before = _silent_header(data, at)
        found = plain_file(data, at + before) if before and data[at + before + 156 : at + before + 157] != b"x" else None
        return found and PlainFile(found.name, found.size, before + found.header)
    name, last, size, checksum, kind, prefix = _FIELDS.unpack_from(data, at)
    name = name[: name.find(b"\0")] if b"\0" in name else name
    if kind not in _FILE or last or prefix or not name or name.endswith(b"/"):
        return None
    length = _number(size)
    if length < 0 or _number(checksum) != _checksum(data, at):
        return None
    return PlainFile(name.decode(errors="surrogateescape"), length, BLOCK)


def check_end(rest: bytes, offset: int, has_files: bool) -> None:
    """Check that an archive has files, and that only padding follows the end mark.

    Args:
        rest: The bytes from the end mark to the end of the archive. The first ``MOST_ZEROS + 1`` bytes are sufficient.
        offset: The byte offset of the end mark.
        has_files: Whether the archive has files.

    Raises:
        tarfile.ReadError: the archive has no files, or ``rest`` is not a valid end mark with padding.
    """
    if content := rest.lstrip(b"\0"):
        place = offset + len(rest) - len(content)
        raise tarfile.ReadError(
            f"the end mark (zeros) is at byte {offset}, but other bytes follow at byte {place}. If several archives were concatenated with "
            f"cat, concatenate them with tar --concatenate. Otherwise zeros have replaced the header of a file: fetch the shard again"
        )
    if len(rest) > MOST_ZEROS:
        raise tarfile.ReadError(
            f"more than {tarfile.RECORDSIZE} zero bytes follow the end mark at byte {offset}. If the download was interrupted, fetch the "
            f"shard again. If the shard is complete, truncate it after the end mark, or write it again with records of the default size"
        )
    if not has_files:
        raise tarfile.ReadError("the shard has no files; if it is meant to be empty, remove it, otherwise fetch it again")


def _silent_header(data: bytes, at: int) -> int:
    """Return the length of a pax header with its records. Return 0 if ``plain_file`` cannot ignore the records."""
    size = _number(data[at + 124 : at + 136])
    if not 0 < size <= BLOCK or not is_header(data, at):
        return 0
    begin, end = at + BLOCK, at + BLOCK + size
    while begin < end:
        record = _SILENT.match(data, begin, end)
        if record is None or int(record[1]) != record.end() - begin:
            return 0
        begin = record.end()
    return 2 * BLOCK


def _number(field: bytes) -> int:
    """Return the octal number in a field of a header, or -1 if the field contains no octal number."""
    try:
        return int(field.rstrip(b"\0 "), 8)
    except ValueError:
        return -1


def _checksum(data: bytes, at: int) -> int:
    """Return the checksum of a header: the sum of its bytes, with spaces in place of the checksum field."""
    # The lower 16 bits of an Adler-32 are the sum of the bytes + 1. A half of a header is short enough that this sum does not overflow.
    halves = (zlib.adler32(data[at : at + 256]) & 0xFFFF) + (zlib.adler32(data[at + 256 : at + BLOCK]) & 0xFFFF) - 2
    return halves - sum(data[at + 148 : at + 156]) + 8 * ord(" ")

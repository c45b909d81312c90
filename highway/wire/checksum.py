"""Checksums for the arrays of a ``.ten`` file.

The checksum of an array is at the end of the array's header, after the dimensions. tensorcom ignores the checksum.

A checksum has 16 bytes: ``~HwXxh3~`` and a little-endian xxh3_64 hash. The hash covers the header before these bytes, and the data. Files
of tensorcom or of highway 0.1.0 have no checksums, and are read without a check. Messages on the wire have no checksums.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

import xxhash

from highway.errors import FrameError
from highway.wire import envelope
from highway.wire.tenbin import Buffer, behind_header

MAGIC = b"~HwXxh3~"
_SUM = struct.Struct("<8sQ")


def with_checksums(frames: Sequence[Buffer]) -> list[Buffer]:
    """Return alternating headers and data, with a checksum in each header."""
    sealed: list[Buffer] = []
    for header, data in zip(frames[::2], frames[1::2], strict=True):
        sealed += [bytes(header) + _SUM.pack(MAGIC, _sum(header, data)), data]
    return sealed


def check(frames: Sequence[Buffer]) -> None:
    """Verify the checksums of alternating headers and data. If one array has a checksum, all arrays must have a checksum.

    Raises:
        FrameError: a checksum is wrong or missing, or unknown bytes follow a header.
    """
    headers = [memoryview(header).cast("B") for header in frames[::2]]
    if not any(behind_header(header)[:8] == envelope.MAGIC or header[-_SUM.size : -8] == MAGIC for header in headers):
        return
    ends = [_end_of(header, position) for position, header in enumerate(headers)]
    if any(ends) and not all(ends):
        raise FrameError(f"array {ends.index(b'')}: the checksum is missing, but other arrays have a checksum: the file is damaged")
    for position, end in enumerate(ends):
        header, data = headers[position], frames[2 * position + 1]
        if end and _SUM.pack(MAGIC, _sum(header[: -_SUM.size], data)) != end:
            raise FrameError(f"array {position}: the checksum does not match: the file is damaged")


def _end_of(header: Buffer, position: int) -> bytes:
    """Return the checksum after a header, or empty bytes if there is no checksum."""
    behind = behind_header(header)
    end = bytes(behind[envelope.length(behind) :])
    if end and (len(end) != _SUM.size or not end.startswith(MAGIC)):
        raise FrameError(f"array {position}: the {len(end)} bytes after the header are not a checksum: the file is damaged")
    return end


def _sum(header: Buffer, data: Buffer) -> int:
    digest = xxhash.xxh3_64(header)
    digest.update(data)
    return int(digest.intdigest())

"""A stream of a tar archive, read ahead: few calls of the system for small files, and no copy of large ones.

Each call lets the GIL go, and who waits for a sample then takes it: for files of 100 kB that costs more than to copy them.
"""

from __future__ import annotations

import os
import tarfile
from typing import Any

from highway.datasets.tar_headers import BLOCK, PAX_BLOCKS, PlainFile, plain_file
from highway.engine.cancel import check_cancelled

LEAST = 1 << 12  # bytes that are read ahead: the more, the more small files stand one after the other
MOST, LARGE = 1 << 20, 1 << 18  # of them, and of a file of which no part is read ahead, where the stream is a file on disk
MOST_OF_PIPE, LARGE_OF_PIPE = 1 << 16, 1 << 15  # where it is not
_AT_ONCE = 1 << 26  # bytes that a file on disk is asked for at once: a damaged header may announce any number


class Ahead:
    """A stream that is read ahead in blocks.

    Args:
        stream: Its ``read`` may return fewer bytes than it is asked for, but none at the end alone.

    Attributes:
        block: What was read last.
        at: How much of it was taken.
    """

    def __init__(self, stream: Any) -> None:
        self._stream = stream
        self._descriptor = stream.fileno() if stream.seekable() else None
        self._most, self._large = (MOST_OF_PIPE, LARGE_OF_PIPE) if self._descriptor is None else (MOST, LARGE)
        self._next = 0  # the place that is read next
        self.block, self.at = b"", 0
        self._begin = 0  # of the block
        self._size = LEAST

    def tell(self) -> int:
        """Return how many bytes were taken."""
        return self._begin + self.at

    def plain_file(self) -> PlainFile | None:
        """Return the file whose header is next, if it is a plain one."""
        if len(self.block) - self.at < BLOCK:
            self.fetch(BLOCK)
        if self.block[self.at + 156 : self.at + 157] == b"x":
            self.fetch(PAX_BLOCKS * BLOCK)
        return plain_file(self.block, self.at)

    def fetch(self, size: int) -> None:
        """Have so many bytes in the block that were not taken, or fewer at the end of the stream."""
        if len(self.block) - self.at >= size:
            return
        self._begin, self.block, self.at = self.tell(), self._rest(), 0
        while len(self.block) < size and (more := self._more(max(self._size, size) - len(self.block))):
            self.block += more
            self._size = min(2 * self._size, self._most)

    def _rest(self) -> bytes:
        """Return what is left of the block, in front of what is read next; of a file nothing: it is read again, which saves the joining."""
        if self._descriptor is None:
            return self.block[self.at :]
        self._next = self.tell()
        return b""

    def read(self, size: int) -> bytes:
        """Take so many bytes, or fewer at the end of the stream."""
        if self.at + size > len(self.block):
            if self._descriptor is None or size >= self._large:
                return self._unread(size)
            self.fetch(size)
        begin, self.at = self.at, min(self.at + size, len(self.block))
        return self.block[begin : self.at]

    def _unread(self, size: int) -> bytes:
        """Take so many bytes of which no more are put into the block."""
        if size >= self._large:
            self._size = LEAST
        begin, rest = self.tell(), self._rest()
        parts, missing = [rest] if rest else [], size - len(rest)
        while missing and (part := self._more(min(missing, _AT_ONCE))):
            parts.append(part)
            missing -= len(part)
        data = parts[0] if len(parts) == 1 else b"".join(parts)
        self._begin, self.block, self.at = begin + len(data), b"", 0
        return data

    def read_some(self, size: int) -> bytes:
        """Take at most so many bytes: what is there, and none only at the end of the stream."""
        if self.at == len(self.block):
            self._begin, self.block, self.at = self.tell(), self._more(size), 0
        return self.read(min(size, len(self.block) - self.at))

    def seek(self, position: int) -> None:
        """Go on to a place further behind.

        Raises:
            tarfile.ReadError: the stream ends before.
            tarfile.StreamError: it lies before what is in the block.
        """
        if position < self._begin:
            raise tarfile.StreamError("seeking backwards is not allowed")
        while position > self._begin + len(self.block):
            self._begin, self.block, self.at = self._begin + len(self.block), self._more(self._most), 0
            if not self.block:
                raise tarfile.ReadError("unexpected end of data")
        self.at = position - self._begin

    def _more(self, size: int) -> bytes:
        check_cancelled()
        more: bytes = self._stream.read(size) if self._descriptor is None else os.pread(self._descriptor, size, self._next)
        self._next += len(more)
        return more

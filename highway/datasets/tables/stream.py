"""A file object for pyarrow. Parts of the file that were fetched before are not read again."""

from __future__ import annotations

from collections.abc import Sequence

from highway.engine.cancel import check_cancelled
from highway.stores.file import read_ranges
from highway.stores.unchanging import FileRange, SeekableFile, UnchangingFile

Held = tuple[int, bytes]  # a part of a file: its byte offset and its bytes


def fetched(ranges: Sequence[FileRange]) -> list[list[Held]]:
    """Fetch ranges of files concurrently. Return a list of fetched parts for each range. For a local file, the list is empty."""
    stored = [one for one in ranges if not one.file.is_here]
    parts = iter(zip(stored, read_ranges(stored), strict=True))
    return [[] if one.file.is_here else [(one.offset, next(parts)[1])] for one in ranges]


class FileStream(SeekableFile):
    """A file object. Only one thread at a time can use it.

    Args:
        file: The file to read.
        held: The parts of the file that :func:`fetched` returned.
    """

    def __init__(self, file: UnchangingFile, held: Sequence[Held] = ()) -> None:
        super().__init__(file)
        self._held = held

    def size(self) -> int:
        return self._file.state.size

    def read(self, size: int = -1) -> bytes:
        check_cancelled()
        begin, there = self._at, self._file.state.size - self._at
        end = self._at = begin + max(0, there if size < 0 else min(size, there))
        for first, data in self._held:
            if first <= begin and end <= first + len(data):
                return data[begin - first : end - first]
        return self._file.read(begin, end - begin) if end > begin else b""

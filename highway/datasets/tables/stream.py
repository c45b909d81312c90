"""A file object from which pyarrow reads. Parts of the file may have been fetched before."""

from __future__ import annotations

from collections.abc import Sequence

from highway.engine.cancel import check_cancelled
from highway.stores.file import read_ranges
from highway.stores.unchanging import FileRange, SeekableFile, UnchangingFile

Held = tuple[int, bytes]  # the position and the bytes of a part of a file


def fetched(ranges: Sequence[FileRange]) -> list[list[Held]]:
    """Return, for each range, the parts of its file in memory. Ranges of files in a store are fetched concurrently."""
    stored = [one for one in ranges if not one.file.is_here]
    parts = iter(zip(stored, read_ranges(stored), strict=True))
    return [[] if one.file.is_here else [(one.offset, next(parts)[1])] for one in ranges]


class FileStream(SeekableFile):
    """A file object with its own position, for one thread.

    Args:
        file: The file to read.
        held: Parts of the file that :func:`fetched` returned.
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

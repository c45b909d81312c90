"""Read local files by byte offset. Many threads can read at the same time. If a file changes, an error is raised."""

from __future__ import annotations

import hashlib
import io
import os
import stat
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any, BinaryIO, ClassVar, NamedTuple

from highway.engine.cancel import check_cancelled
from highway.errors import DatasetError
from highway.stores.url import shown


class FileState(NamedTuple):
    """The state of a file: the size in bytes, and the modification time in nanoseconds. The state is used to detect changes.

    For an object in an object store, ``mtime_ns`` is a number that depends on the ETag of the object, or on the modification time.
    """

    size: int
    mtime_ns: int

    @classmethod
    def of(cls, file: str | int) -> FileState:
        """Return the state of a local file. ``file`` is a path or a file descriptor. For URLs, see :func:`highway.stores.file.state_of`."""
        try:
            found = os.stat(file)
        except OSError as error:
            if isinstance(file, str):
                error.filename = shown(file)  # without secrets, because the path might be a misspelt URL
            raise
        return cls(found.st_size, found.st_mtime_ns)


class UnchangingFile:
    """A local file that must not change while it is read. For URLs, see :func:`highway.stores.file.open_file`.

    The file stays open until this object is garbage-collected.

    Args:
        path: The path.
        state: The required state of the file. ``None``: the current state.

    Raises:
        OSError: the path is not a file, or the file cannot be opened.
        DatasetError: the file does not have the required state.
    """

    path: str
    state: FileState
    is_here: ClassVar[bool] = True  # whether this is a local file

    def __init__(self, path: str, state: FileState | None = None) -> None:
        self.path = path
        try:
            self._descriptor = os.open(path, os.O_RDONLY)
        except OSError as error:
            error.filename = shown(path)  # without secrets, because the path might be a misspelt URL
            raise
        if stat.S_ISDIR(os.fstat(self._descriptor).st_mode):
            raise IsADirectoryError(f"{path!r}: this is a folder; expected a file, such as a file in this folder")
        self.state = state or FileState.of(self._descriptor)
        self.check()

    def __del__(self) -> None:
        if hasattr(self, "_descriptor"):
            os.close(self._descriptor)

    def check(self) -> None:
        """Raise DatasetError if the file has changed."""
        size, mtime_ns = found = FileState.of(self._descriptor)
        if found != self.state:
            if size != self.state.size:
                how = f"it had {self.state.size} bytes when it was first read, and now has {size} bytes"
            else:
                then, now = (datetime.fromtimestamp(ns / 1e9).isoformat(" ", "milliseconds") for ns in (self.state.mtime_ns, mtime_ns))
                how = f"when it was first read, its modification time was {then}, and now it is {now}"
            raise DatasetError(f"{self.path}: {how}; a dataset must not change while it is read: start the program again")

    def check_size(self) -> None:
        """Raise DatasetError if the file was truncated. This check is four times as fast as :meth:`check`."""
        if os.lseek(self._descriptor, 0, os.SEEK_END) < self.state.size:
            self.check()

    def read(self, offset: int, size: int) -> bytes:
        """Return ``size`` bytes from ``offset``. Raises DatasetError if the file has changed."""
        data = os.pread(self._descriptor, size, offset)
        if len(data) != size:  # one call reads at most 2 GiB
            memory = bytearray(size)
            self.read_into(offset, memoryview(memory))
            return bytes(memory)
        self.check()
        return data

    def read_into(self, offset: int, memory: memoryview) -> None:
        """Fill ``memory`` with the bytes of the file from ``offset``. Raises DatasetError if the file has changed."""
        done = 0
        while done < len(memory) and (count := os.preadv(self._descriptor, [memory[done:]], offset + done)):
            done += count
        self.check()
        if done < len(memory):
            raise DatasetError(
                f"{self.path}: expected at least {offset + len(memory)} bytes, found {self.state.size} bytes: it is truncated"
            )

    def read_all(self) -> bytes:
        """Return the whole content of the file. Raises DatasetError if the file has changed."""
        return self.read(0, self.state.size)

    def as_stream(self) -> BinaryIO:
        """Return a seekable file object, for libraries that need a file object. Only one thread at a time can use it."""
        return open(self.path, "rb")  # the caller must close it


class SeekableFile(io.RawIOBase):
    """A seekable file object that reads an :class:`UnchangingFile`. Only one thread at a time can use it."""

    def __init__(self, file: UnchangingFile) -> None:
        self._file, self._at = file, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._at = max(0, offset + (0, self._at, self._file.state.size)[whence])
        return self._at

    def readinto(self, buffer: Any) -> int:
        memory = memoryview(buffer).cast("B")
        count = max(0, min(len(memory), self._file.state.size - self._at))
        self._file.read_into(self._at, memory[:count])
        self._at += count
        return count


class FileRange(NamedTuple):
    """A part of a file: ``size`` bytes from ``offset``."""

    file: UnchangingFile
    offset: int
    size: int

    def read(self) -> bytes:
        """Return the bytes of the part."""
        return self.file.read(self.offset, self.size)


def read_ranges_here(ranges: Sequence[FileRange]) -> list[bytes]:
    """Return parts of local files. After all parts were read, check each file once for changes."""
    found = [os.pread(file._descriptor, size, offset) for file, offset, size in ranges]
    for place, wanted in enumerate(ranges):
        if len(found[place]) != wanted.size:  # one call reads at most 2 GiB
            found[place] = wanted.file.read(wanted.offset, wanted.size)
    for file in {id(wanted.file): wanted.file for wanted in ranges}.values():
        file.check()
    return found


def fingerprint(states: Iterable[tuple[str, FileState]]) -> str:
    """Return a string that changes when a name or state changes. The string does not depend on tokens in URLs."""
    digest = hashlib.blake2b(digest_size=16)
    for name, state in states:
        check_cancelled()
        digest.update(f"{shown(name)}\0{state.size}\0{state.mtime_ns}\0".encode(errors="surrogateescape"))
    return digest.hexdigest()

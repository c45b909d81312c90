"""Files that are read by position, by many threads at once, and must stay as they are meanwhile."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import NamedTuple

from highway.engine.cancel import check_cancelled
from highway.errors import DatasetError


class StoredFiles(list[str]):
    """Samples that are files, and have not been read: their paths.

    Args:
        paths: Where each is.
        labels: An integer for each; ``None`` if they have none.
    """

    def __init__(self, paths: Iterable[str], labels: Sequence[int] | None = None) -> None:
        super().__init__(paths)
        self.labels = labels


class FileState(NamedTuple):
    """What is asked of a file to see whether it has changed: its size in bytes, and when it was last written to, in nanoseconds."""

    size: int
    mtime_ns: int

    @classmethod
    def of(cls, file: str | int) -> FileState:
        """Return the state of a file by its path or descriptor."""
        found = os.stat(file)
        return cls(found.st_size, found.st_mtime_ns)


class UnchangingFile:
    """A file that is open until nobody refers to this any more.

    Args:
        path: Where it is.
        state: What it must be; ``None``: what it is now.
    """

    def __init__(self, path: str, state: FileState | None = None) -> None:
        self.path = path
        self._descriptor = os.open(path, os.O_RDONLY)
        self.state = state or FileState.of(self._descriptor)
        self.check()

    def __del__(self) -> None:
        if hasattr(self, "_descriptor"):
            os.close(self._descriptor)

    def check(self) -> None:
        """Raise DatasetError if the file is not any more what it was."""
        size, mtime_ns = found = FileState.of(self._descriptor)
        if found != self.state:
            if size != self.state.size:
                how = f"it had {self.state.size} bytes when it was first read, and now has {size} bytes"
            else:
                then, now = (datetime.fromtimestamp(ns / 1e9).isoformat(" ", "milliseconds") for ns in (self.state.mtime_ns, mtime_ns))
                how = f"when it was first read, it was last written to at {then}, and now at {now}"
            raise DatasetError(f"{self.path}: {how}; a dataset must not change while it is read: begin anew")

    def read(self, offset: int, size: int) -> bytes:
        """Return ``size`` bytes from ``offset`` on. Raises DatasetError if the file has changed."""
        data = os.pread(self._descriptor, size, offset)
        if len(data) != size:  # at most 2 GiB come at once
            memory = bytearray(size)
            self.read_into(offset, memoryview(memory))
            return bytes(memory)
        self.check()
        return data

    def read_into(self, offset: int, memory: memoryview) -> None:
        """Fill memory with the bytes from ``offset`` on. Raises DatasetError if the file has changed."""
        done = 0
        while done < len(memory) and (count := os.preadv(self._descriptor, [memory[done:]], offset + done)):
            done += count
        self.check()
        if done < len(memory):
            raise DatasetError(f"{self.path}: expected at least {offset + len(memory)} bytes, found {self.state.size}: it was cut short")


def fingerprint_of(files: Iterable[tuple[str, str]]) -> str:
    """Return a text that changes when one of the files, given by names and paths, is renamed, removed or written to."""
    digest = hashlib.blake2b(digest_size=16)
    for name, path in files:
        check_cancelled()
        state = FileState.of(path)
        digest.update(f"{name}\0{state.size}\0{state.mtime_ns}\0".encode(errors="surrogateescape"))
    return digest.hexdigest()

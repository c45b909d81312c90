"""Files that are read by position, by many threads at once, and must stay as they are meanwhile; on this machine or in a store."""

from __future__ import annotations

import hashlib
import io
import os
import stat
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime
from typing import Any, BinaryIO, ClassVar, NamedTuple

from highway.engine.cancel import check_cancelled
from highway.errors import DatasetError
from highway.stores.url import is_url, parse, shown


class FileState(NamedTuple):
    """What is asked of a file to see whether it has changed: its size in bytes, and when it was last written to, in nanoseconds.

    Of an object in a store the second is a number that hangs on its ETag, or else on when it was written.
    """

    size: int
    mtime_ns: int

    @classmethod
    def of(cls, file: str | int) -> FileState:
        """Return the state of a file by its path, URL or descriptor."""
        if isinstance(file, str) and is_url(file):
            return open_file(file).state
        try:
            found = os.stat(file)
        except OSError as error:
            if isinstance(file, str):
                error.filename = shown(file)  # it may be a misspelt URL
            raise
        return cls(found.st_size, found.st_mtime_ns)


def open_file(path: str, state: FileState | None = None) -> UnchangingFile:
    """Return a file to read from, by its path or URL.

    Args:
        path: Where it is.
        state: What it must be; ``None``: what it is now.

    Raises:
        FileNotFoundError: there is none. PermissionError: it may not be read. StoreError: the store does not answer.
        DatasetError: it is not what it must be.
        ConfigError: the URL cannot be used as written, or needs a package that is not installed.
    """
    if is_url(path):
        from highway.stores.remote import StoredObject  # here, since plain paths need nothing of it

        return StoredObject.at(path, state)
    return UnchangingFile(path, state)


class UnchangingFile:
    """A file on this machine that is open until nobody refers to this any more; :func:`open_file` takes URLs too.

    Args:
        path: Where it is.
        state: What it must be; ``None``: what it is now.
    """

    path: str
    state: FileState
    is_here: ClassVar[bool] = True  # on this machine

    def __init__(self, path: str, state: FileState | None = None) -> None:
        self.path = path
        try:
            self._descriptor = os.open(path, os.O_RDONLY)
        except OSError as error:
            error.filename = shown(path)  # it may be a misspelt URL
            raise
        if stat.S_ISDIR(os.fstat(self._descriptor).st_mode):
            raise IsADirectoryError(f"{path!r}: a folder; expected a file, such as one of those in it")
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

    def check_size(self) -> None:
        """Raise DatasetError if the file is shorter than it was, at a quarter of the time of :meth:`check`."""
        if os.lseek(self._descriptor, 0, os.SEEK_END) < self.state.size:
            self.check()

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

    def as_stream(self) -> BinaryIO:
        """Return a file object that can seek, for libraries that read from one; it has a place of its own, and is for one thread."""
        return open(self.path, "rb")  # whoever asked for it closes it


class SeekableFile(io.RawIOBase):
    """A file as a file object of Python's with a place of its own in it, for one thread."""

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
    """A part of a file: ``size`` bytes from ``offset`` on."""

    file: UnchangingFile
    offset: int
    size: int

    def read(self) -> bytes:
        """Return it."""
        return self.file.read(self.offset, self.size)


def read_ranges(ranges: Sequence[FileRange], cached: bool = True) -> list[bytes]:
    """Return parts of files: those on this machine one after the other, those in stores all at once.

    Whether a file on this machine has changed is asked once, when all its parts are read.

    Args:
        ranges: The parts.
        cached: Whether they may come from a cache, and go into it.

    Raises:
        FileNotFoundError, PermissionError, StoreError: one cannot be read.
        DatasetError: one of the files has changed, or is shorter than it should be.
    """
    stored = [place for place, wanted in enumerate(ranges) if not wanted.file.is_here]
    if not stored:
        return _read_here(ranges)
    from highway.stores.remote import read_stored

    fetched = dict(zip(stored, read_stored([ranges[place] for place in stored], cached), strict=True))
    return [fetched[place] if place in fetched else file.read(offset, size) for place, (file, offset, size) in enumerate(ranges)]


def _read_here(ranges: Sequence[FileRange]) -> list[bytes]:
    found = [os.pread(file._descriptor, size, offset) for file, offset, size in ranges]
    for place, wanted in enumerate(ranges):
        if len(found[place]) != wanted.size:  # at most 2 GiB come at once
            found[place] = wanted.file.read(wanted.offset, wanted.size)
    for file in {id(wanted.file): wanted.file for wanted in ranges}.values():
        file.check()
    return found


def local(path: str) -> str:
    """Return a path as it is, or that of a copy of what a URL stands for; see :func:`highway.stores.copies.local_copy`."""
    if not is_url(path):
        return path
    from highway.stores.copies import local_copy

    return local_copy(path)


def read_whole(path: str) -> bytes:
    """Return the content of a file or object."""
    if not is_url(path):
        with open(path, "rb", buffering=0) as file:
            return file.read()
    file_ = open_file(path)
    return file_.read(0, file_.state.size)


def open_text(path: str) -> io.TextIOBase:
    """Open a text in UTF-8, by its path or URL."""
    if is_url(path):
        return io.TextIOWrapper(io.BytesIO(read_whole(path)), encoding="utf-8")
    return open(path, encoding="utf-8")


def exists(path: str) -> bool:
    """Say whether there is a file or folder of this path, or an object of this URL."""
    if not is_url(path):
        return os.path.exists(path)
    try:
        open_file(path)
    except FileNotFoundError:
        return False
    return bool(parse(path).key)  # a bucket is no object, though some stores have a state of it, too


def read_head(path: str, size: int) -> bytes:
    """Return the first bytes of a file or object, or fewer if it has fewer; none if there is no such file."""
    if not is_url(path):
        if not os.path.isfile(path):
            return b""
        with open(path, "rb", buffering=0) as file:
            return file.read(size)
    try:
        found = open_file(path)
    except (FileNotFoundError, PermissionError):
        return b""
    return found.read(0, min(size, found.state.size))


def entries_in(folder: str) -> set[str]:
    """Return the names of what lies in a folder now, folders with a slash, by its path or URL; nothing if there is no such folder."""
    if is_url(folder):
        from highway.stores.listing import keys_in

        return keys_in(folder, below=False)
    if not os.path.isdir(folder):
        return set()
    with os.scandir(folder) as entries:
        return {f"{entry.name}/" if entry.is_dir() else entry.name for entry in entries}


def names_in(folder: str) -> set[str]:
    """Return the names of what lies in a folder now, by its path or URL; nothing if there is no such folder."""
    return {entry.rstrip("/") for entry in entries_in(folder)}


def present_in(folder: str) -> Callable[[str], bool]:
    """Return what says whether there is something under a path in a folder; a store is asked once, here."""
    if not is_url(folder):
        return lambda name: os.path.exists(os.path.join(folder, name))
    from highway.stores.listing import keys_in

    return keys_in(folder).__contains__


def remove(path: str) -> None:
    """Remove a file or object."""
    if not is_url(path):
        os.unlink(path)
        return
    from highway.stores.writing import remove_objects

    remove_objects([path])


def fingerprint_of(files: Iterable[tuple[str, str]]) -> str:
    """Return a text that changes when one of the files, given by names and paths or URLs, is renamed, removed or written to."""
    return fingerprint(states_of(files))


def states_of(files: Iterable[tuple[str, str]]) -> Iterator[tuple[str, FileState]]:
    """Yield the names and states of files, given by names and paths or URLs; objects in stores are all asked for at once."""
    named = list(files)
    if any(is_url(path) for _, path in named):
        from highway.stores.remote import states_at_once  # here, since plain paths need nothing of it

        yield from zip((name for name, _ in named), states_at_once([path for _, path in named]), strict=True)
    else:
        yield from ((name, FileState.of(path)) for name, path in named)


def fingerprint(states: Iterable[tuple[str, FileState]]) -> str:
    """Return a text that changes when names or states do; the tokens of URLs may change."""
    digest = hashlib.blake2b(digest_size=16)
    for name, state in states:
        check_cancelled()
        digest.update(f"{shown(name)}\0{state.size}\0{state.mtime_ns}\0".encode(errors="surrogateescape"))
    return digest.hexdigest()

"""Files by path or URL, on this machine or in a store: read by position, whole, listed and removed."""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Iterable, Iterator, Sequence

from highway.stores.unchanging import FileRange, FileState, UnchangingFile, fingerprint, read_ranges_here
from highway.stores.url import is_url, parse


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
        return read_ranges_here(ranges)
    from highway.stores.remote import read_stored

    fetched = dict(zip(stored, read_stored([ranges[place] for place in stored], cached), strict=True))
    return [fetched[place] if place in fetched else file.read(offset, size) for place, (file, offset, size) in enumerate(ranges)]


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
    return open_file(path).read_all()


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


def state_of(path: str) -> FileState:
    """Return the state of a file, by its path or URL."""
    return open_file(path).state if is_url(path) else FileState.of(path)


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

"""Read, list and remove files by path or URL. A URL names an object in an object store, such as S3."""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Iterable, Iterator, Sequence

from highway.stores.unchanging import FileRange, FileState, UnchangingFile, fingerprint, read_ranges_here
from highway.stores.url import is_url, parse


def open_file(path: str, state: FileState | None = None) -> UnchangingFile:
    """Open a file for reading, by its path or URL.

    Args:
        path: The path or URL.
        state: The required state of the file: its size and modification time. ``None``: the current state.

    Raises:
        FileNotFoundError: the file does not exist.
        PermissionError: this process is not allowed to read the file.
        StoreError: the object store does not answer.
        DatasetError: the state of the file differs from ``state``.
        ConfigError: the URL is invalid, or needs a package that is not installed.

    >>> with open("a.txt", "w") as file:
    ...     size = file.write("some text")
    >>> open_file("a.txt").read(5, 4)
    b'text'
    """
    if is_url(path):
        from highway.stores.remote import StoredObject  # imported here, because local paths do not need this module

        return StoredObject.at(path, state)
    return UnchangingFile(path, state)


def read_ranges(ranges: Sequence[FileRange]) -> list[bytes]:
    """Return parts of files. Parts of local files are read one after another. Parts of objects are read concurrently.

    Local files are checked for changes after they were read.

    Args:
        ranges: The parts to read.

    Raises:
        FileNotFoundError, PermissionError, StoreError: a file cannot be read.
        DatasetError: a file has changed, or is too short.

    >>> from highway.stores.unchanging import FileRange
    >>> with open("a.txt", "w") as file:
    ...     size = file.write("some text")
    >>> found = open_file("a.txt")
    >>> read_ranges([FileRange(found, 0, 4), FileRange(found, 5, 4)])
    [b'some', b'text']
    """
    stored = [place for place, wanted in enumerate(ranges) if not wanted.file.is_here]
    if not stored:
        return read_ranges_here(ranges)
    from highway.stores.remote import read_stored

    fetched = dict(zip(stored, read_stored([ranges[place] for place in stored]), strict=True))
    return [fetched[place] if place in fetched else file.read(offset, size) for place, (file, offset, size) in enumerate(ranges)]


def local(path: str) -> str:
    """Return a local path. A path is returned unchanged. For a URL, a local copy is made; see :func:`highway.stores.copies.local_copy`.

    Args:
        path: A path or URL.

    >>> local("data/a.txt")
    'data/a.txt'
    """
    if not is_url(path):
        return path
    from highway.stores.copies import local_copy

    return local_copy(path)


def read_whole(path: str) -> bytes:
    """Return the content of a file or object.

    Args:
        path: A path or URL.

    >>> with open("a.txt", "w") as file:
    ...     size = file.write("some text")
    >>> read_whole("a.txt")
    b'some text'
    """
    if not is_url(path):
        with open(path, "rb", buffering=0) as file:
            return file.read()
    return open_file(path).read_all()


def open_text(path: str) -> io.TextIOBase:
    """Open a UTF-8 text file for reading, by its path or URL.

    Args:
        path: A path or URL.

    >>> with open("a.txt", "w") as file:
    ...     size = file.write("some text")
    >>> with open_text("a.txt") as text:
    ...     print(text.read())
    some text
    """
    if is_url(path):
        return io.TextIOWrapper(io.BytesIO(read_whole(path)), encoding="utf-8")
    return open(path, encoding="utf-8")


def exists(path: str) -> bool:
    """Return whether a file, folder or object exists. For the URL of a folder, return ``False``.

    Args:
        path: A path or URL.

    Raises:
        PermissionError, StoreError: the object store denies access or does not answer.

    >>> exists("nowhere.txt")
    False
    """
    if not is_url(path):
        return os.path.exists(path)
    try:
        open_file(path)
    except FileNotFoundError:
        return False
    return bool(parse(path).key)  # a bucket is not an object, although some stores report a state for a bucket


def read_head(path: str, size: int) -> bytes:
    """Return the first ``size`` bytes of a file or object, or all bytes if it is smaller.

    The result is empty if there is no file, if the path is a folder, or if the object store denies access.

    Args:
        path: A path or URL.
        size: Number of bytes.

    >>> with open("a.txt", "w") as file:
    ...     size = file.write("some text")
    >>> read_head("a.txt", 4)
    b'some'
    """
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
    """Return the names in a folder, by the folder's path or URL. Names of subfolders have a trailing slash.

    The result is empty if the folder does not exist.

    Args:
        folder: The path or URL of a folder.

    >>> import os
    >>> os.makedirs("data/val")
    >>> entries_in("data")
    {'val/'}
    """
    if is_url(folder):
        from highway.stores.listing import keys_in

        return keys_in(folder, below=False)
    if not os.path.isdir(folder):
        return set()
    with os.scandir(folder) as entries:
        return {f"{entry.name}/" if entry.is_dir() else entry.name for entry in entries}


def names_in(folder: str) -> set[str]:
    """Return the names in a folder, by the folder's path or URL. The result is empty if the folder does not exist.

    Args:
        folder: The path or URL of a folder.

    >>> import os
    >>> os.makedirs("data/val")
    >>> names_in("data")
    {'val'}
    """
    return {entry.rstrip("/") for entry in entries_in(folder)}


def present_in(folder: str) -> Callable[[str], bool]:
    """Return a function that returns whether a path exists in a folder. The argument is the path relative to the folder.

    A folder in an object store is listed once, in this call. The returned function then knows only objects, not subfolders, and does not
    notice later changes.

    Args:
        folder: The path or URL of a folder.

    >>> import os
    >>> os.makedirs("data/val")
    >>> is_present = present_in("data")
    >>> is_present("val"), is_present("train")
    (True, False)
    """
    if not is_url(folder):
        return lambda name: os.path.exists(os.path.join(folder, name))
    from highway.stores.listing import keys_in

    return keys_in(folder).__contains__


def remove(path: str) -> None:
    """Remove a file or object.

    Args:
        path: A path or URL.

    Raises:
        FileNotFoundError: ``path`` is a local path, and there is no file. For a URL without an object, no error is raised.

    >>> with open("a.txt", "w") as file:
    ...     size = file.write("some text")
    >>> remove("a.txt")
    >>> exists("a.txt")
    False
    """
    if not is_url(path):
        os.unlink(path)
        return
    from highway.stores.writing import remove_objects

    remove_objects([path])


def state_of(path: str) -> FileState:
    """Return the state of a file or object: its size, and its modification time or version."""
    return open_file(path).state if is_url(path) else FileState.of(path)


def fingerprint_of(files: Iterable[tuple[str, str]]) -> str:
    """Return a string that changes when a file is renamed, removed or written to. ``files`` are pairs (name, path or URL)."""
    return fingerprint(states_of(files))


def states_of(files: Iterable[tuple[str, str]]) -> Iterator[tuple[str, FileState]]:
    """Yield the name and state of each file. ``files`` are pairs (name, path or URL). States of objects are requested concurrently."""
    named = list(files)
    if any(is_url(path) for _, path in named):
        from highway.stores.remote import states_at_once  # imported here, because local paths do not need this module

        yield from zip((name for name, _ in named), states_at_once([path for _, path in named]), strict=True)
    else:
        yield from ((name, FileState.of(path)) for name, path in named)

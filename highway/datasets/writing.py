"""Write files atomically, on this machine or in an object store. A file is either complete, or does not exist."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from secrets import randbelow
from typing import Any, Literal, Protocol

import numpy as np

from highway.stores.file import exists, names_in
from highway.stores.url import is_url

Kind = Literal["bytes", "str", "number", "array", "json"]
"""The kinds of values in fields of samples. Each format supports some of these kinds."""

NUMBERS: Mapping[type, type[np.generic]] = {bool: np.bool_, int: np.int64, float: np.float64, complex: np.complex128}
"""The NumPy type for each Python number type."""

_KINDS: Sequence[tuple[Kind, tuple[type, ...]]] = (
    ("bytes", (bytes, bytearray, memoryview)),
    ("str", (str,)),
    ("number", (*NUMBERS, np.generic)),
    ("array", (np.ndarray,)),
    ("json", (dict, list)),
)


def kind_of(value: Any) -> Kind | None:
    """Return the kind of a value, or ``None`` for a value of any other type."""
    return next((kind for kind, types in _KINDS if isinstance(value, types)), None)


_PART = re.compile(r"\.\d+\.part$")


class SampleWriter(Protocol):
    """Writes samples one by one. The writer function of a format, such as ``shard_writer``, is a context manager that yields this object.

    At the end of the ``with`` block, the output is complete and gets its final name. After an error, there is no output.
    """

    def add(self, key: str, sample: Mapping[str, Any], /) -> None:
        """Append a sample with its key.

        Raises:
            TypeError: the format cannot store the value of a field. Most formats raise an ItemError, which is a TypeError.
        """


def is_part(path: str) -> bool:
    """Return whether a path is the temporary path of a file or folder that is not finished; see :func:`writing`."""
    return _PART.search(path) is not None


def is_taken(path: str) -> bool:
    """Return whether the path is a file, or a folder that is not empty. Unfinished files of killed writers do not count."""
    if is_url(path):
        from highway.stores.writing import is_left  # imported here, because local paths do not need this module

        return exists(path) or (bool(names := names_in(path)) and not is_left(names))
    return os.path.exists(path) and not (os.path.isdir(path) and all(map(is_part, os.listdir(path))))


@contextmanager
def writing(path: str, durable: bool = False) -> Iterator[str]:
    """Yield the path of a temporary file. At the end of the ``with`` block, rename the file to ``path``. After an error, remove the file.

    If ``path`` is a URL, such as a URL of S3, the temporary file is on this machine, and is uploaded at the end.

    Args:
        path: The path or URL of the file. Missing folders are created.
        durable: Whether to wait until the file and its name are on the disk. The file then survives a crash of the machine. For a URL, this
            parameter has no effect.

    Raises:
        ConfigError: highway cannot write to URLs of this kind.
        OSError: the folder cannot be created, or the file cannot be written. A note on the error names the file.
        FileNotFoundError: the bucket of the URL does not exist.
        PermissionError: this process has no permission to write the file.
        StoreError: the object store returns an error.
    """
    if is_url(path):
        from highway.stores.writing import uploading  # imported here, because local paths do not need this module

        with uploading(path) as part:
            yield part
        return
    with _renaming(path, durable) as part:
        os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
        yield part


@contextmanager
def writing_folder(path: str, last: str, durable: bool = False) -> Iterator[str]:
    """Yield the path of a temporary folder. At the end of the ``with`` block, rename the folder to ``path``; see :func:`writing`.

    Args:
        path: The path or URL of the folder. Missing parent folders are created.
        last: The name of the file that marks the folder as complete. In a store, this file is uploaded after all other files.
        durable: Whether to wait until the folder and its files are on the disk. Files in subfolders are not included.

    Raises:
        ConfigError, FileNotFoundError, PermissionError, StoreError: see :func:`writing`.
        FileExistsError: the path is a file, or a folder that is not empty.
        OSError: a folder cannot be created, or a file cannot be written. A note on the error names the folder ``path``.
    """
    if is_url(path):
        from highway.stores.writing import uploading_folder  # imported here, because local paths do not need this module

        with uploading_folder(path, last) as part:
            yield part
        return
    if os.path.exists(path) and (not os.path.isdir(path) or os.listdir(path)):
        raise FileExistsError(f"{path!r}: already exists; remove it, or choose another path")
    with _renaming(path, durable) as part:
        os.makedirs(part)
        yield part


@contextmanager
def _renaming(path: str, durable: bool) -> Iterator[str]:
    """Yield a temporary path. At the end of the ``with`` block, rename its file or folder to ``path``. After an error, remove it."""
    part = f"{path.rstrip(os.sep)}.{os.getpid()}{randbelow(10**6):06}.part"  # no other thread, process or machine uses this path
    try:
        yield part
        if durable:
            inside = [os.path.join(part, name) for name in os.listdir(part)] if os.path.isdir(part) else []
            for one in [*inside, part]:
                sync(one)
        os.replace(part, path)
        if durable:
            sync(os.path.dirname(path.rstrip(os.sep)) or ".")  # wait for the new name
    except BaseException as error:
        if os.path.isfile(part):
            os.unlink(part)
        shutil.rmtree(part, ignore_errors=True)
        if isinstance(error, OSError):
            error.add_note(f"while writing {path}: free space, or choose another path")
        raise


def write_whole(path: str, data: bytes | memoryview, durable: bool = False) -> None:
    """Write a small file or object; see :func:`writing`."""
    if is_url(path):
        from highway.stores.remote import write_object  # imported here, because local paths do not need this module

        write_object(path, bytes(data))
        return
    with writing(path, durable) as part, open(part, "wb") as file:
        file.write(data)


def sync(path: str) -> None:
    """Wait until a file is on the disk. For a folder, wait until its list of names is on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)

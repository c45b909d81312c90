"""Write files atomically, on this machine or in an object store: a file is complete or does not exist."""

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
"""The kinds of values that fields of samples may have. Each writer maps the kinds that its format supports to their stored form."""

NUMBERS: Mapping[type, type[np.generic]] = {bool: np.bool_, int: np.int64, float: np.float64, complex: np.complex128}
"""The NumPy types of Python's numbers."""

_KINDS: Sequence[tuple[Kind, tuple[type, ...]]] = (
    ("bytes", (bytes, bytearray, memoryview)),
    ("str", (str,)),
    ("number", (*NUMBERS, np.generic)),
    ("array", (np.ndarray,)),
    ("json", (dict, list)),
)


def kind_of(value: Any) -> Kind | None:
    """Return the kind of a value, or ``None`` if no kind fits."""
    return next((kind for kind, types in _KINDS if isinstance(value, types)), None)


_PART = re.compile(r"\.\d+\.part$")


class SampleWriter(Protocol):
    """The interface of a format's writer. It is a context manager to which you add samples one by one.

    At the end of the ``with`` block, the output is complete and gets its final name. After an error, there is no output.
    """

    def add(self, key: str, sample: Mapping[str, Any], /) -> None:
        """Append a sample under a key.

        Raises:
            TypeError: the format cannot hold a field of the sample.
        """


def is_part(path: str) -> bool:
    """Return whether a path is a temporary or unfinished file or folder of :func:`writing` or :func:`writing_folder`."""
    return _PART.search(path) is not None


def is_taken(path: str) -> bool:
    """Return whether the path is a file, or a folder that is not empty. Unfinished files of a killed writer do not count."""
    if is_url(path):
        from highway.stores.writing import is_left  # imported here, because it is not needed for plain paths

        return exists(path) or (bool(names := names_in(path)) and not is_left(names))
    return os.path.exists(path) and not (os.path.isdir(path) and all(map(is_part, os.listdir(path))))


@contextmanager
def writing(path: str, durable: bool = False) -> Iterator[str]:
    """Yield the name of a temporary file. At the end of the ``with`` block, the file is renamed to ``path``. After an error, it is removed.

    If ``path`` is a URL of an object store such as S3, the file is written to a temporary folder on this machine, and uploaded at the end.

    Args:
        path: The path or URL of the file. Missing folders are created.
        durable: Whether to wait until the file and its name are on the disk, so that they survive a crash of the machine. If ``path`` is a
            URL, ``durable`` has no effect, because the file is always uploaded completely.

    Raises:
        ConfigError: highway cannot write to this kind of URL.
        OSError: the folder cannot be created, or the file cannot be written. A note on the error names the file.
        FileNotFoundError: the bucket of the URL does not exist.
        PermissionError: this process has no permission to write the file.
        StoreError: the object store returns an error.
    """
    if is_url(path):
        from highway.stores.writing import uploading  # imported here, because it is not needed for plain paths

        with uploading(path) as part:
            yield part
        return
    part = _part(path)
    try:
        os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
        yield part
        if durable:
            sync(part)
        os.replace(part, path)
        if durable:
            sync(os.path.dirname(path) or ".")  # wait for the new name
    except BaseException as error:
        if os.path.exists(part):
            os.unlink(part)
        if isinstance(error, OSError):
            error.add_note(f"while writing {path}: free space, or choose another path")
        raise


@contextmanager
def writing_folder(path: str, last: str, durable: bool = False) -> Iterator[str]:
    """Yield the name of a temporary folder. At the end of the ``with`` block, it is renamed to ``path``, as in :func:`writing`.

    Args:
        path: The path or URL of the folder. Missing parent folders are created.
        last: The name of the file that marks the folder as complete. In a store, this file is uploaded after all other files.
        durable: Whether to wait until the folder and the files directly in it are on the disk. Files in subfolders are not waited for.

    Raises:
        ConfigError, FileNotFoundError, PermissionError, StoreError: for the reasons listed in :func:`writing`.
        FileExistsError: the path is a file, or a folder that is not empty.
        OSError: a folder cannot be created, or a file cannot be written. A note on the error names the folder ``path``.
    """
    if is_url(path):
        from highway.stores.writing import uploading_folder  # imported here, because it is not needed for plain paths

        with uploading_folder(path, last) as part:
            yield part
        return
    part = _part(path.rstrip(os.sep))
    if os.path.exists(path) and (not os.path.isdir(path) or os.listdir(path)):
        raise FileExistsError(f"{path!r}: already exists; remove it, or choose another path")
    try:
        os.makedirs(part)
        yield part
        if durable:
            for name in [*os.listdir(part), ""]:
                sync(os.path.join(part, name))
        os.replace(part, path)
        if durable:
            sync(os.path.dirname(path.rstrip(os.sep)) or ".")
    except BaseException as error:
        shutil.rmtree(part, ignore_errors=True)
        if isinstance(error, OSError):
            error.add_note(f"while writing {path}: free space, or choose another path")
        raise


def _part(path: str) -> str:
    """Return a temporary name for a file or folder. No other thread or process uses it, on this machine or on another machine."""
    return f"{path}.{os.getpid()}{randbelow(10**6):06}.part"


def write_whole(path: str, data: bytes | memoryview, durable: bool = False) -> None:
    """Write a small file or object; see :func:`writing`."""
    if is_url(path):
        from highway.stores.remote import write_object  # imported here, because it is not needed for plain paths

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

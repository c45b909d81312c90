"""Files that are whole or not there."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Protocol

from highway.errors import ConfigError
from highway.stores.url import is_url, shown

_PART = re.compile(r"\.\d+\.part$")


class SampleWriter(Protocol):
    """What the writer of a format gives, as a context manager: samples are added one by one.

    At the end of the ``with`` all is on its place, whole; an error leaves nothing there.
    """

    def add(self, key: str, sample: Mapping[str, Any], /) -> None:
        """Append a sample under a key.

        Raises:
            TypeError: the format cannot hold one of its fields.
        """


def is_part(path: str) -> bool:
    """Say whether a file or folder is one that :func:`writing` or :func:`writing_folder` fills, or has left unfinished."""
    return _PART.search(path) is not None


@contextmanager
def writing(path: str, durable: bool = False) -> Iterator[str]:
    """Give the name of a file to write in place of ``path``, which it becomes once it is whole; an error leaves nothing behind.

    Args:
        path: Where it is to be; missing folders are made.
        durable: Whether it is to be on the disk by then, which a crash of the machine does not undo.

    Raises:
        ConfigError: ``path`` is a URL.
        OSError: the folder cannot be made or the file cannot be written; with a note that names it.
    """
    part = _part(path)
    try:
        os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
        yield part
        if durable:
            sync(part)
        os.replace(part, path)
    except BaseException as error:
        if os.path.exists(part):
            os.unlink(part)
        if isinstance(error, OSError):
            error.add_note(f"while writing {path}: free space, or choose another path")
        raise


@contextmanager
def writing_folder(path: str, durable: bool = False) -> Iterator[str]:
    """Give the name of a folder to fill in place of ``path``, as :func:`writing` does for a file.

    Args:
        path: Where it is to be; missing folders above it are made.
        durable: Whether all files in it are to be on the disk by then.

    Raises:
        ConfigError: ``path`` is a URL.
        FileExistsError: there is something already.
        OSError: a folder cannot be made or a file cannot be written; with a note that names it.
    """
    part = _part(path.rstrip(os.sep))
    if os.path.exists(path) and (not os.path.isdir(path) or os.listdir(path)):
        raise FileExistsError(f"{path!r}: there is something already; remove it, or choose another path")
    try:
        os.makedirs(part)
        yield part
        if durable:
            for name in [*os.listdir(part), ""]:
                sync(os.path.join(part, name))
        os.replace(part, path)
    except BaseException as error:
        shutil.rmtree(part, ignore_errors=True)
        if isinstance(error, OSError):
            error.add_note(f"while writing {path}: free space, or choose another path")
        raise


def _part(path: str) -> str:
    """Return what a file or folder is called until it is whole. Raises ConfigError for a URL."""
    if is_url(path):
        raise ConfigError(
            f"{shown(path)}: written on this machine alone; name a path, and copy what was written, by `aws s3 cp` for example"
        )
    return f"{path}.{os.getpid()}.part"


def sync(path: str) -> None:
    """Wait until a file, or what a folder lists, is on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)

"""Write to an object store: write a local file, and upload the file when it is complete.

The local file is in the folder for temporary files, which the environment variable ``TMPDIR`` sets. A folder is uploaded file by file, and
its last file marks the folder as complete. During the upload, a marker (a small object in the folder) lists the files of the upload. If the
upload is interrupted, the next upload removes these files.
"""

from __future__ import annotations

import contextlib
import fcntl
import glob
import json
import os
import shutil
import tempfile
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from highway.errors import ConfigError
from highway.stores import loop
from highway.stores.clients import PART
from highway.stores.listing import keys_in
from highway.stores.remote import StoredObject, together
from highway.stores.requests import requests_of
from highway.stores.url import StoreURL, join, parse

MARKER = ".highway-upload.json"  # the object in an incomplete folder that lists the files of the upload
_FOLDER = "highway-upload-"  # prefix of temporary folders
_AT_ONCE = 8  # maximum number of small files to send concurrently
PATIENCE = 2.0  # maximum seconds to wait until a cancelled upload has discarded its parts, or is complete

_cleaned = (0, "")  # the process ID and the folder for temporary files of the last call of _clean()


def writable(path: str) -> StoreURL:
    """Parse the URL of an object that will be written.

    Raises:
        ConfigError: the store is read-only, or the URL has the option ``listing``.
    """
    url = parse(path)
    if url.store.is_http:
        raise ConfigError(f"'{url}': {url.scheme}:// can be read, but not written; use a bucket (s3://, gs://, az://), or a path")
    if url.options.listing:
        raise ConfigError(f"'{url}': listing= is only for reading; remove it")
    return url


@contextmanager
def uploading(path: str) -> Iterator[str]:
    """Yield the path of a local file. At the end of the ``with`` block, upload the file; see :func:`highway.datasets.writing.writing`.

    Raises:
        ConfigError: the URL is not writable (see :func:`writable`), or names a bucket instead of an object.
    """
    url = writable(path)
    if not url.key:
        raise ConfigError(f"'{url}': the URL has no name after the bucket; add the name of the object, such as {join(str(url), 'name')}")
    with _filled(url) as folder, _noted(url, folder):
        part = os.path.join(folder, "part")
        yield part
        _upload(url, part)


@contextmanager
def uploading_folder(path: str, last: str) -> Iterator[str]:
    """Yield the path of a local folder. At the end of the ``with`` block, upload the folder.

    See :func:`highway.datasets.writing.writing_folder`.
    """
    url = writable(path)
    left = _left(path, url)
    with _filled(url) as folder, _noted(url, folder):
        part = os.path.join(folder, "part")
        os.mkdir(part)
        yield part
        names = [os.path.relpath(os.path.join(root, name), part) for root, _, files in os.walk(part) for name in files]
        marker, begun = url / MARKER, sorted({*names, *left})
        loop.run(requests_of(url).put(marker, json.dumps(begun).encode()))
        _remove([url / name for name in left if name == last])  # removed first, because this file marks the folder as complete
        _remove([url / name for name in left if name != last])
        _upload_all(url, part, sorted(set(names) - {last}))
        _upload(url / last, os.path.join(part, last))
        _remove([marker])


def is_left(names: Collection[str]) -> bool:
    """Return whether the names in a folder are from an interrupted upload."""
    return MARKER in names


def remove_objects(paths: Sequence[str]) -> None:
    """Remove objects. Objects that do not exist are skipped."""
    _remove([parse(path) for path in paths])


def _remove(urls: Sequence[StoreURL]) -> None:
    loop.run(together(requests_of(url).delete(url) for url in urls))


def _upload(url: StoreURL, path: str) -> None:
    size = os.path.getsize(path)
    if size > PART:
        loop.run(requests_of(url).put_file(url, path, size), PATIENCE)
    else:
        loop.run(requests_of(url).put(url, Path(path).read_bytes()))


def _upload_all(url: StoreURL, folder: str, names: Sequence[str]) -> None:
    """Upload files in a folder. Small files are uploaded concurrently."""
    paths = {name: os.path.join(folder, name) for name in names}
    small = [name for name in names if os.path.getsize(paths[name]) <= PART]
    for begin in range(0, len(small), _AT_ONCE):
        some = small[begin : begin + _AT_ONCE]
        loop.run(together(requests_of(url).put(url / name, Path(paths[name]).read_bytes()) for name in some))
    for name in sorted({*names} - {*small}):
        _upload(url / name, paths[name])


def _left(path: str, url: StoreURL) -> list[str]:
    """Return the names of the files in a folder that are from an interrupted upload.

    Raises:
        FileExistsError: the folder contains other files.
    """
    there = keys_in(path)
    begun = {*json.loads(StoredObject.at(join(path, MARKER)).read_all()), MARKER} if MARKER in there else set()
    if there - begun:
        raise FileExistsError(f"'{url}': this folder already exists; remove it, or choose another URL")
    return sorted(there - {MARKER})


@contextmanager
def _noted(url: StoreURL, folder: str) -> Iterator[None]:
    """If a local file cannot be written, add a note to the error."""
    try:
        yield
    except OSError as error:
        if error.errno:  # errors of object stores have no errno
            error.add_note(
                f"while writing {url}, which is first written in {folder}: free space there, or choose another folder with TMPDIR"
            )
        raise


@contextmanager
def _filled(url: StoreURL) -> Iterator[str]:
    """Yield a temporary local folder, and remove it at the end. If this process is killed, a later process removes the folder."""
    _clean()
    new = tempfile.mkdtemp(prefix=f"new-{_FOLDER}")
    folder = new.replace(f"new-{_FOLDER}", _FOLDER)
    lock = os.open(new, os.O_RDONLY)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        os.rename(new, folder)  # renamed only after it was locked, so that other processes do not remove the folder
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(lock)


def _clean() -> None:
    """Remove the folders of killed processes. These folders are not locked."""
    global _cleaned
    if _cleaned == (now := (os.getpid(), tempfile.gettempdir())):
        return
    _cleaned = now
    for folder in glob.glob(os.path.join(glob.escape(now[1]), f"{_FOLDER}*")):
        with contextlib.suppress(OSError):  # another user owns the folder, or another process uses or removes it
            lock = os.open(folder, os.O_RDONLY | os.O_NOFOLLOW)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(folder)
            finally:
                os.close(lock)

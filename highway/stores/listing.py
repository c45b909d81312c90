"""List the objects in a folder of an object store. The order is the same as for a local folder. A file can store the listing.

The file is JSON, compressed by gzip. The file contains the state of each object: the size, and the ETag or modification time. If an object
was changed or removed after it was listed, reading the object raises an error. New objects appear when the listing is updated.
"""

from __future__ import annotations

import fnmatch
import glob
import gzip
import json
import os
import time
import zlib
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

import numpy as np

from highway.errors import ConfigError, DatasetError
from highway.stores import loop
from highway.stores.clients import Entry, Unsupported
from highway.stores.remote import StoredObject, read_stored, together, write_object
from highway.stores.requests import Requests, requests_of
from highway.stores.unchanging import FileRange, FileState, fingerprint
from highway.stores.url import StoreURL, is_url, join, parse

_VERSION = 1


class Listing:
    """The objects in a folder. Objects with a name that begins with a dot, or in a subfolder with such a name, are not included.

    Args:
        url: The URL of the folder.
        keys: The keys of the objects, relative to the folder. The separator is ``/``. In each folder, the names are sorted.
        states: The states of the objects, int64 ``(N, 2)``.
        made: The time when the folder was listed, in seconds since 1970.
    """

    def __init__(self, url: StoreURL, keys: list[str], states: np.ndarray, made: float) -> None:
        self.url, self.keys, self.made = url, keys, made
        self._states = states

    def __len__(self) -> int:
        return len(self.keys)

    def object(self, number: int) -> StoredObject:
        """Return an object by index, without a request to the store."""
        size, version = self._states[number].tolist()
        return StoredObject(self.url / self.keys[number], FileState(size, version))

    def read(self, numbers: Sequence[int]) -> list[bytes]:
        """Read several objects by index, concurrently, and return their contents.

        Raises:
            FileNotFoundError: an object no longer exists.
            DatasetError: an object has changed since the listing.
            PermissionError: the store does not allow this process to read an object.
            StoreError: the store does not answer.
        """
        objects = [self.object(number) for number in numbers]
        try:
            return read_stored([FileRange(one, 0, one.state.size) for one in objects])
        except FileNotFoundError as error:
            made = datetime.fromtimestamp(self.made).isoformat(" ", "seconds")
            raise FileNotFoundError(
                f"{error}; the object existed when the folder was listed at {made}; to list the folder again, set ?listing_hours=0"
            ) from None

    def select(self, numbers: Sequence[int]) -> Listing:
        """Return a listing that contains only the objects with these indexes."""
        return Listing(self.url, [self.keys[number] for number in numbers], self._states[numbers], self.made)

    def fingerprint(self) -> str:
        """Return a string that changes when objects are added, removed, renamed or written to."""
        return fingerprint(zip(self.keys, (FileState(*state) for state in self._states.tolist()), strict=True))

    def encoded(self, below: bool) -> bytes:
        """Return the content of a file that stores this listing."""
        sizes, versions = self._states.T.tolist()
        about = {"version": _VERSION, "of": str(self.url), "below": below, "made": self.made}
        return gzip.compress(json.dumps(about | {"keys": self.keys, "sizes": sizes, "versions": versions}).encode(), 6)


def listing_of(path: str, below: bool = True) -> Listing:
    """Return the listing of a folder in a store.

    Args:
        path: The URL of the folder. Its option ``listing`` sets the file that stores the listing. Its option ``listing_hours`` determines
            when the listing is updated.
        below: Whether to include objects in subfolders.

    Raises:
        FileNotFoundError: the folder does not exist, or contains no objects.
        PermissionError: this process is not allowed to list the folder, or to write the file of the listing.
        StoreError: the store does not answer, or does not support listings.
        DatasetError: the file of the listing is damaged.
    """
    url = parse(path)
    place = _place(url)
    kept = _kept(url, place, below) if place else None
    if kept is not None and time.time() - kept.made < url.options.listing_hours * 3600:
        return kept
    try:
        listing = _made(url, loop.run(_asked(requests_of(url), url, below)))
    except Unsupported as error:
        if kept is not None:
            return kept
        raise Unsupported(f"{error}; pass the URLs of the files, or a listing from another place with ?listing=NAME") from None
    if not listing.keys:
        raise FileNotFoundError(f"{url}: the folder does not exist in {url.bucket}, or is empty; correct the URL")
    if place:
        _keep(place, listing.encoded(below))
    return listing


def objects_at(path: str, names: str, folder: bool = False) -> list[StoredObject]:
    """Return the objects that a URL refers to. The URL can name an object, a folder or a pattern.

    Args:
        path: The URL. A pattern has ``*`` or ``[...]`` after the last slash, as in a shell.
        names: A pattern such as ``*.ten``. If the URL is a folder, the objects whose names match this pattern are returned.
        folder: Whether a URL without a pattern is always a folder. ``False``: if the name in the URL matches ``names``, the URL is an
            object.

    Raises:
        FileNotFoundError: the object or folder does not exist.
        ConfigError: a pattern is not after the last slash.
        PermissionError, StoreError, DatasetError: see :func:`listing_of`.
    """
    url, (name, mark, query) = parse(path), path.partition("?")
    if not glob.has_magic(name):
        if not folder and fnmatch.fnmatchcase(url.key.rpartition("/")[2], names):
            return [StoredObject.at(path)]
        listing = listing_of(path, below=False)
    else:
        above, _, names = name.rpartition("/")
        if glob.has_magic(above):
            raise ConfigError(f"{url}: a pattern is only allowed after the last slash")
        listing = listing_of(f"{above}{mark}{query}", below=False)
    return [listing.object(number) for number, key in enumerate(listing.keys) if fnmatch.fnmatchcase(key, names)]


def keys_in(path: str, below: bool = True) -> set[str]:
    """Return the keys in a folder, relative to the folder, including hidden objects. A stored listing is not used.

    The result is empty if the folder does not exist.

    Args:
        path: The URL of the folder.
        below: Whether to include objects in subfolders. ``False``: each subfolder is included as a key with a trailing slash.
    """
    url = parse(path)

    async def ask() -> list[str]:
        requests = requests_of(url)
        if below:
            return [key for key, _ in await requests.below(url)]
        page = await requests.folder(url)
        return [*(key for key, _ in page.objects), *(f"{key}/" for key in page.folders)]

    try:
        found = loop.run(ask())
    except FileNotFoundError:  # some stores raise this error for an empty folder
        return set()
    start = len(url.key) + 1 if url.key else 0
    return {key[start:] for key in found if len(key) > start}


async def _asked(requests: Requests, url: StoreURL, below: bool) -> list[Entry]:
    """Return the objects in a folder. Subfolders are listed concurrently."""
    page = await requests.folder(url)
    entries = list(page.objects)
    if below:
        folders = [key for key in page.folders if not key.rpartition("/")[2].startswith(".")]
        for found in await together(requests.below(url.at(key), announced=True) for key in folders):
            entries += found
    return entries


def _made(url: StoreURL, entries: Sequence[Entry]) -> Listing:
    start = len(url.key) + 1 if url.key else 0
    named = sorted((key[start:].split("/"), state) for key, state in entries if len(key) > start)
    seen = [(parts, state) for parts, state in named if not any(part.startswith(".") or not part for part in parts)]
    states = np.array([state for _, state in seen], np.int64).reshape(-1, 2)
    return Listing(url, ["/".join(parts) for parts, _ in seen], states, time.time())


def _place(url: StoreURL) -> str:
    """Return the path or URL of the file that stores the listing of a folder; empty if no file stores it."""
    named = url.options.listing
    return named if not named or "/" in named or is_url(named) else join(url.full, named)


def _kept(url: StoreURL, place: str, below: bool) -> Listing | None:
    """Return the stored listing of a folder. ``None`` if there is no file, or if the file has another value of ``below``.

    ``None`` also if the file is for another folder. This is not checked for a file in the folder itself, so that folders can be copied.
    """
    try:
        found = json.loads(gzip.decompress(StoredObject.at(place).read_all() if is_url(place) else Path(place).read_bytes()))
        states = np.array([found["sizes"], found["versions"]], np.int64).T.reshape(-1, 2)
        if found["version"] != _VERSION or not len(states) == len(found["keys"]) == len(set(found["keys"])):
            raise ValueError(
                f"version {found['version']}, {len(set(found['keys']))} different keys of {len(found['keys'])}, {len(states)} states"
            )
        beside = place.rpartition("/")[2] == url.options.listing
        if found["below"] != below or (found["of"] != str(url) and not beside):
            return None
        return Listing(url, found["keys"], states, found["made"])
    except FileNotFoundError:
        return None
    except (gzip.BadGzipFile, zlib.error, EOFError, ValueError, KeyError, TypeError, OverflowError, RecursionError) as error:
        where = str(parse(place)) if is_url(place) else place
        raise DatasetError(
            f"{where}: the listing is damaged or truncated ({error}); remove it, or choose another place with ?listing="
        ) from error


def _keep(place: str, data: bytes) -> None:
    if is_url(place):
        write_object(place, data)
        return
    os.makedirs(os.path.dirname(place) or ".", exist_ok=True)
    part = f"{place}.{os.getpid()}.part"
    try:
        with open(part, "wb") as file:
            file.write(data)
        os.replace(part, place)
    except OSError as error:
        error.add_note(f"highway: while writing the listing to {place}; choose another place with ?listing=")
        raise

"""The client for stores that obstore does not support, such as ``hf://``, ``ftp://`` and ``memory://``. The client uses fsspec.

Each request runs in its own thread, because the functions of fsspec block. Requests to ``memory://`` need no thread.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Callable, Mapping
from datetime import datetime
from functools import cached_property
from typing import Any, TypeVar

from highway.errors import ConfigError
from highway.redacted import without_secrets
from highway.stores.clients import Entry, Page, StoreFailure
from highway.stores.loop import in_thread
from highway.stores.unchanging import FileState
from highway.stores.url import StoreOptions, StoreURL

T = TypeVar("T")

_VERSIONS = (
    "ETag",
    "etag",
    "e_tag",
    "blob_id",
    "sha256",
    "md5",
    "checksum",
    "LastModified",
    "last_modified",
    "mtime",
    "modified",
    "updated",
    "created",
)
_LOOK_AGAIN = 60.0  # seconds after which the state of an object is requested again; fsspec does not return a state with the bytes


class FsspecClient:
    """A client for one bucket. In a store without buckets, the bucket is the first part of the URL after the scheme.

    Args:
        url: The URL of any object in the bucket.

    Raises:
        ConfigError: fsspec needs a package that is not installed.
    """

    has_empty_folders = True

    def __init__(self, url: StoreURL) -> None:
        from fsspec import get_filesystem_class

        self._root = f"{url.scheme}://{url.host}"
        try:
            get_filesystem_class(url.scheme)
        except ImportError as error:
            raise ConfigError(f"'{url}': fsspec needs another package for {url.scheme}://: {error}") from None
        self._is_here, self._shows_parts = url.store.is_here, url.store.shows_parts
        self._seen: dict[str, tuple[float, FileState]] = {}

    @cached_property
    def _files(self) -> Any:
        """The file system of fsspec. The first request creates the file system, because this can connect to the store."""
        from fsspec import url_to_fs

        return url_to_fs(self._root, skip_instance_cache=True, use_listings_cache=False)[0]

    async def head(self, key: str) -> FileState:
        about = await self._asked(lambda: self._files.info(self._path(key)))
        if about["type"] == "directory":
            raise StoreFailure("missing", "a folder")
        self._seen[key] = time.monotonic(), (state := _state(about))
        return state

    async def get(self, key: str, begin: int, end: int | None) -> tuple[bytes, FileState | None]:
        data = await self._asked(lambda: self._files.cat_file(self._path(key), *(() if end is None else (begin, end))))
        then, state = self._seen.get(key, (0.0, None))
        if state is None or self._is_here or time.monotonic() - then > _LOOK_AGAIN:
            state = await self.head(key)
        return bytes(data), state

    async def folder(self, key: str) -> Page:
        found = await self._asked(lambda: self._files.ls(self._path(key), detail=True))
        files = [one for one in found if one["type"] != "directory"]
        return Page(self._entries(files), [self._key(one["name"]) for one in found if one["type"] == "directory"])

    async def below(self, key: str) -> list[Entry]:
        found = await self._asked(lambda: self._files.find(self._path(key), detail=True))
        return self._entries(list(found.values()))

    async def put(self, key: str, data: bytes) -> None:
        await self._put(key, lambda place: self._files.pipe_file(place, data))

    async def put_file(self, key: str, path: str, part: int, options: StoreOptions) -> None:
        await self._put(key, lambda place: self._files.put_file(path, place))

    async def delete(self, key: str) -> None:
        await self._asked(lambda: self._files.rm_file(self._path(key)))

    async def _put(self, key: str, write: Callable[[str], None]) -> None:
        """Write an object atomically. If the store shows incomplete files, write to a temporary name, and then rename the file."""
        place = self._path(key)

        def put() -> None:
            if self._shows_parts:
                self._files.makedirs(place.rpartition("/")[0], exist_ok=True)
                write(part := f"{place}.{os.getpid()}.part")
                self._files.mv(part, place)
            else:
                write(place)

        await self._asked(put)

    def _path(self, key: str) -> str:
        return str(self._files._strip_protocol(f"{self._root}/{key}"))

    def _key(self, name: str) -> str:
        return name.removeprefix(self._path("").rstrip("/")).strip("/")

    def _entries(self, found: list[Mapping[str, Any]]) -> list[Entry]:
        return [Entry(self._key(about["name"]), _state(about)) for about in found]

    async def _asked(self, call: Callable[[], T]) -> T:
        try:
            return call() if self._is_here else await in_thread(call)
        except FileNotFoundError as error:
            raise StoreFailure("missing", "") from error
        except PermissionError as error:
            raise StoreFailure("refused", without_secrets(str(error))[:300]) from None
        except (NotImplementedError, IsADirectoryError) as error:
            raise StoreFailure("unsupported", without_secrets(str(error))[:300]) from None
        except Exception as error:  # the libraries that fsspec uses have their own error types
            raise StoreFailure("again", f"{type(error).__name__}: {without_secrets(str(error))[:300]}") from None


def _state(about: Mapping[str, Any]) -> FileState:
    """Return the state of an object. ``mtime_ns`` is not a time, but a hash of the object's version."""
    version = next((found for name in _VERSIONS if (found := about.get(name))), "")
    if isinstance(version, datetime):  # some libraries return times in another form in listings than for single objects
        version = version.timestamp()
    return FileState(int(about["size"] or 0), int.from_bytes(hashlib.blake2b(str(version).encode(), digest_size=8).digest()) >> 1)

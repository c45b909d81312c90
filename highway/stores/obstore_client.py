"""The client for S3, Google Cloud Storage, Azure and HTTP. The client uses obstore, which sends requests in Rust threads."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import hashlib
import importlib.machinery
import importlib.util
import os
import re
import sys
from collections.abc import Awaitable, Sequence
from datetime import timedelta
from functools import partial
from typing import Any, TypeVar
from urllib.parse import unquote

from highway.errors import ConfigError
from highway.redacted import without_secrets
from highway.stores.clients import PART, Entry, Page, StoreFailure, Why
from highway.stores.loop import in_thread
from highway.stores.unchanging import FileState
from highway.stores.url import StoreOptions, StoreURL

T = TypeVar("T")

_STATUS = re.compile(r"status code: (\d+)")
_CODE = re.compile(r"<Code>(\w+)</Code>")
_REASONS = ("NoSuchBucket", "ContainerNotFound", "InvalidAccessKeyId", "SignatureDoesNotMatch", "ExpiredToken", "RequestTimeTooSkewed")
_CAUSES = {  # for requests without an answer: part of obstore's message -> highway's message
    "dns error": "the name of the host cannot be found",
    "ConnectionRefused": "the connection was refused",
    "certificate": "the server's certificate is not trusted",
    "IncompleteBody": "the answer was cut short",
    "IncompleteMessage": "the connection was cut",
    "ConnectionReset": "the connection was cut",
}
_WITHOUT_ORDER = "--x-s3"  # suffix of the names of S3's directory buckets
_LAST = "\U0010ffff"  # sorts after all keys in a folder
_EXTENSION = "obstore._obstore"
_NO_LIMIT = timedelta(days=1)  # obstore's time limit: in effect none, because highway limits each request itself
_FIRST_WAIT, _LONGEST_WAIT = timedelta(seconds=0.1), timedelta(seconds=5)  # backoff before a part of an object is sent again
CLOSING = 2.0  # if an upload is cancelled after all data were sent: maximum seconds to wait until it is complete
_PARTS_AT_ONCE = 4  # maximum parts of an object that are sent at once, because these parts are in memory

_loaded_by, _library = 0, ""  # ID of the process that runs obstore's threads; path of obstore's extension


class ObstoreClient:
    """The client of one bucket.

    Args:
        url: The URL of any object in the bucket.

    Raises:
        ConfigError: the store's settings in the environment are invalid.
    """

    has_empty_folders = False

    def __init__(self, url: StoreURL) -> None:
        self._obstore = _obstore()
        self._url = url
        self._store = self._store_with(url, _NO_LIMIT, {"max_retries": 0})

    def _store_with(self, url: StoreURL, timeout: timedelta, retries: dict[str, Any]) -> Any:
        """Return obstore's object for the bucket. ``timeout`` limits each request, and ``retries`` is obstore's ``retry_config``."""
        options: dict[str, Any] = {"client_options": {"timeout": timeout}, "retry_config": retries}
        store = self._obstore.store
        try:
            if url.store.is_http:
                user, at, host = url.host.rpartition("@")
                if at:  # obstore ignores the user and password in the address
                    token = base64.b64encode(unquote(user).encode()).decode()
                    options["client_options"]["default_headers"] = {"Authorization": f"Basic {token}"}
                query = f"/?{url.query}" if url.query else ""
                return store.HTTPStore.from_url(f"{url.scheme}://{host}{query}", **_allowing_http(options))
            if _endpoint(url).startswith("http://"):
                options = _allowing_http(options)
            return store.from_url(f"{url.scheme}://{url.host}", **options)
        except ConfigError:
            raise
        except (self._obstore.exceptions.BaseError, ValueError, TypeError) as error:
            raise ConfigError(f"'{url}': {_first_line(error)}") from None

    async def head(self, key: str) -> FileState:
        found = await self._asked(self._obstore.head_async(self._store, key))
        return _state(found)

    async def get(self, key: str, begin: int, end: int | None) -> tuple[bytes, FileState | None]:
        wanted = {} if end is None else {"options": {"range": (begin, end)}}
        answer = await self._asked(self._obstore.get_async(self._store, key, **wanted))
        state = _state(answer.meta)
        data = await self._asked(answer.bytes_async())
        return bytes(data), state

    async def folder(self, key: str) -> Page:
        found = await self._asked(self._obstore.list_with_delimiter_async(self._store, key or None))
        page = Page(_entries(found["objects"]), list(found["common_prefixes"]))
        await self._check_end(key, [*(one.key for one in page.objects), *(f"{folder}/{_LAST}" for folder in page.folders)])
        return page

    async def below(self, key: str) -> list[Entry]:
        pages, entries = self._obstore.list(self._store, key or None, chunk_size=1000), list[Entry]()
        while (page := await self._asked(_next(pages))) is not None:
            entries += _entries(page)
        await self._check_end(key, [one.key for one in entries])
        return entries

    async def _check_end(self, folder: str, keys: Sequence[str]) -> None:
        """Raise StoreFailure if the store has objects after the last key of a listing.

        Some servers announce a further page of a listing, but do not say how to request the page. Other servers answer with an HTML page.
        Both answers look like the end of the listing. In S3's directory buckets, listings have no order, so they cannot be checked.
        """
        if not keys or not self._url.store.lists_in_order or self._url.host.endswith(_WITHOUT_ORDER):
            return
        try:
            pages = self._obstore.list(self._store, folder or None, offset=(last := max(keys)), chunk_size=1000)
            following = await self._asked(_next(pages))
        except StoreFailure as failure:
            if failure.why in ("other", "unsupported"):  # the server cannot begin a listing after a key
                return
            raise
        if beyond := [about["path"] for about in following or () if about["path"] > last]:
            raise StoreFailure("again", f"the listing is incomplete: {beyond[0]!r} exists, but is not listed")

    async def put(self, key: str, data: bytes) -> None:
        await self._asked(self._obstore.put_async(self._store, key, data, use_multipart=False))

    async def put_file(self, key: str, path: str, part: int, options: StoreOptions) -> None:
        backoff = {"init_backoff": _FIRST_WAIT, "max_backoff": _LONGEST_WAIT, "base": 2}
        retries = {"max_retries": options.attempts - 1, "backoff": backoff, "retry_timeout": _NO_LIMIT}
        timeout = timedelta(seconds=options.timeout * max(1, part / PART))
        writer = self._obstore.open_writer_async(
            self._store_with(self._url, timeout, retries), key, buffer_size=part, max_concurrency=min(_PARTS_AT_ONCE, options.requests)
        )
        try:
            with open(path, "rb") as file:
                while data := await in_thread(partial(file.read, part)):
                    await self._asked(writer.write(data))
            await self._asked(writer.flush())
        except BaseException as error:
            with contextlib.suppress(Exception):  # report the first error, not this error
                await writer.__aexit__(type(error), error, None)
            raise
        closing = asyncio.ensure_future(self._asked(writer.close()))  # if close() fails, it discards the parts
        try:
            await asyncio.shield(closing)
        except asyncio.CancelledError:
            with contextlib.suppress(Exception):  # all data were sent and cannot be discarded, so wait until the upload is complete
                await asyncio.wait_for(closing, CLOSING)
            raise

    async def delete(self, key: str) -> None:
        await self._asked(self._obstore.delete_async(self._store, key))

    async def _asked(self, answer: Awaitable[T]) -> T:
        try:
            return await answer
        except FileNotFoundError as error:
            raise StoreFailure("missing", _reason(str(error))) from None
        except Exception as error:  # also for panics in Rust
            raise StoreFailure(*self._judged(error)) from None

    def _judged(self, error: Exception) -> tuple[Why, str]:
        exceptions, text = self._obstore.exceptions, str(error)
        status = int(found[1]) if (found := _STATUS.search(text)) else 0
        if isinstance(error, exceptions.NotSupportedError):
            return "unsupported", _first_line(error)
        if "PROPFIND" in text and status != 404:
            return "unsupported", "the server cannot list folders"
        if isinstance(error, (exceptions.PermissionDeniedError, exceptions.UnauthenticatedError)) or status in (401, 403):
            return "refused", _reason(text) or f"status {status}"
        if "169.254.169.254" in text or "metadata.google" in text or "Failed to get" in text or "MissingAccessKey" in text:
            return "refused", "no credentials were found"
        if status == 404:
            return "missing", _reason(text)
        if not status and isinstance(error, exceptions.BaseError):
            return "again", next((why for sign, why in _CAUSES.items() if sign in text), _first_line(error))
        if not status:
            return "other", f"{type(error).__name__}: {_first_line(error)}"
        if status in (408, 429) or status >= 500:
            return "again", f"status {status} {_reason(text, _CODE)}".strip()
        return "other", f"status {status} {_reason(text, _CODE)}".strip()


def _endpoint(url: StoreURL) -> str:
    """Return the address of the server that the environment sets; empty if the environment sets no address."""
    name, found = url.store.address
    if found and not found.startswith(("http://", "https://")):
        raise ConfigError(f"'{url}': {name}={without_secrets(found)!r} in the environment; expected http://HOST or https://HOST")
    return found


def _allowing_http(options: dict[str, Any]) -> dict[str, Any]:
    return options | {"client_options": options["client_options"] | {"allow_http": True}}


async def _next(pages: Any) -> Any:
    try:
        return await anext(pages)
    except StopAsyncIteration:
        return None


def _state(about: Any) -> FileState:
    """Return the state of an object. ``mtime_ns`` is a hash of the ETag or version. Without these, it is the modification time."""
    if tag := about["e_tag"] or about["version"]:
        return FileState(about["size"], int.from_bytes(hashlib.blake2b(tag.encode(), digest_size=8).digest()) >> 1)
    return FileState(about["size"], int(about["last_modified"].timestamp() * 1e9))


def _entries(found: Sequence[Any]) -> list[Entry]:
    return [Entry(about["path"], _state(about)) for about in found]


def _first_line(error: Exception) -> str:
    """Return the first line of an error message, without secrets."""
    return without_secrets(str(error).strip().split("\n")[0])[:300]


def _reason(text: str, code: re.Pattern[str] | None = None) -> str:
    """Return the error code in an answer. If ``code`` is ``None``, return only codes that explain more than the HTTP status."""
    found = _CODE.search(text)
    return found[1] if found and (code is not None or found[1] in _REASONS) else ""


def _obstore() -> Any:
    """Import obstore. In a forked child process, load a second copy of obstore.

    The threads of obstore's runtime (tokio) do not exist in a forked child process, so requests would wait forever. A copy of the library
    in memory is a different library for the linker, and has its own runtime.
    """
    global _loaded_by, _library
    import obstore
    import obstore.exceptions
    import obstore.store

    if not _loaded_by or _loaded_by == os.getpid():
        _loaded_by, _library = os.getpid(), _library or sys.modules[_EXTENSION].__file__ or ""
        return obstore
    for name in [name for name in sys.modules if name.partition(".")[0] == "obstore"]:
        del sys.modules[name]
    copy = os.memfd_create(_EXTENSION)
    with open(_library, "rb") as original, open(copy, "wb") as file:
        file.write(original.read())
        sys.meta_path.insert(0, finder := _Finder(f"/proc/{os.getpid()}/fd/{copy}"))
        try:
            import obstore
            import obstore.exceptions
            import obstore.store
        finally:
            sys.meta_path.remove(finder)
    _loaded_by = os.getpid()
    return obstore


class _Finder:
    """Imports obstore's extension from a file that can have any name."""

    def __init__(self, path: str) -> None:
        self._path = path

    def find_spec(self, name: str, path: object = None, target: object = None) -> importlib.machinery.ModuleSpec | None:
        if name != _EXTENSION:
            return None
        loader = importlib.machinery.ExtensionFileLoader(name, self._path)
        return importlib.util.spec_from_file_location(name, self._path, loader=loader)

"""Clients: what speaks to a bucket, one for each, kept for as long as the process runs, and made anew in a forked child."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Literal, NamedTuple, Protocol

from highway.distribution import pip_install
from highway.errors import ConfigError
from highway.parameters.location import did_you_mean
from highway.stores.file import FileState
from highway.stores.loop import keep_from_parent
from highway.stores.url import StoreOptions, StoreURL

PART = 8 << 20  # bytes of a request at most

Why = Literal["missing", "refused", "unsupported", "again", "other"]


class Entry(NamedTuple):
    """An object in a listing: its key, and its state."""

    key: str
    state: FileState


class Page(NamedTuple):
    """What lies in a folder: objects, and the keys of folders, without a slash at the end."""

    objects: list[Entry]
    folders: list[str]


class StoreFailure(Exception):
    """A request that has failed.

    Args:
        why: ``"again"`` if the same request may succeed later.
        text: What the library says, without credentials; it is shown to the user.
    """

    def __init__(self, why: Why, text: str) -> None:
        super().__init__(text)
        self.why: Why = why


class Client(Protocol):
    """Speaks to one bucket. All of it runs on the thread of :mod:`highway.stores.loop`, and raises :class:`StoreFailure`."""

    has_empty_folders: bool  # else a folder is only the beginning of keys

    async def head(self, key: str) -> FileState:
        """Return the state of an object."""

    async def get(self, key: str, begin: int, end: int | None) -> tuple[bytes, FileState | None]:
        """Return an object from ``begin`` to ``end``, all of it if that is ``None``; and its state, if the answer says it."""

    async def folder(self, key: str) -> Page:
        """Return what lies in a folder itself."""

    async def below(self, key: str) -> list[Entry]:
        """Return what lies in a folder, and in the folders below."""

    async def put(self, key: str, data: bytes) -> None:
        """Write an object, whole or not at all."""

    async def put_file(self, key: str, path: str, part: int, options: StoreOptions) -> None:
        """Write an object from a file, in parts of ``part`` bytes if the store takes them, each of which is asked for again if it fails.

        The object is there, whole, when all is; if that fails, or is cancelled, the parts are discarded.
        """

    async def delete(self, key: str) -> None:
        """Remove an object."""


def _obstore(url: StoreURL) -> Client:
    try:
        import obstore  # noqa: F401
    except ModuleNotFoundError:
        raise ConfigError(f"'{url}': {url.scheme}:// needs the package obstore: {pip_install('stores')}") from None
    from highway.stores.obstore_client import ObstoreClient

    return ObstoreClient(url)


def _fsspec(url: StoreURL) -> Client:
    try:
        from fsspec.registry import known_implementations, registry
    except ModuleNotFoundError:
        raise ConfigError(f"'{url}': {url.scheme}:// needs the package fsspec: {pip_install('stores')}") from None
    known = {*known_implementations, *registry} - {"file", "local"}
    if url.scheme not in known:
        hint = did_you_mean(url.scheme, {*CLIENTS, *known})
        expected = hint if hint.startswith("; did") else f"; expected {', '.join(CLIENTS)}, or what fsspec knows, such as hf or ftp"
        raise ConfigError(f"'{url}': unknown scheme '{url.scheme}'{expected}")
    from highway.stores.fsspec_client import FsspecClient

    return FsspecClient(url)


CLIENTS: Mapping[str, Callable[[StoreURL], Client]] = dict.fromkeys(("s3", "s3a", "gs", "az", "abfs", "abfss", "http", "https"), _obstore)
"""Which library speaks to a store, by the scheme; all others are left to fsspec."""

_made: dict[str, Client] = {}


def client_of(url: StoreURL) -> Client:
    """Return the client of a URL's bucket.

    Raises:
        ConfigError: nobody knows the scheme, a package is not installed, or the client cannot be configured.
    """
    client = _made.get(url.root)
    return client or _made.setdefault(url.root, CLIENTS.get(url.scheme, _fsspec)(url))  # atomic


def _forked() -> None:
    if _made:
        keep_from_parent(_made.copy())
        _made.clear()


os.register_at_fork(after_in_child=_forked)

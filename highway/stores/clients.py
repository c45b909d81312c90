"""The interface of clients. A client sends requests to one bucket. This module also defines the answers and errors of clients."""

from __future__ import annotations

from typing import Literal, NamedTuple, Protocol

from highway.errors import StoreError
from highway.stores.unchanging import FileState
from highway.stores.url import StoreOptions

PART = 8 << 20  # maximum number of bytes of one request

Why = Literal["missing", "refused", "unsupported", "again", "other"]


class Entry(NamedTuple):
    """An object in a listing: its key, and its state (size and version)."""

    key: str
    state: FileState


class Page(NamedTuple):
    """The content of a folder: the objects, and the keys of the subfolders, without a trailing slash."""

    objects: list[Entry]
    folders: list[str]


class StoreFailure(Exception):
    """A failed request.

    Args:
        why: The kind of failure. ``"again"``: the same request might succeed later. ``"missing"``: there is no such object or folder.
            ``"refused"``: access is denied. ``"unsupported"``: the store does not support the request. ``"other"``: any other failure.
        text: The message of the library, without credentials, for the user.
    """

    def __init__(self, why: Why, text: str) -> None:
        super().__init__(text)
        self.why: Why = why


class Unsupported(StoreError):
    """The store does not support a request, such as a request for a part of an object."""


class Client(Protocol):
    """A client of one bucket. The methods run on the thread of :mod:`highway.stores.loop`, and raise :class:`StoreFailure`."""

    has_empty_folders: bool  # whether folders can be empty; otherwise, a folder is only a prefix of keys

    async def head(self, key: str) -> FileState:
        """Return the state of an object."""

    async def get(self, key: str, begin: int, end: int | None) -> tuple[bytes, FileState | None]:
        """Return the bytes of an object from ``begin`` to ``end`` (``None``: to the end), and the state of the object, if known."""

    async def folder(self, key: str) -> Page:
        """Return the content of a folder, without subfolders."""

    async def below(self, key: str) -> list[Entry]:
        """Return the content of a folder and its subfolders."""

    async def put(self, key: str, data: bytes) -> None:
        """Write an object atomically."""

    async def put_file(self, key: str, path: str, part: int, options: StoreOptions) -> None:
        """Upload a file as an object. If the store supports parts, send parts of ``part`` bytes. Send failed parts again.

        The object exists when the upload is complete. If the upload fails or is cancelled, the parts are discarded.
        """

    async def delete(self, key: str) -> None:
        """Remove an object."""

"""The protocol of a bucket's client, its answers, and its errors."""

from __future__ import annotations

from typing import Literal, NamedTuple, Protocol

from highway.stores.unchanging import FileState
from highway.stores.url import StoreOptions

PART = 8 << 20  # maximum bytes of a request

Why = Literal["missing", "refused", "unsupported", "again", "other"]


class Entry(NamedTuple):
    """An object in a listing: its key, and its state."""

    key: str
    state: FileState


class Page(NamedTuple):
    """The content of a folder: objects, and keys of folders without a trailing slash."""

    objects: list[Entry]
    folders: list[str]


class StoreFailure(Exception):
    """A failed request.

    Args:
        why: ``"again"`` if the same request may succeed later.
        text: The library's message, without credentials; it is shown to the user.
    """

    def __init__(self, why: Why, text: str) -> None:
        super().__init__(text)
        self.why: Why = why


class Client(Protocol):
    """Client of one bucket. Its methods run on the thread of :mod:`highway.stores.loop`, and raise :class:`StoreFailure`."""

    has_empty_folders: bool  # otherwise a folder is only a prefix of keys

    async def head(self, key: str) -> FileState:
        """Return the state of an object."""

    async def get(self, key: str, begin: int, end: int | None) -> tuple[bytes, FileState | None]:
        """Return an object from ``begin`` to ``end`` (``None``: the end of the object), and its state if the answer contains it."""

    async def folder(self, key: str) -> Page:
        """Return the content of a folder, without subfolders."""

    async def below(self, key: str) -> list[Entry]:
        """Return the content of a folder and its subfolders."""

    async def put(self, key: str, data: bytes) -> None:
        """Write an object atomically."""

    async def put_file(self, key: str, path: str, part: int, options: StoreOptions) -> None:
        """Write an object from a file. If the store supports parts, send parts of ``part`` bytes, and repeat failed parts.

        The object appears when it is complete. If the upload fails or is cancelled, its parts are discarded.
        """

    async def delete(self, key: str) -> None:
        """Remove an object."""

"""What speaks to a bucket: a client, what it answers, and how it fails."""

from __future__ import annotations

from typing import Literal, NamedTuple, Protocol

from highway.stores.unchanging import FileState
from highway.stores.url import StoreOptions

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

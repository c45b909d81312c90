"""Read an object from beginning to end. Several parts are requested in advance."""

from __future__ import annotations

import io
from collections import deque
from collections.abc import Iterator

from highway.stores.cache import cache_of
from highway.stores.clients import PART, Unsupported
from highway.stores.file import open_file, read_ranges
from highway.stores.loop import Started, run
from highway.stores.remote import StoredObject, asked_for
from highway.stores.requests import requests_of
from highway.stores.unchanging import FileRange, UnchangingFile

AHEAD = 4  # number of parts that are requested in advance


class ObjectStream(io.RawIOBase):
    """A file object that reads an object from beginning to end.

    Args:
        url: The URL of the object.

    Raises:
        FileNotFoundError: the object does not exist.
        PermissionError: this process is not allowed to read the object.
        StoreError: the store does not answer.
        DatasetError: the object changed while it was read.
    """

    def __init__(self, url: str) -> None:
        self._asked: deque[Started[bytes]] = deque()  # set first, because close() is called even if opening fails
        file = open_file(url)
        assert isinstance(file, StoredObject)
        self._file = file
        self._parts = self._read_parts()
        self._part = memoryview(b"")

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        """Return 1 to ``size`` bytes. If ``size`` is negative, return all remaining bytes. Return empty bytes only at the end."""
        if size < 0:
            return b"".join([self._part, *self._parts])
        if not self._part:
            self._part = memoryview(next(self._parts, b""))
        data, self._part = bytes(self._part[:size]), self._part[size:]
        return data

    def close(self) -> None:
        while self._asked:
            self._asked.pop().give_up()
        super().close()

    def _read_parts(self) -> Iterator[bytes]:
        file, size = self._file, self._file.state.size
        ranges = [FileRange(file, at, min(PART, size - at)) for at in range(0, size, PART)]
        if cache_of(file.url.options):
            yield from (read_ranges([one])[0] for one in ranges)
            return
        try:
            yield from read_ranges(ranges[:1])
        except Unsupported:  # the store cannot return parts of an object, so read the whole object
            data, state = run(requests_of(file.url).get(file.url, 0, None, size))
            file.compare(state)
            yield data
            return
        rest = iter(ranges[1:])
        for one in rest:
            self._asked.append(Started(asked_for(one)))
            if len(self._asked) == AHEAD:
                break
        while self._asked:
            data = self._asked.popleft().result()
            for one in rest:
                self._asked.append(Started(asked_for(one)))
                break
            yield data


class Window:
    """Reads small parts of a file, at increasing byte offsets. One request fetches many of these parts."""

    def __init__(self, file: UnchangingFile) -> None:
        self._file = file
        self._begin, self._held = 0, b""

    def pread(self, size: int, place: int) -> bytes:
        """Return ``size`` bytes from byte offset ``place`` on, or fewer bytes at the end."""
        end = min(place + size, self._file.state.size)
        if end <= place:
            return b""
        if not self._begin <= place <= end <= self._begin + len(self._held):
            self._begin, self._held = place, self._file.read(place, min(PART, self._file.state.size - place))
        return self._held[place - self._begin : end - self._begin]

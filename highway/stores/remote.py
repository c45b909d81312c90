"""Read objects in an object store by byte offset. Several objects, or parts of objects, are read concurrently."""

from __future__ import annotations

import asyncio
import hashlib
import io
import time
from collections import Counter
from collections.abc import Coroutine, Iterable, Sequence
from functools import cached_property
from typing import Any, BinaryIO, NamedTuple, TypeVar

from highway.errors import DatasetError
from highway.stores import loop
from highway.stores.cache import BlockCache, cache_of
from highway.stores.clients import PART
from highway.stores.requests import requests_of
from highway.stores.unchanging import FileRange, FileState, SeekableFile, UnchangingFile
from highway.stores.url import StoreURL, is_url, parse

T = TypeVar("T")
_Block = tuple[BlockCache | None, str]  # (cache, name of the block), or (None, index of the part) for a part that is not cached

BLOCK = 1 << 20  # number of bytes of a block in the cache
CHECK_EVERY = 60.0  # check() requests the state of the object if the last answer is older than these seconds


class StoredObject(UnchangingFile):
    """An object in an object store, which is read by byte offset. If the object has changed, reading raises DatasetError.

    Most stores return the state of the object (size, and ETag or modification time) with each answer. For other stores, the state is
    requested again after a minute.

    Args:
        url: The URL.
        state: The required state of the object.
    """

    is_here = False

    def __init__(self, url: StoreURL, state: FileState) -> None:
        self.url, self.state = url, state
        self._seen = time.monotonic()

    @classmethod
    def at(cls, path: str, state: FileState | None = None) -> StoredObject:
        """Return the object at a URL. If ``state`` is ``None``, the current state is requested."""
        url = parse(path)
        return cls(url, state or loop.run(requests_of(url).head(url)))

    @property
    def path(self) -> str:  # type: ignore[override]  # a property here, an attribute in the base class
        """The name of the object in messages."""
        return str(self.url)

    @cached_property
    def name(self) -> str:
        """The name of the object in a cache. The name changes when the object changes."""
        about = f"{self.url.bucket}\0{self.url.key}\0{self.state.size}\0{self.state.mtime_ns}"
        return hashlib.blake2b(about.encode(errors="surrogateescape"), digest_size=16).hexdigest()

    def check(self) -> None:
        """Raise DatasetError if the object has changed. If there was no answer in the last minute, request the state."""
        if time.monotonic() - self._seen > CHECK_EVERY:
            self.compare(loop.run(requests_of(self.url).head(self.url)))

    def compare(self, found: FileState | None) -> None:
        """Raise DatasetError if the state in an answer is not the required state."""
        self._seen = time.monotonic()
        if found is not None and found != self.state:
            self._seen = -CHECK_EVERY
            size = self.state.size
            how = f"from {size} to {found.size} bytes" if found.size != size else f"({size} bytes, with another ETag or time)"
            raise DatasetError(
                f"{self}: the object has changed {how} since it was first listed or read; a dataset must not change while it is read: "
                f"start the program again; if its listing is stored, renew the listing with ?listing_hours=0"
            )

    def read(self, offset: int, size: int) -> bytes:
        return _read([_Part(self, offset, size)])[0]

    def read_into(self, offset: int, memory: memoryview) -> None:
        memory[:] = self.read(offset, len(memory))

    def as_stream(self) -> BinaryIO:
        return io.BufferedReader(SeekableFile(self), BLOCK)

    def __str__(self) -> str:
        return str(self.url)


def read_stored(ranges: Sequence[FileRange], cached: bool = True) -> list[bytes]:
    """Return parts of objects; see :func:`highway.stores.file.read_ranges`."""
    return _read([_part(one) for one in ranges], cached)


def _part(wanted: FileRange) -> _Part:
    assert isinstance(wanted.file, StoredObject)
    return _Part(wanted.file, wanted.offset, wanted.size)


class _Part(NamedTuple):
    file: StoredObject
    offset: int
    size: int

    async def asked(self) -> bytes:
        """Request the part. A large part is requested in pieces."""
        if not self.size and self.file.state.size:
            return b""
        file, requests = self.file, requests_of(self.file.url)
        if self.size > PART:
            ends = range(self.offset, self.offset + self.size, PART)
            return b"".join(await together(_Part(file, at, min(PART, self.offset + self.size - at)).asked() for at in ends))
        whole = self.offset == 0 and self.size == file.state.size
        data, state = await requests.get(file.url, self.offset, None if whole else self.offset + self.size, self.size)
        file.compare(state)
        return data


def _read(parts: Sequence[_Part], cached: bool = True) -> list[bytes]:
    for file, offset, size in parts:
        if offset < 0 or size < 0 or offset + size > file.state.size:
            raise DatasetError(f"{file}: expected at least {offset + size} bytes, found {file.state.size} bytes: it is truncated")
    caches = [cache_of(part.file.url.options) if cached else None for part in parts]
    return _through(caches, parts) if any(caches) else loop.run(together(part.asked() for part in parts))


def _through(caches: Sequence[BlockCache | None], parts: Sequence[_Part]) -> list[bytes]:
    """Return parts of objects through the caches. Blocks that are not in a cache are requested, and stored in the cache."""
    counts: Counter[str] = Counter()
    pieces: list[list[bytes | tuple[_Block, slice]]] = []  # for each part: cached bytes, or a missing block and a slice of the block
    missing: dict[_Block, _Part] = {}
    for place, (cache, (file, offset, size)) in enumerate(zip(caches, parts, strict=True)):
        pieces.append([])
        if cache is None:
            missing[None, str(place)] = parts[place]
            pieces[-1].append(((None, str(place)), slice(None)))
            continue
        for number in range(offset // BLOCK, -(-(offset + size) // BLOCK)):
            begin, name = number * BLOCK, f"{file.name}-{number}"
            length = min(BLOCK, file.state.size - begin)
            inside = slice(max(offset - begin, 0), min(offset + size - begin, length))
            held = None if (cache, name) in missing else cache.read(name, inside, length)
            counts["cache_misses" if held is None else "cache_hits"] += 1
            if held is None:
                missing[cache, name] = _Part(file, begin, length)
            pieces[-1].append(((cache, name), inside) if held is None else held)
    blocks: dict[_Block, bytes] = {}
    if missing:
        blocks = dict(zip(missing, loop.run(together(part.asked() for part in missing.values())), strict=True))
        for (block_cache, name), data in blocks.items():
            counts["cache_evicted"] += block_cache.write(name, data) if block_cache is not None else 0
    loop.counted(counts)
    joined = ([piece if isinstance(piece, bytes) else blocks[piece[0]][piece[1]] for piece in part] for part in pieces)
    return [part[0] if len(part) == 1 else b"".join(part) for part in joined]


async def asked_for(wanted: FileRange) -> bytes:
    """Request a part of an object. The cache is not used."""
    return await _part(wanted).asked()


async def together(coroutines: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
    """Run coroutines concurrently, and return their results. If one coroutine fails, cancel the others."""
    tasks = [asyncio.ensure_future(one) for one in coroutines]
    try:
        return await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()


def states_at_once(paths: Sequence[str]) -> list[FileState]:
    """Return the states of files and objects. States of objects are requested concurrently."""
    urls = {path: parse(path) for path in paths if is_url(path)}

    async def ask() -> list[FileState]:
        return await together(requests_of(url).head(url) for url in urls.values())

    stored = dict(zip(urls, loop.run(ask()), strict=True))
    return [stored.get(path) or FileState.of(path) for path in paths]


def write_object(path: str, data: bytes) -> None:
    """Write an object atomically.

    Raises:
        PermissionError: this process is not allowed to write the object.
        StoreError: the store returns an error.
    """
    url = parse(path)
    loop.run(requests_of(url).put(url, data))

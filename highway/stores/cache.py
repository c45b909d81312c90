"""A cache of blocks on a local disk. A block is a part of an object in an object store. All processes of the machine share the cache.

Each block is a file that never changes. The file gets its name when it is complete. The name depends on the URL, size, and ETag (or
modification time) of the object, and on the index of the block. The file has a checksum for each page of the block. A damaged or wrong
block is therefore detected, and fetched again. Reading a block sets the modification time of the file. highway uses it as the time of the
last use, because many disks do not record access times.

Each time a process has written 1/50 of the limit, it checks the size of the cache. If the cache exceeds the limit, the process removes
the least recently used blocks, and local copies (see ``copies``) that no process uses. Only one process at a time removes blocks. A process
that has opened a block can still read the block after it was removed.

If the cache cannot be written or read, highway logs one warning, and reads objects from the store.
"""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import shutil
import threading
import time
from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import xxhash

from highway.engine.cancel import check_cancelled
from highway.errors import ConfigError
from highway.stores.url import StoreOptions

log = logging.getLogger("highway")

PAGE = 1 << 16  # number of bytes of a page, which has one checksum
_SUM = 8  # number of bytes of a checksum
_MOST = 2**64 - 1  # the largest seed of a checksum
_SHARE = 50  # a process evicts blocks after it has written the limit divided by this number
_ROOM = 0.9  # an eviction removes blocks until the cache has at most this fraction of the limit
_TOUCHED = 60.0  # seconds: a read sets the time of a block only if the time is older
_OLD_PART = 3600.0  # seconds after which unfinished files of killed processes are removed


class _Held(NamedTuple):
    used: float
    size: int
    path: str


class BlockCache:
    """A folder with blocks and copies.

    Args:
        folder: The folder. If it does not exist, it is created.
        limit: Maximum number of bytes of all blocks and copies. Until the next eviction, the cache can exceed the limit.

    Raises:
        ConfigError: the folder or a subfolder cannot be created.
    """

    def __init__(self, folder: str, limit: int) -> None:
        self.folder, self.limit = folder, limit
        self.blocks, self.copies = (os.path.join(folder, name) for name in ("blocks", "copies"))
        try:
            for part in (self.blocks, self.copies):
                os.makedirs(part, exist_ok=True)
        except OSError as error:
            raise ConfigError(f"cache_dir={folder!r}: {error.strerror}; choose a folder that is writable") from error
        self._written = limit  # so that the first write checks the size of the cache
        self._lock, self._warned = threading.Lock(), False

    def path(self, name: str) -> str:
        """Return the path of a block."""
        return os.path.join(self.blocks, name[:2], name[2:])

    def read(self, name: str, part: slice, length: int) -> bytes | None:
        """Return a part of a block, or ``None`` if the block is missing, damaged or unreadable. ``length`` is the size of the block."""
        try:
            return self._read(name, part, length)
        except FileNotFoundError:
            return None
        except OSError as error:
            self._warn("read", error)
            return None

    def _read(self, name: str, part: slice, length: int) -> bytes | None:
        descriptor = os.open(path := self.path(name), os.O_RDONLY)
        try:
            about = os.fstat(descriptor)
            pages = -(-length // PAGE)
            if about.st_size != length + pages * _SUM:
                return None
            first, last = part.start // PAGE, -(-part.stop // PAGE)
            begin = first * PAGE
            data = os.pread(descriptor, min(last * PAGE, length) - begin, begin)
            if os.pread(descriptor, (last - first) * _SUM, length + first * _SUM) != _sums(name, first, data):
                return None
            if time.time() - about.st_mtime > _TOUCHED:
                with contextlib.suppress(FileNotFoundError):  # another process might have removed the block
                    os.utime(path)
        finally:
            os.close(descriptor)
        return data[part.start - begin : part.stop - begin]

    def write(self, name: str, data: bytes) -> int:
        """Store a block. If the cache is then too large, evict blocks. Return the number of evicted blocks and copies."""
        try:
            return self._write(name, data)
        except OSError as error:
            self._warn("written", error)
            return 0

    def _warn(self, done: str, error: OSError) -> None:
        """Log a warning, but only for the first error of the cache."""
        with self._lock:
            first, self._warned = not self._warned, True
        if first:
            log.warning(
                "cache_dir=%r cannot be %s (%s), so objects are read from the store; free space, lower cache_gb, or choose another "
                "cache_dir",
                self.folder,
                done,
                error.strerror or error,
            )

    def _write(self, name: str, data: bytes) -> int:
        path = self.path(name)
        part = f"{path}.{os.getpid()}.{threading.get_ident()}.part"
        os.makedirs(os.path.dirname(path), exist_ok=True)
        try:
            with open(part, "wb") as file:
                file.write(data)
                file.write(_sums(name, 0, data))
            os.replace(part, path)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(part)
            raise
        with self._lock:
            self._written += len(data)
            if self._written < self.limit // _SHARE:
                return 0
            written, self._written = self._written, 0
        if (removed := self.evict()) is None:  # another process is evicting, so try again after the next write
            with self._lock:
                self._written += written
        return removed or 0

    def evict(self, keep: str = "") -> int | None:
        """If the cache exceeds its limit, remove the least recently used blocks and unused copies. Return how many were removed.

        Only one process or thread at a time evicts. If another process or thread is evicting, return ``None``.

        Args:
            keep: The folder of a copy that must not be removed.
        """
        with locked(os.path.join(self.folder, "evicting.lock")) as mine:
            if not mine:
                return None
            held = sorted([*self._held_blocks(), *self._held_copies(keep)])
            total, removed = sum(one.size for one in held), 0
            if total <= self.limit:
                return 0
            for one in held:
                if total <= self.limit * _ROOM:
                    break
                check_cancelled()
                if self._removed(one.path):
                    total, removed = total - one.size, removed + 1
            return removed

    def _removed(self, path: str) -> bool:
        """Remove a block, or a copy that no process uses. Return whether it was removed."""
        if os.path.dirname(path) != self.copies:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(path)
            return True
        with locked(f"{path}.lock") as mine:
            if mine:
                shutil.rmtree(path, ignore_errors=True)
        return mine

    def _held_copies(self, keep: str) -> Iterator[_Held]:
        for folder in os.scandir(self.copies):
            if folder.is_dir():
                files = (os.path.join(parent, name) for parent, _, names in os.walk(folder.path) for name in names)
                with contextlib.suppress(FileNotFoundError):
                    size = sum(map(os.path.getsize, files))
                    yield _Held(time.time() if folder.path == keep else folder.stat().st_mtime, size, folder.path)

    def _held_blocks(self) -> Iterator[_Held]:
        now = time.time()
        for folder in os.scandir(self.blocks):
            check_cancelled()
            with contextlib.suppress(FileNotFoundError):
                for entry in os.scandir(folder.path):
                    with contextlib.suppress(FileNotFoundError):
                        about = entry.stat()
                        if not entry.name.endswith(".part"):
                            yield _Held(about.st_mtime, about.st_size, entry.path)
                        elif now - about.st_mtime > _OLD_PART:
                            os.unlink(entry.path)


def _sums(name: str, first: int, data: bytes) -> bytes:
    """Return the checksums of pages of a block. ``first`` is the index of the first page in ``data``."""
    view, seed = memoryview(data), xxhash.xxh3_64_intdigest(name.encode()) + first
    pages = range(0, len(data), PAGE)
    sums = (xxhash.xxh3_64_intdigest(view[at : at + PAGE], seed + page & _MOST) for page, at in enumerate(pages))
    return np.fromiter(sums, np.uint64, len(pages)).tobytes()


@contextlib.contextmanager
def locked(path: str) -> Iterator[bool]:
    """Try to take a lock, and yield whether this succeeded. Only one process or thread of the machine can hold the lock."""
    with open(path, "ab") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
        else:
            yield True


@lru_cache
def _cache(folder: str, limit: int, process: int) -> BlockCache:
    return BlockCache(folder, limit)


def cache_of(options: StoreOptions) -> BlockCache | None:
    """Return the cache that the options of a URL set; ``None`` if the options set no cache."""
    return _cache(os.path.abspath(options.cache_dir), int(options.cache_gb * 1e9), os.getpid()) if options.cache_dir else None

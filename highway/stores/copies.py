"""Copy objects, or folders of objects, to local files. Some libraries can only read local files.

The copies are in the folder ``copies/NAME/`` of the cache. NAME depends on the URL, and on the size and the ETag (or modification time) of
each object. Objects that have changed are copied again. A process that uses a copy holds a shared lock on ``copies/NAME.lock`` until the
process ends. Other processes therefore do not remove the copy.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import shutil
import threading
import time
import weakref

from highway.engine.cancel import check_cancelled
from highway.errors import CacheFullError, ConfigError
from highway.stores.cache import BlockCache, cache_of
from highway.stores.listing import listing_of
from highway.stores.remote import StoredObject, read_stored
from highway.stores.unchanging import FileRange
from highway.stores.url import StoreURL, parse

CHUNK = 64 << 20  # number of bytes that one read fetches
_TICK = 0.05  # seconds between two checks whether another process has finished


class _Lock:
    """A lock on a file. ``let_go``, or garbage collection of this object, releases the lock."""

    def __init__(self, path: str) -> None:
        self.descriptor = os.open(path, os.O_WRONLY | os.O_CREAT, 0o666)
        self.let_go = weakref.finalize(self, os.close, self.descriptor)

    def take(self) -> None:
        """Take the exclusive lock. If other processes hold the shared lock, take the shared lock, because the copy already exists."""
        while True:
            for kind in (fcntl.LOCK_EX, fcntl.LOCK_SH):
                with contextlib.suppress(BlockingIOError):
                    fcntl.flock(self.descriptor, kind | fcntl.LOCK_NB)
                    return
            check_cancelled()
            time.sleep(_TICK)  # a blocking call of flock() could not be cancelled

    def share(self) -> None:
        """Change the lock to a shared lock."""
        fcntl.flock(self.descriptor, fcntl.LOCK_SH)


_held: dict[str, tuple[str, _Lock]] = {}  # for each folder: the path of the copy, and the lock
_lock = threading.Lock()


def _forked() -> None:
    global _lock
    _lock = threading.Lock()  # in the parent process, another thread might have held the lock during the fork


os.register_at_fork(after_in_child=_forked)


def local_copy(path: str) -> str:
    """Return the path of a local copy of an object or folder.

    If there is no copy, it is created atomically. The copy exists at least until this process ends.

    Args:
        path: The URL of the object or folder. The cache is set by options of the URL, or by environment variables.

    Raises:
        ConfigError: no cache is set.
        CacheFullError: the cache is too small for the copy.
        FileNotFoundError: the object or folder does not exist.
        PermissionError, StoreError: the object or folder cannot be read.
        OSError: the copy cannot be written.
        DatasetError: the object or folder changed while it was copied.
    """
    url = parse(path)
    if (cache := cache_of(url.options)) is None:
        raise ConfigError(
            f"'{url}': this format can only be read from a copy on this machine; choose a folder for the copy: set ?cache_dir=FOLDER, "
            f"or HIGHWAY_CACHE_DIR in the environment"
        )
    files = _objects(path)
    identity = hashlib.blake2b(digest_size=16)
    for name, file in files.items():
        identity.update(f"{url.bucket}\0{url.key}\0{name}\0{tuple(file.state)}\0".encode(errors="surrogateescape"))
    folder = os.path.join(cache.copies, identity.hexdigest())
    with _lock:
        if (held := _held.get(folder)) is None or not os.path.exists(held[0]):
            held = _held[folder] = _copy(cache, url, folder, files)
        return held[0]


def _objects(path: str) -> dict[str, StoredObject]:
    """Return the objects to copy, by their path in the folder. For the URL of a single object, the path is empty."""
    try:
        return {"": StoredObject.at(path)}
    except FileNotFoundError as missing:
        try:
            listing = listing_of(path)
        except FileNotFoundError:
            raise missing from None
    return {key: listing.object(number) for number, key in enumerate(listing.keys)}


def _copy(cache: BlockCache, url: StoreURL, folder: str, files: dict[str, StoredObject]) -> tuple[str, _Lock]:
    """Return the path of a copy, and its lock."""
    target = os.path.join(folder, url.key.rpartition("/")[2] or "root")
    size = sum(file.state.size for file in files.values())
    if size > cache.limit:
        raise CacheFullError(f"{url}: {size / 1e9:.3g} GB do not fit into the cache of {cache.limit / 1e9:.3g} GB; raise cache_gb")
    while True:
        lock = _Lock(f"{folder}.lock")
        try:
            lock.take()
            if not os.path.exists(target):
                _fetch(target, files)
                cache.evict(keep=folder)
            os.utime(folder)
            lock.share()
        except BaseException:
            lock.let_go()
            raise
        if os.path.exists(target):  # otherwise another process has removed the copy
            return target, lock


def _fetch(target: str, files: dict[str, StoredObject]) -> None:
    """Copy objects to files. The files get their final path when all of them are complete and on the disk."""
    part = f"{target}.part"
    shutil.rmtree(os.path.dirname(target), ignore_errors=True)  # a killed process might have left files
    try:
        for name, file in files.items():
            path = os.path.join(part, name) if name else part
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(path, "wb") as out:
                for begin in range(0, file.state.size, CHUNK):
                    check_cancelled()
                    out.write(read_stored([FileRange(file, begin, min(CHUNK, file.state.size - begin))], cached=False)[0])
                out.flush()
                os.fsync(out.fileno())
        os.rename(part, target)
    except BaseException as error:
        shutil.rmtree(os.path.dirname(target), ignore_errors=True)
        if isinstance(error, OSError) and error.errno:
            error.add_note(f"highway: while copying to {target}: free space, or choose another cache_dir")
        raise

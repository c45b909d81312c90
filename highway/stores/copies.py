"""Copy objects, or folders of objects, to local files, for libraries that need files.

The copies are in the cache, in ``copies/NAME/``. NAME depends on the state of the objects (size, and ETag or modification
time), so changed objects are copied again. A process that uses a copy holds a shared lock on ``copies/NAME.lock`` until the process ends.
So no other process removes a copy in use.
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

CHUNK = 64 << 20  # bytes of an object that one read fetches
_TICK = 0.05  # seconds between two checks whether another process has finished


class _Lock:
    """A lock on a file, held until the lock is closed or garbage-collected."""

    def __init__(self, path: str) -> None:
        self.descriptor = os.open(path, os.O_WRONLY | os.O_CREAT, 0o666)
        self.let_go = weakref.finalize(self, os.close, self.descriptor)

    def take(self) -> None:
        """Take the lock exclusively. If other processes share the lock, the copy already exists, so share the lock with these processes."""
        while True:
            for kind in (fcntl.LOCK_EX, fcntl.LOCK_SH):
                with contextlib.suppress(BlockingIOError):
                    fcntl.flock(self.descriptor, kind | fcntl.LOCK_NB)
                    return
            check_cancelled()
            time.sleep(_TICK)  # poll, because a wait in the kernel could not be cancelled

    def share(self) -> None:
        """Make the lock shared."""
        fcntl.flock(self.descriptor, fcntl.LOCK_SH)


_held: dict[str, tuple[str, _Lock]] = {}  # folder -> path of the copy, and the lock
_lock = threading.Lock()


def _forked() -> None:
    global _lock
    _lock = threading.Lock()  # at the fork, another thread of the parent might have held the parent's lock


os.register_at_fork(after_in_child=_forked)


def local_copy(path: str) -> str:
    """Return the path of a local copy of a URL's object or folder.

    If there is no copy, create the copy atomically. The copy remains at least until this process ends.

    Args:
        path: The URL. The options of the URL, or environment variables, set the cache.

    Raises:
        ConfigError: there is no cache.
        CacheFullError: the cache is too small for the copy.
        FileNotFoundError: the object or folder does not exist.
        PermissionError, StoreError: the object or folder cannot be read.
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
    """Return ``{"": object}`` for the URL of an object, or name -> object for the URL of a folder."""
    try:
        return {"": StoredObject.at(path)}
    except FileNotFoundError as missing:
        try:
            listing = listing_of(path)
        except FileNotFoundError:
            raise missing from None
    return {key: listing.object(number) for number, key in enumerate(listing.keys)}


def _copy(cache: BlockCache, url: StoreURL, folder: str, files: dict[str, StoredObject]) -> tuple[str, _Lock]:
    """Return the path of a copy, and the lock that protects it."""
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
        if os.path.exists(target):  # the copy exists, and no process has removed it between the two locks
            return target, lock


def _fetch(target: str, files: dict[str, StoredObject]) -> None:
    """Copy objects to files. The files appear together, when all files are complete and on disk."""
    part = f"{target}.part"
    shutil.rmtree(os.path.dirname(target), ignore_errors=True)  # remove the remains of a killed process
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

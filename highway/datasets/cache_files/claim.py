"""Lock a folder to write a cache into it. Only one process of the machine can hold the lock. The folder must not contain other files."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator

from highway.errors import ConfigError
from highway.stores.cache import locked

MANIFEST = "highway-cache.json"
PART = re.compile(r"highway-cache-[0-9a-f]{16}\.(data|index)")
_OF_RANK = re.compile(r"rank-\d+-of-\d+")  # the folder with the cache of one rank, a process of distributed training
_LOCK = "highway-cache.lock"
_LOCK_TEXT = b"This folder is a cache of highway. If you remove the folder, highway creates it again from the original data.\n"


@contextlib.contextmanager
def claimed(path: str) -> Iterator[bool]:
    """Lock a folder to write a cache into it. If the folder does not exist, it is created.

    Yields:
        Whether this process holds the lock. ``False``: another process of this machine is writing to the folder.

    Raises:
        ConfigError: the folder contains files that do not belong to a cache; see :func:`expect_caches_only`.
    """
    os.makedirs(path, exist_ok=True)
    expect_caches_only(path)
    lock_path = os.path.join(path, _LOCK)
    with locked(lock_path) as ours:
        if ours and not os.path.getsize(lock_path):
            # If the disk is full, continue without this text, which is only for people.
            with contextlib.suppress(OSError), open(lock_path, "ab") as lock:
                lock.write(_LOCK_TEXT)
        yield ours


def expect_caches_only(path: str) -> None:
    """Check that a folder contains only the files of a cache, and folders such as ``rank-0-of-4``, which contain the caches of ranks.

    Hidden files are ignored. The folder need not exist.

    Raises:
        ConfigError: the folder contains other files, or contains files of a cache without the lock file.
    """
    names = os.listdir(path) if os.path.isdir(path) else []
    found = sorted(name for name in names if not name.startswith(".") and not _OF_RANK.fullmatch(name))
    others = [name for name in found if name not in (_LOCK, MANIFEST, f"{MANIFEST}.new") and not PART.fullmatch(name)]
    if not found or (not others and _LOCK in found):
        return
    others = others or found
    shown = ", ".join(map(repr, others[:3])) + (f" and {len(others) - 3} more" if len(others) > 3 else "")
    raise ConfigError(
        f"Cache: path={path!r}: the folder contains {shown}, which do not belong to a cache; use an empty or new folder for the cache"
    )

"""Who may write a cache into a folder: one process at a time, and only where nothing lies but a cache, maybe one of highway 0.1.0."""

from __future__ import annotations

import contextlib
import json
import os
import re
from collections.abc import Iterator

from highway.errors import ConfigError
from highway.stores.cache import locked

MANIFEST = "highway-cache.json"
PART = re.compile(r"highway-cache-[0-9a-f]{16}\.(data|index)")
_OF_RANK = re.compile(r"rank-\d+-of-\d+")  # a folder in which one of several ranks has its cache
_LOCK = "highway-cache.lock"
_LOCK_TEXT = b"This folder is a cache of highway's: what it holds was made from other files, and is made again when it is removed.\n"
_OLD_MANIFEST, _OLD_LOCK = "manifest.json", "lock"  # of highway 0.1.0
_OLD_DATA = re.compile(r"data-[0-9a-f]{16}")
_OLD_KEYS = {"format", "fingerprint", "data", "size", "index", "arrays", "samples", "batch_size", "layout"}


@contextlib.contextmanager
def claimed(path: str) -> Iterator[bool]:
    """Take a folder to write a cache there; it is made if need be, and what highway 0.1.0 has left is removed.

    Yields:
        Whether it is ours; else another process writes there.

    Raises:
        ConfigError: the folder holds files that are not a cache's.
    """
    os.makedirs(path, exist_ok=True)
    old = expect_caches_only(path)
    with contextlib.ExitStack() as stack:
        ours = all(stack.enter_context(_locked(os.path.join(path, name))) for name in [_LOCK, *({_OLD_LOCK} & set(old))])
        for name in sorted(old, key=lambda name: name != _OLD_MANIFEST) if ours else ():  # the manifest first
            os.unlink(os.path.join(path, name))
        yield ours


def expect_caches_only(path: str) -> list[str]:
    """See that nothing lies in a folder but caches, and return the files of one that highway 0.1.0 has made there.

    Raises:
        ConfigError: there are other files.
    """
    names = os.listdir(path) if os.path.isdir(path) else []
    found = sorted(name for name in names if not name.startswith(".") and not _OF_RANK.fullmatch(name))
    others = [name for name in found if name not in (_LOCK, MANIFEST, f"{MANIFEST}.new") and not PART.fullmatch(name)]
    if not found or (not others and _LOCK in found):
        return []
    if _is_old(path, others):
        return others
    others = others or found
    shown = ", ".join(map(repr, others[:3])) + (f" and {len(others) - 3} more" if len(others) > 3 else "")
    raise ConfigError(
        f"Cache: path={path!r}: the folder holds {shown}, which no cache has written; "
        "give the cache a folder of its own, empty or not there yet"
    )


def _is_old(path: str, names: list[str]) -> bool:
    """Say whether these are all the files of a cache of highway 0.1.0, and nothing else."""
    try:
        with open(os.path.join(path, _OLD_MANIFEST), "rb") as file:
            manifest = json.loads(file.read())
        data = manifest["data"]
        return (
            set(manifest) == _OLD_KEYS
            and manifest["format"] == 1
            and _OLD_DATA.fullmatch(data) is not None
            and set(names) == {_OLD_MANIFEST, _OLD_LOCK, data}
            and os.stat(os.path.join(path, data)).st_size == manifest["size"]
            and os.stat(os.path.join(path, _OLD_LOCK)).st_size == 0
        )
    except (OSError, ValueError, KeyError, TypeError):
        return False


@contextlib.contextmanager
def _locked(path: str) -> Iterator[bool]:
    """Lock a file of ours, and yield whether nobody else had done so."""
    with locked(path) as ours:
        if ours and os.path.basename(path) == _LOCK and not os.path.getsize(path):
            with contextlib.suppress(OSError), open(path, "ab") as lock:  # a full disk: the text is for people, the name for us
                lock.write(_LOCK_TEXT)
        yield ours

"""Databases that are open: each once per process, for all datasets that read it, until none does any more."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Hashable
from typing import TypeVar
from weakref import WeakValueDictionary

T = TypeVar("T")

_open: WeakValueDictionary[Hashable, object] = WeakValueDictionary()
_lock = threading.Lock()


def shared(name: Hashable, opening: Callable[[], T]) -> T:
    """Return what is open under a name, or what ``opening`` returns; it closes when nobody refers to it any more."""
    with _lock:
        found: T | None = _open.get(name)  # type: ignore[assignment]  # a name is of one type
        if found is None:
            _open[name] = found = opening()
        return found


def _forked() -> None:
    global _lock
    _lock = threading.Lock()  # that of the parent may have been taken when it forked


os.register_at_fork(after_in_child=_forked)

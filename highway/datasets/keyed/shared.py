"""Share open databases among the datasets of a process, and detect writes to the files of a folder."""

from __future__ import annotations

import ctypes
import fcntl
import os
import sys
import termios
import threading
import weakref
from collections.abc import Callable, Hashable
from typing import TypeVar
from weakref import WeakValueDictionary

T = TypeVar("T")

_IN_MODIFY = 2  # a flag of sys/inotify.h

_open: WeakValueDictionary[Hashable, object] = WeakValueDictionary()
_lock = threading.Lock()


def shared(name: Hashable, opening: Callable[[], T]) -> T:
    """Return the open object with this name, or call ``opening`` to open it. An object is freed when nothing refers to it."""
    with _lock:
        found: T | None = _open.get(name)  # type: ignore[assignment]  # objects with the same name have the same type
        if found is None:
            _open[name] = found = opening()
        return found


def _forked() -> None:
    global _lock
    _lock = threading.Lock()  # in the parent process, another thread might have held the lock during the fork


os.register_at_fork(after_in_child=_forked)


class Watch:
    """Detects writes to the files of a folder. A check is one system call. Several threads can use one object."""

    def __init__(self, folder: str) -> None:
        libc = ctypes.CDLL(None)
        self._descriptor = libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC) if sys.platform == "linux" else -1
        if self._descriptor >= 0:
            weakref.finalize(self, os.close, self._descriptor)
        # If the user has too many inotify watches, one of the calls fails. Then after_writes() always calls ``check``.
        self._always = self._descriptor < 0 or libc.inotify_add_watch(self._descriptor, os.fsencode(folder), _IN_MODIFY) < 0
        self._lock = threading.Lock()

    def after_writes(self, check: Callable[[], None]) -> None:
        """Call ``check`` if a file was written to since the last successful check."""
        with self._lock:
            if not self._always and not any(fcntl.ioctl(self._descriptor, termios.FIONREAD, bytes(4))):
                return
            if not self._always:
                os.read(self._descriptor, 1 << 20)
            before, self._always = self._always, True
            check()
            self._always = before

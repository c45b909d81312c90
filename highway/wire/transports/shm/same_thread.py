"""The receivers of same-host links that a thread has opened: while it waits at a sender, it looks for their peers too."""

from __future__ import annotations

import contextlib
import threading
import weakref
from typing import Protocol

from highway.errors import LinkError


class LocalReceiver(Protocol):
    """What can look for peers, on the thread that uses it."""

    thread: int

    def look(self, timeout: float = 0.0) -> None:
        """Notice who has come or gone."""


ident = threading.get_ident
_local = threading.local()


def add(end: LocalReceiver) -> None:
    """Note that this thread has opened an end."""
    if not hasattr(_local, "ends"):
        _local.ends = weakref.WeakSet()
    _local.ends.add(end)


def discard(end: LocalReceiver) -> None:
    """Note that it has closed it."""
    if hasattr(_local, "ends"):
        _local.ends.discard(end)


def look() -> bool:
    """Have the ends of this thread notice who has come or gone; say whether there are any."""
    ends = [end for end in getattr(_local, "ends", ()) if end.thread == ident()]
    for end in ends:
        with contextlib.suppress(LinkError):  # it is told to whoever uses that end
            end.look()
    return bool(ends)

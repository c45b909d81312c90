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


class _OfThisThread(threading.local):
    def __init__(self) -> None:
        self.receivers: weakref.WeakSet[LocalReceiver] = weakref.WeakSet()


opened = _OfThisThread()
ident = threading.get_ident


def look() -> bool:
    """Have the ends of this thread notice who has come or gone; say whether there are any."""
    ends = [end for end in opened.receivers if end.thread == ident()]
    for end in ends:
        with contextlib.suppress(LinkError):  # it is told to whoever uses that end
            end.look()
    return bool(ends)

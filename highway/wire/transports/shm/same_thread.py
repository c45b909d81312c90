"""The receivers of same-host links that a thread has opened.

While a sender waits for receivers, it makes the receivers on its thread check for new connections. Otherwise, a sender and a receiver on
one thread would wait for each other forever.
"""

from __future__ import annotations

import contextlib
import threading
import weakref
from typing import Protocol

from highway.errors import LinkError


class LocalReceiver(Protocol):
    """A receiver that can check for peers on its thread."""

    thread: int

    def look(self, timeout: float = 0.0) -> None:
        """Check for peers that have connected or disconnected."""


ident = threading.get_ident
_local = threading.local()


def add(end: LocalReceiver) -> None:
    """Note that this thread has opened a receiver."""
    if not hasattr(_local, "ends"):
        _local.ends = weakref.WeakSet()
    _local.ends.add(end)


def discard(end: LocalReceiver) -> None:
    """Note that this thread has closed a receiver."""
    if hasattr(_local, "ends"):
        _local.ends.discard(end)


def look() -> bool:
    """Make the receivers of this thread check for new and lost peers. Return whether this thread has receivers."""
    ends = [end for end in getattr(_local, "ends", ()) if end.thread == ident()]
    for end in ends:
        with contextlib.suppress(LinkError):  # the receiver raises this error again when it is used
            end.look()
    return bool(ends)

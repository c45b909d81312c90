"""Keep ends of links that the program did not close, until highway can close them safely.

A finaliser can run at any moment, on the thread that drops the last reference or collects garbage. The finaliser must not touch a socket of
ZeroMQ, and must not wait. Therefore the finaliser only stores the end of the link. The thread that opened the end closes it later. If this
thread has ended, another thread closes the end.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections import deque
from typing import NamedTuple, Protocol

from highway.wire.transports.zmq.context import close_at_exit


class Closable(Protocol):
    """Any object with ``close()``."""

    def close(self) -> None:
        """Close the object. Can wait for up to ``linger_ms``."""


class OwnerThread(NamedTuple):
    """The process and the thread that opened an end."""

    pid: int
    thread: threading.Thread

    @property
    def may_close_here(self) -> bool:
        """Whether this thread may close the end: this thread is the owner, or the owner has ended."""
        return self.pid == os.getpid() and (self.thread is threading.current_thread() or not self.thread.is_alive())


_open: weakref.WeakKeyDictionary[Closable, OwnerThread] = weakref.WeakKeyDictionary()
_abandoned: deque[tuple[OwnerThread, Closable]] = deque()


def opened(end: Closable) -> OwnerThread:
    """Register an end that this thread opened, and return its owner. When the process exits, highway closes the ends that are open."""
    _open[end] = owner = OwnerThread(os.getpid(), threading.current_thread())
    return owner


def hand_over(owner: OwnerThread, end: Closable) -> None:
    """Keep an end for :func:`close_abandoned`. Finalisers can call this function: it touches no socket, takes no lock and never waits."""
    _abandoned.append((owner, end))


def close_abandoned() -> None:
    """Close the abandoned ends that were opened by this thread, or by a thread that has ended."""
    for _ in range(len(_abandoned)):
        try:
            owner, end = _abandoned.popleft()
        except IndexError:  # another thread was quicker
            return
        if owner.may_close_here:
            end.close()
        else:
            _abandoned.append((owner, end))


def _close_all() -> None:
    for reference in _open.keyrefs():  # a copy, because another thread may open an end
        end = reference()
        if end is not None and _open[end].may_close_here:
            end.close()
    close_abandoned()


close_at_exit(_close_all)

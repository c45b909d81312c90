"""Ends of links that nobody closed, kept until it is safe to close them.

A finaliser runs on whatever thread drops the last reference or collects garbage, in the middle of anything: there no socket of ZeroMQ may
be touched, and nothing waited for. So it hands the end over, and the thread that opened the end closes it, or another one when that thread
has ended.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections import deque
from typing import NamedTuple, Protocol

from highway.wire.transports.zmq.context import close_at_exit


class Closable(Protocol):
    """What can be closed."""

    def close(self) -> None:
        """Close it; may wait for ``linger_ms``."""


class OwnerThread(NamedTuple):
    """Where an end was opened."""

    pid: int
    thread: threading.Thread

    @property
    def may_close_here(self) -> bool:
        """Whether this thread may close the end: it is the owner, or follows one that has ended."""
        return self.pid == os.getpid() and (self.thread is threading.current_thread() or not self.thread.is_alive())


_open: weakref.WeakKeyDictionary[Closable, OwnerThread] = weakref.WeakKeyDictionary()
_abandoned: deque[tuple[OwnerThread, Closable]] = deque()


def opened(end: Closable) -> OwnerThread:
    """Return the owner of what is opened on this thread, to be closed when the process exits unless that was done before."""
    _open[end] = owner = OwnerThread(os.getpid(), threading.current_thread())
    return owner


def hand_over(owner: OwnerThread, end: Closable) -> None:
    """Keep an end until :func:`close_abandoned`. For finalisers: touches no socket, takes no lock, waits for nothing."""
    _abandoned.append((owner, end))


def close_abandoned() -> None:
    """Close what this thread, or one that has ended, had opened and dropped."""
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
    for end, owner in list(_open.items()):
        if owner.may_close_here:
            end.close()
    close_abandoned()


close_at_exit(_close_all)

"""The context of ZeroMQ that all sockets of a process share, and how the process leaves it.

A forked child does not touch that of its parent: it makes its own.
"""

from __future__ import annotations

import atexit
import os
import weakref
from collections import Counter
from collections.abc import Callable

import zmq
from zmq.utils import garbage

_contexts: dict[int, zmq.Context[zmq.Socket[bytes]]] = {}  # by process; that of a parent stays here, so that nobody collects it
sockets: Counter[int] = Counter()
"""Open sockets, by process: who opens or closes one counts it."""


def current() -> zmq.Context[zmq.Socket[bytes]]:
    """Return the context of this process."""
    pid = os.getpid()
    if pid not in _contexts:
        _contexts[pid] = zmq.Context(io_threads=2)  # a worker receives and sends at once
    return _contexts[pid]


def start_collector() -> None:
    """Start pyzmq's collector of sent buffers, a thread that else starts with the first of them.

    In Python 3.12 a script that has ended can start no thread any more, and its pipelines only run then.
    """
    with garbage.gc._lock:
        if not garbage.gc.is_alive():
            garbage.gc.start()


def close_at_exit(close: Callable[[], None]) -> None:
    """Have sockets closed when the process exits, before it waits for what they have still to send."""
    weakref.finalize(garbage.gc, close)  # made after the two below, so it runs before them


def _flush() -> None:
    """Let what closed sockets have still to send leave before the interpreter exits; each waits no longer than its linger."""
    context = _contexts.get(os.getpid())
    if context is not None and not sockets[os.getpid()]:  # with a socket that is open still, it would wait for ever
        context.term()


# At exit, finalizers run in the reverse order of their making: pipelines stop, connections close, then what they sent may leave, and
# only then may pyzmq's collector of sent buffers stop. Where pyzmq stops it by itself, buffers that leave later make the process crash.
atexit.unregister(garbage.gc._atexit)
weakref.finalize(garbage.gc, garbage.gc._atexit)
weakref.finalize(garbage.gc, _flush)

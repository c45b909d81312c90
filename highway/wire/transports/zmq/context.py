"""The context of ZeroMQ that all sockets of a process share, and how the process leaves it.

A forked child does not touch that of its parent: it makes its own.
"""

from __future__ import annotations

import atexit
import os
import time
import weakref
from collections import Counter
from collections.abc import Callable
from typing import Final

import zmq
from zmq.utils import garbage

from highway.errors import LinkError
from highway.process.threads import check_threads

IO_THREADS: Final = 2  # a worker receives and sends at once

_contexts: dict[int, zmq.Context[zmq.Socket[bytes]]] = {}  # by process; that of a parent stays here, so that nobody collects it
sockets: Counter[int] = Counter()
"""Open sockets, by process: who opens or closes one counts it."""


def current() -> zmq.Context[zmq.Socket[bytes]]:
    """Return the context of this process.

    Raises:
        LinkError: the process can start no threads for it.
    """
    pid = os.getpid()
    if pid not in _contexts:
        try:
            check_threads(IO_THREADS + 1)  # those that ZeroMQ starts with the first socket; where it cannot, it aborts the process
        except OSError as error:
            raise LinkError(error.errno, f"ZeroMQ cannot start: {error.strerror}") from None
        made = zmq.Context(io_threads=IO_THREADS)
        if _contexts.setdefault(pid, made) is not made:  # another thread was quicker
            made.term()
    return _contexts[pid]


def settle(timeout: float) -> None:
    """Wait until ZeroMQ's threads have done what they are doing, and what follows from it; ``timeout`` seconds at most.

    A thread that has failed to connect a socket of its own has done before that whatever it was told earlier. The end of a connection goes
    from its thread to that of the address which was bound, back, and to the socket: hence three rounds.
    """
    context, deadline = current(), time.monotonic() + timeout
    for _ in range(3):
        for number in range(IO_THREADS):
            with context.socket(zmq.PAIR) as probe, context.socket(zmq.PAIR) as events:
                probe.linger, probe.affinity = 0, 1 << number
                name = f"highway-nobody-{os.urandom(8).hex()}"
                probe.monitor(f"inproc://{name}", zmq.Event.CONNECT_RETRIED)
                events.connect(f"inproc://{name}")
                probe.connect(f"ipc://@{name}")
                events.poll(max(0, int((deadline - time.monotonic()) * 1000)))
                probe.disable_monitor()


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

"""The context of ZeroMQ that all sockets of a process share, and the end of the context.

A forked child creates its own context, and does not use the context of its parent.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import threading
import time
import weakref
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Final

import zmq
from zmq.utils import garbage

from highway.errors import LinkError
from highway.process.threads import check_threads
from highway.wire.url import Link

IO_THREADS: Final = 2  # two, because a worker receives and sends at the same time
OTHER_FILE: Final = 500  # ZAP's status for an end of another topology file (ZAP: authentication in ZeroMQ); other refused ends get 400
_USER: Final = b"highway"
_LONGEST: Final = 255  # maximum bytes of a password, and of a domain

_contexts: dict[int, zmq.Context[zmq.Socket[bytes]]] = {}  # by process ID, because a forked child must not free its parent's context
sockets: Counter[int] = Counter()
"""Process ID -> number of open sockets. The code that opens or closes a socket updates this number."""
refused_files: dict[bytes, str] = {}
"""Domain of a socket -> topology file of the last end that was refused because its topology file differs."""


def current() -> zmq.Context[zmq.Socket[bytes]]:
    """Return the context of this process.

    Raises:
        LinkError: the process cannot start its threads.
    """
    pid = os.getpid()
    if pid not in _contexts:
        try:
            check_threads(IO_THREADS + 1)  # ZeroMQ starts its threads with the first socket, and aborts the process if this fails
        except OSError as error:
            raise LinkError(error.errno, f"ZeroMQ cannot start: {error.strerror}") from None
        made = zmq.Context(io_threads=IO_THREADS)
        if _contexts.setdefault(pid, made) is not made:  # another thread was quicker
            made.term()
    return _contexts[pid]


def credentials(link: Link) -> tuple[bytes, bytes]:
    """Return the user name and password with which an end announces that it is highway (ZMTP's PLAIN mechanism). Neither is secret.

    The password contains the version of the announcement, and the words that identify the topology file, if any. The domain of the end's
    socket has the same value as the password.
    """
    return _USER, f"1 {link.options.topology}".strip().encode(errors="replace")[:_LONGEST]


def _file_of(password: bytes) -> tuple[bytes, set[bytes], str] | None:
    """Return the words about a topology file in a password: the digest of the file tree, two digests of the file, and its path."""
    _, *words = password.split(b" ", 4)
    return (words[0], {*words[1:3]}, words[3].decode(errors="replace")) if len(words) == 4 else None


class Doorkeeper(threading.Thread):
    """Accepts or refuses the peers of this process's sockets. ZeroMQ asks this thread over a socket: ZAP, https://rfc.zeromq.org/spec/27.

    If peers must announce that they are highway, the socket uses the PLAIN mechanism. ZeroMQ itself refuses peers with any other mechanism.
    The thread ends when the context ends.
    """

    def __init__(self) -> None:
        super().__init__(name="highway:doorkeeper", daemon=True)
        self._requests = current().socket(zmq.REP)
        self._requests.linger = 0
        self._requests.bind("inproc://zeromq.zap.01")

    def close(self) -> None:
        """Close the socket of a thread that could not be started."""
        self._requests.close()

    def run(self) -> None:
        with self._requests, contextlib.suppress(zmq.ContextTerminated):
            while True:
                version, number, domain, _, _, mechanism, *announced = self._requests.recv_multipart()
                code = 200 if mechanism == b"NULL" else _status(domain, announced)
                self._requests.send_multipart([version, number, b"%d" % code, b"", b"", b""])


def _status(domain: bytes, announced: Sequence[bytes]) -> int:
    """Return ZAP's status for a peer that has announced itself to a socket."""
    user, password = announced
    if user != _USER or password.partition(b" ")[0] != b"1":
        return 400
    own, other = _file_of(domain), _file_of(password)
    if own is None or other is None or own[0] != other[0] or own[1] & other[1]:
        return 200
    refused_files[domain] = other[2]
    return OTHER_FILE


_doorkeepers: dict[int, Doorkeeper] = {}  # process ID -> thread
_lock = threading.Lock()


def start_doorkeeper() -> None:
    """Start the thread that accepts or refuses peers (:class:`Doorkeeper`), unless the thread is running.

    Raises:
        LinkError: the process cannot start the thread.
    """
    with _lock:
        if os.getpid() not in _doorkeepers:
            keeper = Doorkeeper()
            try:
                keeper.start()
            except RuntimeError as error:
                keeper.close()
                raise LinkError(f"cannot start the thread that accepts peers: {error}") from None
            _doorkeepers[os.getpid()] = keeper


def settle(timeout: float) -> None:
    """Wait at most ``timeout`` seconds until ZeroMQ's threads have finished their pending commands, and the commands that these cause.

    For each thread, a probe socket connects to an address that does not exist. When the connection fails, the thread has finished all
    earlier commands. Three rounds are needed, because the end of a connection causes three commands, one after another.
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


def start_threads(link: Link) -> None:
    """Start pyzmq's collector of sent buffers and the doorkeeper early.

    Otherwise, the collector would start with the first message, and the doorkeeper with the first socket.
    The pipelines of a script can still run after the end of the script, but Python 3.12 and later cannot start threads then.
    """
    with garbage.gc._lock:
        if not garbage.gc.is_alive():
            garbage.gc.start()
    if link.bind and link.options.peers == "highway":
        start_doorkeeper()


def close_at_exit(close: Callable[[], None]) -> None:
    """Call ``close`` when the process exits, before highway waits for unsent messages."""
    weakref.finalize(garbage.gc, close)  # created later than the two finalizers below, so it runs before them


def _flush() -> None:
    """Let closed sockets send their unsent messages before the interpreter exits. Each socket waits at most for its linger time."""
    context = _contexts.get(os.getpid())
    if context is not None and not sockets[os.getpid()]:  # with an open socket, this would wait forever
        context.term()


# At exit, finalizers run in reverse order of creation: pipelines stop, connections close, unsent messages leave, and finally pyzmq's
# collector of sent buffers stops. If pyzmq stopped the collector earlier, buffers that leave later would crash the process.
atexit.unregister(garbage.gc._atexit)
weakref.finalize(garbage.gc, garbage.gc._atexit)
weakref.finalize(garbage.gc, _flush)

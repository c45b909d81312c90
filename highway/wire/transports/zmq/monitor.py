"""What ZeroMQ tells about the connections of a socket, over a socket of its own for each."""

from __future__ import annotations

import contextlib
import fcntl
import os
import socket
import struct
import termios
import time
from array import array
from collections import Counter
from collections.abc import Hashable

import zmq

from highway.wire.address import peer_user
from highway.wire.transports.protocol import Peers

LEAST_WAITS = 50  # of 10 ms each, until an attempt to connect is given up: the process may be stopped for a while
_POLLIN = int(zmq.POLLIN)  # as an enum it takes longer than the call
_OPENED = zmq.Event.ACCEPTED | zmq.Event.CONNECTED
_FAILED = zmq.Event.HANDSHAKE_FAILED_NO_DETAIL | zmq.Event.HANDSHAKE_FAILED_PROTOCOL | zmq.Event.HANDSHAKE_FAILED_AUTH
_TRIED = zmq.Event.CONNECTED | zmq.Event.CONNECT_RETRIED
_MESSAGE = struct.Struct("=Hi")  # an event and its value, zmq_socket_monitor(3); the function of pyzmq for it would import asyncio
_EVENTS = _TRIED | _OPENED | _FAILED | zmq.Event.HANDSHAKE_SUCCEEDED | zmq.Event.DISCONNECTED


class Monitor:
    """The connections of a socket. It is for the thread that has the socket."""

    def __init__(self, socket: zmq.Socket[bytes]) -> None:
        self._socket = socket
        address = f"inproc://highway-monitor-{socket.FD}"
        socket.monitor(address, _EVENTS)
        self._events: zmq.Socket[bytes] = socket.context.socket(zmq.PAIR)
        # No mark: ZeroMQ's thread would wait there until somebody reads, and who would may be waiting for what that thread has to do.
        self._events.rcvhwm = 0
        self._events.connect(address)
        self._peers = Peers()
        self._unix: set[int] = set()  # descriptors of the UNIX sockets that are open
        self._used: Counter[Hashable] = Counter()  # how many connections have had a descriptor
        self._tried = 0
        self.closed: set[str] = set()  # URLs to which this end was connected
        self.other_user: int | None = None  # to whom this end connected over a UNIX socket, if not to this user or root

    def peers(self) -> Peers:
        """Return how many connections there are and have been."""
        live, seen, opened = self._peers
        while readable(self._events):
            message, endpoint = self._events.recv_multipart()
            event, fd = _MESSAGE.unpack(message)
            self._tried += bool(event & _TRIED) and endpoint.startswith(b"ipc:")
            opened += bool(event & _OPENED)
            if event == zmq.Event.CONNECTED:
                self._check_user(fd)
            if event & _OPENED:
                self._used[fd] += 1
                if endpoint.startswith(b"ipc://"):
                    self._unix.add(fd)
                self.closed.discard(endpoint.decode())
            elif event == zmq.Event.DISCONNECTED:
                self._unix.discard(fd)
                self.closed.add(endpoint.decode())
            seen += event == zmq.Event.HANDSHAKE_SUCCEEDED
            # A connection that fails in its handshake is reported as failed, and then as disconnected too.
            live += (event == zmq.Event.HANDSHAKE_SUCCEEDED) + bool(event & _FAILED) - (event == zmq.Event.DISCONNECTED)
        self._peers = Peers(live, seen, opened)
        return self._peers

    def wait_for_attempts(self, count: int, timeout: float) -> None:
        """Wait until so many attempts to connect have succeeded or failed."""
        deadline, waits = time.monotonic() + timeout, 0
        while self._tried < count and (time.monotonic() < deadline or waits < LEAST_WAITS):
            waits += not self._events.poll(10)
            self.peers()

    def _check_user(self, fd: int) -> None:
        with contextlib.suppress(OSError), socket.socket(fileno=os.dup(fd)) as connection:  # or it was closed meanwhile
            user = peer_user(connection)
            if user is not None and user not in (os.getuid(), 0):
                self.other_user = user

    def times_used(self, descriptor: Hashable) -> int:
        """Return how many connections have had a descriptor; 1 at least, since a message may be here before it is told who sent it."""
        return max(1, self._used[descriptor])

    def unread(self) -> bool:
        """Say whether something that was written to a UNIX socket has not been read at its other end."""
        return any(map(_waits, self._unix))

    def close(self) -> None:
        """Close."""
        self._socket.disable_monitor()
        self._events.close(0)


def readable(socket: zmq.Socket[bytes]) -> bool:
    """Say whether something has come; ``poll()`` takes ten times as long."""
    return bool(int(socket.getsockopt(zmq.EVENTS)) & _POLLIN)


def _waits(fd: int) -> bool:
    """Say whether something that was written to a UNIX socket has not been read at its other end; unix(7), SIOCOUTQ."""
    waiting = array("i", [0])
    with contextlib.suppress(OSError):  # it was closed meanwhile
        fcntl.ioctl(fd, termios.TIOCOUTQ, waiting)
    return waiting[0] > 0

"""Receivers report to a sender how many messages they have taken, and confirm that they have read its end message.

A receiver connects to the server (:mod:`highway.wire.goodbye`) of each of its senders. The receiver sends ``ACK``, the sender's name, eight
random bytes that identify the receiver, and then records. A record has a state, and the number of messages that the receiver has taken from
this sender. If the connection ends while the state is ``READING``, the receiver was killed or cut off. The messages on their way to this
receiver are then lost.
"""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import struct
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from highway.wire.address import peer_process

ACK: Final = b"~HwyAck~"
READING, ENDED, CLOSED = b"r", b"e", b"c"  # states of a receiver: reads messages; has read the end; was closed before the end
MOST_CHANNELS: Final = 256  # maximum number of report connections of a sender or a receiver; each connection needs a descriptor
OFTEN: Final = 0.5  # minimum seconds between two reports, if there are many messages
MOST_UNTOLD: Final = 1024  # maximum number of messages between two reports
LAST_WORD: Final = 1.0  # seconds that a closing receiver waits until its last report is sent
CONNECTS: Final = 0.2  # seconds that a receiver waits until it is connected, at the first message of a sender
LASTS: Final = (
    5.0  # seconds; if a sender closes a connection sooner, the sender accepts no reports: it has too many connections, or is an old version
)
MOST_WAITS: Final = 8  # maximum number of senders for which a receiver waits ``CONNECTS``; few, because ports might be unreachable
_ID: Final = 8  # bytes
_RECORD: Final = struct.Struct("<cQ")
_CUT: Final = (errno.ETIMEDOUT, errno.EHOSTUNREACH, errno.ENETUNREACH)
# The system probes an idle connection, and closes it after a minute without a reply. The system of the other host replies, even if the
# process is busy or stopped. The link's own connection is not idle while data wait for the receiver, so the system does not probe it.
# ZeroMQ's heartbeats and TCP_USER_TIMEOUT are no substitute: they also close the connection of a receiver that reads nothing for a minute.
KEEPALIVE: Final = {socket.TCP_KEEPIDLE: 30, socket.TCP_KEEPINTVL: 10, socket.TCP_KEEPCNT: 3}


@dataclass
class Receiver:
    """The last report of a receiver.

    Args:
        label: Name of the receiver in messages: its process if the process runs on this machine, otherwise its host.
        state: ``READING``, ``ENDED`` or ``CLOSED``.
        taken: Number of messages that the receiver has taken.
        is_cut: Whether the network failed. ZeroMQ may then still count the receiver as connected.
    """

    label: str
    state: bytes = READING
    taken: int = 0
    is_cut: bool = False


@dataclass
class _Caller:
    """A connection from a receiver.

    ``said`` holds received bytes to process. ``receiver`` is ``None`` until the receiver has sent its name.
    """

    said: bytearray = field(default_factory=bytearray)
    name: bytes = b""
    receiver: Receiver | None = None


class Confirmations:
    """The reports of a sender's receivers. One thread receives the reports, and other threads can read the results.

    Attributes:
        connections: The open connections from receivers.
        lock: Hold this lock to read several results at the same point in time.
        heard_at: Time of the last report.
        named: Number of receivers that have reported.
    """

    def __init__(self) -> None:
        self.connections: dict[socket.socket, _Caller] = {}
        self.lock = threading.Lock()
        self.heard_at, self.named = time.monotonic(), 0
        self._connected: dict[bytes, Receiver] = {}
        self._lost: dict[bytes, Receiver] = {}
        self._gone: list[Receiver] = [Receiver("", ENDED)]  # one entry: the sum of all receivers that disconnected normally

    @property
    def connected(self) -> int:
        """Number of receivers that are connected."""
        return len(self._connected)

    @property
    def reading(self) -> list[Receiver]:
        """Connected receivers that have not read the end message."""
        return [receiver for receiver in list(self._connected.values()) if receiver.state == READING]

    @property
    def ended(self) -> int:
        """Number of connected receivers that have read the end message."""
        return sum(receiver.state == ENDED for receiver in list(self._connected.values()))

    @property
    def lost(self) -> list[Receiver]:
        """Receivers that were killed or cut off."""
        return list(self._lost.values())

    def unreachable(self, live: int) -> int:
        """Return how many of the link's ``live`` connections lead to receivers that were cut off. ZeroMQ may not have noticed this."""
        return max(0, min(sum(receiver.is_cut for receiver in self.lost), live - self.connected))

    @property
    def taken(self) -> int:
        """Number of messages that are known to have arrived."""
        return sum(receiver.taken for receiver in (*self._gone, *list(self._connected.values()), *self.lost))

    def welcome(self, sock: socket.socket) -> bool:
        """Take over the connection of a receiver that has sent the sender's name. Return ``False`` if there are too many connections."""
        if len(self.connections) >= MOST_CHANNELS:
            return False
        keep_alive(sock)
        self.connections[sock] = _Caller()
        return True

    def hear(self, sock: socket.socket) -> None:
        """Process the data that has arrived over a connection."""
        caller, is_cut = self.connections[sock], False
        try:
            said = sock.recv(4096)
        except BlockingIOError:
            return
        except OSError as error:
            said, is_cut = b"", error.errno in _CUT
        with self.lock:
            self._note(sock, caller, said)
            if not said:
                del self.connections[sock]
                sock.close()
                self._part(caller, is_cut)

    def _note(self, sock: socket.socket, caller: _Caller, said: bytes) -> None:
        caller.said += said
        if caller.receiver is None and len(caller.said) >= _ID:
            caller.name, caller.receiver = bytes(caller.said[:_ID]), Receiver(_label(sock))
            del caller.said[:_ID]
            self.named += caller.name not in self._connected and caller.name not in self._lost
            self._connected[caller.name] = caller.receiver
            self._lost.pop(caller.name, None)
        if caller.receiver is not None:
            while len(caller.said) >= _RECORD.size:
                caller.receiver.state, caller.receiver.taken = _RECORD.unpack_from(caller.said)
                del caller.said[: _RECORD.size]
                self.heard_at = time.monotonic()

    def _part(self, caller: _Caller, is_cut: bool) -> None:
        receiver = caller.receiver
        if receiver is None or self._connected.get(caller.name) is not receiver:  # the receiver has connected again
            return
        if receiver.state == READING:
            receiver.is_cut = is_cut
            self._lost[caller.name] = receiver
        else:
            self._gone[0].taken += receiver.taken
        del self._connected[caller.name]


class ReportChannel:
    """The connection over which a receiver reports to a sender.

    Use a channel only on the receiving thread. Only the first report and :meth:`close` can wait.

    Args:
        hello: The first bytes to send: ``ACK``, the sender's name, and random bytes that identify the receiver.
        call: Function that returns a connection to the sender, even if the connection is not established yet.
        patience: Seconds to wait until the first report is sent. The sender then knows this receiver, even if the receiver reads nothing
            for a long time.

    Attributes:
        taken: Number of messages that the receiver has taken from this sender.
        due: Value of ``taken`` at which the next report is due.
    """

    def __init__(self, hello: bytes, call: Callable[[], socket.socket], patience: float = 0.0) -> None:
        self._hello, self._call, self._patience = hello, call, patience
        self._pid = os.getpid()
        self._socket: socket.socket | None = None
        self._called_at = 0.0
        self._is_known = self._is_unreachable = False
        self._state, self._owed = READING, b""
        self._step, self._reported, self._reported_at = 1, 0, float("-inf")
        self.taken, self.due = 0, 1

    def report(self) -> None:
        """Report how many messages were taken, and set ``due``. At a high rate, more messages come between two reports."""
        now = time.monotonic()
        is_soon = now < self._reported_at + OFTEN
        self._step = min(self._step * 2, MOST_UNTOLD) if is_soon else max(1, self._step // 2)
        self._reported_at, self.due = now, self.taken + self._step
        self._say(READING)

    def end(self) -> None:
        """Confirm that the end message and all messages before it were read."""
        self._say(ENDED)

    def catch_up(self) -> None:
        """Report the messages that were not reported yet. Call this method while no message arrives."""
        if self._owed or self._reported < self.taken:
            self._say(self._state)

    def is_over(self) -> bool:
        """Return whether the connection is over: the sender is unreachable, or has closed the connection after the end was confirmed."""
        if self._state != ENDED or self._owed or self._socket is None:
            return self._is_unreachable
        try:
            return not self._socket.recv(1)
        except BlockingIOError:
            return False
        except OSError:
            return True

    def close(self, patience: float = LAST_WORD) -> None:
        """Close the connection.

        If the receiver has not read the end, first report that the receiver closes. Wait at most ``patience`` seconds.
        """
        if self._socket is not None and os.getpid() == self._pid:
            if self._state == READING:
                self._say(CLOSED)
            if self._owed and self._socket is not None:
                self._patience = patience
                self._send()
            self._drop()
        self._is_unreachable = True

    def _say(self, state: bytes) -> None:
        self._state, self._reported, self._owed = state, self.taken, _RECORD.pack(state, self.taken)
        self._send()

    def _send(self) -> None:
        for _ in range(2):  # two attempts, because the network might have been cut, and the sender might have closed the first connection
            if self._is_unreachable:
                break
            try:
                if self._socket is None:
                    self._socket, self._is_known, self._called_at = self._call(), False, time.monotonic()
                    keep_alive(self._socket)
                self._socket.settimeout(self._patience)
                self._socket.send(self._owed if self._is_known else self._hello + self._owed)
                self._is_known = True
                break
            except (BlockingIOError, TimeoutError):  # the connection is still being established, or the sender's thread does not run
                return
            except OSError:
                self._is_unreachable = not self._is_known or time.monotonic() < self._called_at + LASTS
                self._drop()
            finally:
                self._patience = 0.0
                if self._socket is not None:
                    self._socket.setblocking(False)
        self._owed = b""

    def _drop(self) -> None:
        if self._socket is not None:
            self._socket.close()
        self._socket = None


def keep_alive(sock: socket.socket) -> None:
    """Make the system notice within about a minute that the other host is gone."""
    if sock.family != socket.AF_UNIX:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for option, value in KEEPALIVE.items():
            sock.setsockopt(socket.IPPROTO_TCP, option, value)


def _label(sock: socket.socket) -> str:
    with contextlib.suppress(OSError):
        return f"process {peer_process(sock)[0]}" if sock.family == socket.AF_UNIX else f"a process on {sock.getpeername()[0]}"
    return "a process"

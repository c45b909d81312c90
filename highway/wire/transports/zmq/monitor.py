"""Track the connections of a socket.

ZeroMQ reports events of connections over a separate socket. A *stranger* is a program that does not speak the link's protocol. With
``peers: highway``, each end sends an *announcement* in the handshake: the user name ``highway``, and its version.
"""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import select
import socket
import struct
import termios
import time
from array import array
from collections import Counter
from collections.abc import Hashable

import zmq

from highway.wire.address import peer_user
from highway.wire.options import PeerKind
from highway.wire.transports.protocol import Peers
from highway.wire.transports.zmq import context
from highway.wire.url import Link

log = logging.getLogger("highway")

LEAST_WAITS = 50  # minimum number of waits of 10 ms for an attempt to connect; not a time, because the process can be suspended
_POLLIN = int(zmq.POLLIN)  # an int, because a comparison of enums takes longer than the call
_OPENED = zmq.Event.ACCEPTED | zmq.Event.CONNECTED
_TRIED = zmq.Event.CONNECTED | zmq.Event.CONNECT_RETRIED
_MESSAGE = struct.Struct("=Hi")  # an event and its value, zmq_socket_monitor(3); pyzmq's function for this would import asyncio
_FAILED = zmq.Event.HANDSHAKE_FAILED_PROTOCOL | zmq.Event.HANDSHAKE_FAILED_AUTH
_EVENTS = _TRIED | _OPENED | _FAILED | zmq.Event.HANDSHAKE_FAILED_NO_DETAIL | zmq.Event.HANDSHAKE_SUCCEEDED | zmq.Event.DISCONNECTED
REFUSALS = 3  # failed handshakes with an announcement before an attempt without; several, as a report can belong to an earlier attempt
GREETING = 64  # bytes of the greeting of ZMTP 3; ZeroMQ sends the whole greeting only to a peer that speaks this version
SHORTEST_HANDSHAKE = GREETING + 8  # minimum bytes that a peer sends
LATE = 5.0  # maximum seconds from a handshake to the report of its connection, which comes from another thread of ZeroMQ
_BYTES = struct.Struct("128xQ64xQ")  # offsets of tcpi_bytes_received and tcpi_bytes_sent in struct tcp_info, since Linux 4.19


_COUNTED = "Further cases are counted as strangers, but not logged"
_WHY: dict[PeerKind, tuple[str, str]] = {
    "any": ("does not use ZeroMQ's protocol, ZMTP 3", _COUNTED),
    "highway": (
        "does not identify itself as highway",
        f"{_COUNTED}. If the program belongs to this link, such as a stock tensorcom peer or an earlier highway, set  peers: any  for "
        f"the link",
    ),
}


def _of_other_file(link: Link) -> tuple[str, str]:
    """Return the error text and the solution for a process of another topology file. The error text has the known paths of the files."""
    own = link.options.topology.split(" ", 3)[-1]
    if link.bind:
        why = f"belongs to the topology file {context.refused_files[context.credentials(link)[1]]}, but this end belongs to {own}"
    else:
        why = f"does not belong to the topology file of this end, {own} (the log of the other end names both files)"
    return why, (
        "Two runs use this address: change the port of the link in one of the files. All roles of a run on one machine need the same file; "
        "if the link has  peers: any,  highway does not compare the files"
    )


class Monitor:
    """The connections of a socket. Use the monitor on the thread of the socket.

    A connection is a peer as soon as its handshake has succeeded. ZeroMQ reports that a handshake has succeeded, but not on which
    connection. The monitor excludes TCP connections that have carried too few bytes for a handshake of ZMTP 3. If several connections
    remain, the monitor guesses which connection is the peer. The other connections are the *rivals* of this peer. The monitor corrects a
    wrong guess when a message comes over a rival (:meth:`hear`), or when a connection closes.

    Attributes:
        heard: Descriptors of connections over which a message has come.
        strangers: Number of connections that ZeroMQ closed because the other end does not speak ZMTP 3, or does not identify itself as
            highway.
        closed: URLs of closed connections.
        tries_both: Whether this end tries to connect with and without an announcement. Some highway peers require the announcement.
        refused: URL -> number of failed handshakes, for an end that connects. A handshake that the other end has ended counts once. Every
            other failed handshake counts ``REFUSALS`` times.
        ended: URLs in ``refused`` to which ZeroMQ does not reconnect.
        other_user: If this end has connected over a UNIX socket to a process of another user: the user ID. Otherwise ``None``. Root does
            not count as another user.
    """

    def __init__(self, socket: zmq.Socket[bytes], link: Link) -> None:
        self._socket, self._link, self._wanted = socket, link, link.options.peers
        self.tries_both = self._wanted == "any" and not link.bind
        address = f"inproc://highway-monitor-{socket.FD}"
        socket.monitor(address, _EVENTS)
        self._events: zmq.Socket[bytes] = socket.context.socket(zmq.PAIR)
        # No high-water mark: with a mark, ZeroMQ's thread could wait for a reader that waits for this thread.
        self._events.rcvhwm = 0
        self._events.connect(address)
        self._pending: dict[int, bytes] = {}  # descriptor of a connection in its handshake -> endpoint
        self._live: set[int] = set()  # descriptors of peers
        self._latest: dict[bytes, int] = {}  # endpoint -> descriptor of the latest peer
        self._rivals: dict[int, set[int]] = {}  # descriptor of a peer -> descriptors of connections that can be the peer instead
        self._vacant: list[tuple[bytes, set[int]]] = []  # peers that have gone: endpoint, and rivals, of which one takes its place
        self._left: Counter[bytes] = Counter()  # endpoint -> number of peers that have gone without a known rival
        self._left_at = float("-inf")  # time when the last peer went
        self._heirs: dict[int, bytes] = {}  # descriptor of a rival that took a peer's place -> endpoint
        self.heard: set[int] = set()
        self._unclaimed: Counter[bytes] = Counter()  # endpoint -> number of peers whose connection is not known yet
        self._early: set[int] = set()  # descriptors of connections whose end was reported before their beginning
        self._seen = 0  # number of peers so far
        self._given_up: Counter[bytes] = Counter()  # endpoint -> number of handshakes that the other end has ended
        self._failed: Counter[bytes] = Counter()  # endpoint -> number of handshakes that ZeroMQ in this process has ended
        self._of_other_file: Counter[str] = Counter()  # URL -> refused ends of another topology file, not yet counted as strangers
        self._reported: set[bool] = set()  # False if a stranger was reported, True if an end of another topology file was reported
        self._unix: set[int] = set()  # descriptors of the open UNIX sockets
        self._used: Counter[Hashable] = Counter()  # descriptor -> number of peers that have had it
        self._tried = 0
        self.strangers = 0
        self._connected: set[str] = set()  # URLs of peers that this end has connected to
        self.refused: Counter[str] = Counter()
        self.ended: set[str] = set()
        self.closed: set[str] = set()
        self.other_user: int | None = None

    def peers(self) -> Peers:
        """Read the events of ZeroMQ, and return the counts of connections."""
        while readable(self._events):
            message, endpoint = self._events.recv_multipart()
            event, fd = _MESSAGE.unpack(message)
            self._tried += bool(event & _TRIED) and endpoint.startswith(b"ipc:")
            if event == zmq.Event.CONNECTED:
                self._check_user(fd)
            if event & _OPENED:
                self._open(fd, endpoint)
            elif event == zmq.Event.HANDSHAKE_SUCCEEDED:
                self._seen += 1
                self._connected.add(endpoint.decode())
                self.refused.pop(endpoint.decode(), None)
                self.ended.discard(endpoint.decode())
                self._welcome(endpoint)
            elif event == zmq.Event.HANDSHAKE_FAILED_NO_DETAIL:
                self._given_up[endpoint] += 1
            elif event & _FAILED:
                self._failed[endpoint] += 1
                # The value of this event is a status. An end without a topology file ignores the status, because a stranger might have sent
                # it.
                is_of_other_file = event == zmq.Event.HANDSHAKE_FAILED_AUTH and fd == context.OTHER_FILE
                self._of_other_file[endpoint.decode()] += is_of_other_file and bool(self._link.options.topology)
            elif event == zmq.Event.DISCONNECTED:
                self._part(fd, endpoint)
        for endpoint, rivals in sorted(self._vacant, key=lambda vacant: len(vacant[1])):  # fewest first, as a rival takes only one place
            self._replace(endpoint, rivals)
        return Peers(len(self._live) + self._unclaimed.total(), self._seen, self._seen + len(self._pending), self.strangers)

    def _open(self, fd: int, endpoint: bytes) -> None:
        """Note a new connection.

        ZeroMQ may have reported the handshake or the end of this connection earlier, because another thread of ZeroMQ reports these events.
        """
        self.closed.discard(endpoint.decode())
        if fd in self._early:
            self._early.remove(fd)
            return
        self._pending[fd] = endpoint
        if endpoint.startswith(b"ipc://"):
            self._unix.add(fd)
        if self._unclaimed[endpoint]:
            self._unclaimed[endpoint] -= 1
            self._welcome(endpoint)
        elif _may_be_peer(fd):
            # An earlier handshake might have been that of this connection. It was attributed to the latest peer, or to one that has gone.
            if (peer := self._latest.get(endpoint)) is not None and peer not in self.heard:
                self._rivals.setdefault(peer, set()).add(fd)
            if self._link.bind and time.monotonic() < self._left_at + LATE:
                if self._left[endpoint]:
                    self._left[endpoint] -= 1
                    self._vacant.append((endpoint, set()))
                for rivals in (rivals for other, rivals in self._vacant if other == endpoint):
                    rivals.add(fd)

    def _welcome(self, endpoint: bytes) -> None:
        """Choose the connection on which a handshake has succeeded, and mark the connection as a peer.

        The first choice is a connection over which a message has come, the second choice is the latest connection. If no connection fits,
        wait until ZeroMQ reports such a connection.
        """
        states = {fd: _may_be_peer(fd) for fd, other in self._pending.items() if other == endpoint}
        found = [fd for fd, state in states.items() if state] or [fd for fd, state in states.items() if state is None]
        if not found:
            heir = next((fd for fd, other in self._heirs.items() if other == endpoint), None)
            if heir is not None:  # the rival was in its handshake until now
                del self._heirs[heir]
            else:
                self._unclaimed[endpoint] += 1
            return
        *rivals, fd = sorted(found, key=self.heard.__contains__)
        if rivals and fd not in self.heard:
            self._rivals[fd] = set(rivals)
        self._take(fd)

    def _take(self, fd: int) -> None:
        self._latest[self._pending.pop(fd)] = fd
        self._live.add(fd)
        self._used[fd] += 1

    def hear(self, fd: int) -> None:
        """Note that a message has come over a connection. The message proves that the connection is a peer."""
        self.heard.add(fd)
        self._rivals.pop(fd, None)
        self._correct(fd)

    def _correct(self, fd: int) -> bool:
        """If the connection is a rival of a peer, mark the connection as the peer instead. Return whether this was done."""
        other = next((peer for peer, rivals in self._rivals.items() if fd in rivals), None)
        if other is None or fd not in self._pending:
            return False
        endpoint, rivals = self._pending[fd], self._rivals.pop(other) - {fd}
        self._take(fd)
        self._live.remove(other)
        self._pending[other] = endpoint
        if self._heirs.pop(other, None) is not None:
            self._heirs[fd] = endpoint
        if fd not in self.heard:
            self._rivals[fd] = rivals | {other}
        return True

    def _part(self, fd: int, endpoint: bytes) -> None:
        self._unix.discard(fd)
        self.closed.add(endpoint.decode())
        failed, given_up = self._failed[endpoint], self._given_up[endpoint]
        has_failed = failed or given_up
        if not has_failed:
            self._correct(fd)
        was_live, was_pending = fd in self._live, self._pending.pop(fd, None) is not None
        if was_live:
            self._connected.discard(endpoint.decode())
        is_heir, is_proven = fd in self._heirs, fd in self.heard
        rivals = self._forget(fd)
        if self._latest.get(endpoint) == fd:
            del self._latest[endpoint]
        if not was_live and not was_pending:
            self._early.add(fd)
        if has_failed:
            if was_live and not is_heir:  # the failed handshake was that of another connection
                self._welcome(endpoint)
            elif was_live and rivals:  # this heir was a stranger
                self._vacant.append((endpoint, rivals))
            # If the other end has ended the handshake, it can be a port scanner, or ZeroMQ at an end with another value of ``peers``.
            if failed or self._wanted == "highway" or self.tries_both:
                self._refuse(endpoint, REFUSALS if failed else 1)
            (self._failed if failed else self._given_up)[endpoint] -= 1
        elif was_live:
            if not is_proven:  # the closed connection might have been a stranger
                self._left_at = time.monotonic()
                self._vacant.append((endpoint, rivals))
        elif not was_pending and self._unclaimed[endpoint]:
            self._unclaimed[endpoint] -= 1
        else:
            self._refuse(endpoint)

    def _forget(self, fd: int) -> set[int]:
        """Forget a connection, and return its rivals."""
        self._live.discard(fd)
        self.heard.discard(fd)
        self._heirs.pop(fd, None)
        found = self._rivals.pop(fd, set())
        for rivals in (*self._rivals.values(), *(rivals for _, rivals in self._vacant)):
            rivals.discard(fd)
        return found

    def _replace(self, endpoint: bytes, rivals: set[int]) -> None:
        """Mark a rival as the peer, in place of a closed connection that might have been a stranger.

        If the closed connection was the real peer, the rival counts as a peer by mistake until the rival closes. ZeroMQ ends the handshake
        of the rival after at most 30 s. A UNIX socket with unread data at the other end is not chosen.
        """
        found: set[int] = set()
        further = rivals
        while further := further - found:
            found |= further
            further = set().union(*(self._rivals.get(fd, ()) for fd in further))  # a rival can be a peer by now, in the place of its rivals
        waiting = found & self._pending.keys()
        ready = (fd for fd in waiting if _may_be_peer(fd) and not (fd in self._unix and _waits(fd)) and not _is_left(fd))  # in this order
        heir = next(ready, None)
        if heir is not None or not waiting:
            self._vacant.remove((endpoint, rivals))
            self._left[endpoint] += heir is None
        if heir is not None:
            self._heirs[heir] = self._pending[heir]
            self._take(heir)
            if found != {heir}:  # the heir can be a stranger, too
                self._rivals[heir] = found - {heir}

    def _refuse(self, endpoint: bytes, weight: int = REFUSALS) -> None:
        """Note that a connection was closed in its handshake. With the default weight, ZeroMQ does not reconnect to the endpoint."""
        url = endpoint.decode()
        if not self.tries_both:
            self.count_stranger(url)
        if not self._link.bind and url not in self._connected:  # otherwise this is a late report of an earlier attempt
            self.refused[url] += weight
            if weight == REFUSALS:
                self.ended.add(url)

    def count_stranger(self, url: str) -> None:
        """Count an end whose handshake has failed. Log the first end of another topology file, and the first stranger of any other kind."""
        self.strangers += 1
        is_of_other_file = self._of_other_file[url] > 0
        self._of_other_file[url] -= is_of_other_file
        if is_of_other_file not in self._reported:
            self._reported.add(is_of_other_file)
            why, advice = _of_other_file(self._link) if is_of_other_file else _WHY[self._wanted]
            log.warning(
                "%s: a program that connected to %s %s: highway exchanges no data with this program. %s", self._link, url, why, advice
            )

    def wait_for_attempts(self, count: int, timeout: float) -> None:
        """Wait until ``count`` attempts to connect to UNIX sockets have ended since this monitor began, or for ``timeout`` seconds."""
        deadline, waits = time.monotonic() + timeout, 0
        while self._tried < count and (time.monotonic() < deadline or waits < LEAST_WAITS):
            waits += not self._events.poll(10)
            self.peers()

    def _check_user(self, fd: int) -> None:
        with contextlib.suppress(OSError), socket.socket(fileno=os.dup(fd)) as connection:  # the connection might be closed by now
            user = peer_user(connection)
            if user is not None and user not in (os.getuid(), 0):
                self.other_user = user

    def times_used(self, descriptor: Hashable) -> int:
        """Return how many peers have had a descriptor. At least 1, because a message can come before ZeroMQ reports the connection."""
        return max(1, self._used[descriptor])

    def unread(self) -> bool:
        """Return whether the other end of a UNIX socket has unread data."""
        return any(map(_waits, self._unix))

    def close(self) -> None:
        """Stop reading the events of the socket."""
        self._socket.disable_monitor()
        self._events.close(0)


def readable(socket: zmq.Socket[bytes]) -> bool:
    """Return whether there is something to read. ``poll()`` would take ten times as long."""
    return bool(int(socket.getsockopt(zmq.EVENTS)) & _POLLIN)


def _may_be_peer(fd: int) -> bool | None:
    """Return whether the handshake of a connection might have succeeded; ``None`` if the connection is closed.

    A handshake over TCP has succeeded only if both ends have sent enough bytes. For UNIX sockets, return ``True``."""
    try:
        copy = os.dup(fd)
    except OSError:
        return None
    try:
        connection = socket.socket(fileno=copy)
    except OSError:  # the connection was closed, and its descriptor now belongs to a file
        os.close(copy)
        return None
    with connection:
        try:
            received, sent = _BYTES.unpack_from(connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 256))
        except (OSError, struct.error):  # a UNIX socket, or an older Linux
            return True
    return bool(received >= SHORTEST_HANDSHAKE and sent >= GREETING)


def _waits(fd: int) -> bool:
    """Return whether the other end of a UNIX socket has unread data; unix(7), SIOCOUTQ."""
    waiting = array("i", [0])
    with contextlib.suppress(OSError):  # the connection was closed meanwhile
        fcntl.ioctl(fd, termios.TIOCOUTQ, waiting)
    return waiting[0] > 0


def _is_left(fd: int) -> bool:
    """Return whether the other end has closed a connection."""
    poll = select.poll()
    poll.register(fd, select.POLLRDHUP)
    return bool(poll.poll(0))

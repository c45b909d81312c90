"""Let a receiver over tcp or ipc leave a link without losing messages (docs/adr/0010-drain.md).

The senders pause until the receiver has left.

Each sender has a server on a separate thread. The server listens on a UNIX socket in the abstract namespace, whose name contains the
sender's name. If the link can reach other machines, the server also listens on a TCP port. The sender's messages contain the number of this
port. A *caller* is a receiver that has connected to this server. Receivers of push and pull links, also over ``+shm``, call the same server
to report how many messages they have taken (:mod:`highway.wire.confirmation`).

1. The receiver connects to the server, and sends the sender's name.
2. The sender pauses, and replies with the number of messages that it has sent. On each connection of the link, the sender then sends marks
   with this number instead of items.
3. The receiver reads until it finds a mark with this number. All earlier messages of the connection come before this mark. A mark with a
   lower number was for another receiver, which left earlier.
4. The receiver confirms the mark, closes its end of the link, and then closes the connection to the server.
5. The sender continues with the other receivers.
"""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import struct
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from highway.process.readable import readable
from highway.wire import rendezvous
from highway.wire.address import is_loopback, peer_user
from highway.wire.confirmation import ACK, Confirmations
from highway.wire.pausable import PausableSender
from highway.wire.transports.protocol import Frame, Peers
from highway.wire.url import Link

MAGIC: Final = b"~HwyBye~"
STILL_READING, FOUND = b"\0", b"\1"  # a leaving receiver repeats STILL_READING, and sends FOUND after it has read the mark
_NUMBER: Final = struct.Struct("<Q")  # the sender's reply: how many messages it had sent when it paused
PAUSE: Final = 20.0  # maximum seconds that the sender waits until a receiver has left
SILENCE: Final = 3.0  # maximum seconds between two signs of life of a receiver
READING: Final = 0.1  # seconds after which a receiver sends the next sign of life
HELLO: Final = 2.0  # maximum seconds until a caller sends the sender's name; on a busy machine, this can take long
GONE: Final = 5.0  # maximum seconds to wait until ZeroMQ reports that a receiver has disconnected
ROUND: Final = 0.05  # seconds between two rounds of marks
PENDING: Final = 128  # maximum number of callers that have not sent the sender's name yet; a new caller replaces the oldest


class LeaveServer:
    """A sender's server for its receivers. The constructor starts the thread of the server, and :meth:`close` ends the thread.

    Args:
        link: The link of the receivers.
        name: The sender's name.
        sender: The sender to pause.
        mark: A function that takes the number of sent messages, and returns the frames of a mark.

    Attributes:
        port: TCP port on which the server listens in addition to the UNIX socket; 0 if the server has no TCP port.
        left: Number of receivers that left after they had read all messages that were sent to them.
        confirmed: The reports of the receivers.

    Raises:
        OSError: the server cannot listen.
        RuntimeError: the thread cannot start.
    """

    def __init__(self, link: Link, name: bytes, sender: PausableSender, mark: Callable[[int], Sequence[Frame]]) -> None:
        self._sender, self._mark = sender, mark
        self._hellos = [ACK + name, MAGIC + name] if has_back_channel(link) else [ACK + name]
        self.confirmed = Confirmations()
        self._pid = os.getpid()
        self._callers: dict[socket.socket, _Caller] = {}
        self._paused_at = self._rests_until = self._marks_at = float("-inf")
        # Messages sent before the last pause, receivers that left during the pause, and connections closed before the pause.
        self._number = self._gone = self._closed_before = 0
        self._listening = [socket.create_server(path_of(name), family=socket.AF_UNIX, backlog=PENDING)]
        self.port = self.left = 0
        if (host := interface(link, sender.bound)) and not is_loopback(host):
            with contextlib.suppress(OSError):  # without a TCP port, only receivers on this machine can connect
                self._listening.append(socket.create_server((host, 0), family=_family_of(host), backlog=PENDING))
                self.port = self._listening[-1].getsockname()[1]
        self._closing, self._wake = socket.socketpair()
        self._thread = threading.Thread(target=self._serve, name="highway:leave", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop listening, without waiting for receivers that are leaving. Closing again does nothing."""
        if os.getpid() == self._pid and self._wake.fileno() >= 0:
            self._wake.send(b"\0")
            self._thread.join()
            for each in (self._wake, self._closing, *self._listening):
                each.close()

    def _serve(self) -> None:
        """Serve all callers concurrently, so that a silent or slow caller delays no other caller."""
        try:
            while True:
                ready = readable([self._closing, *self._listening, *self._callers, *self.confirmed.connections], self._patience())
                if self._closing in ready:
                    break
                for sock in ready:
                    if sock in self._listening:
                        self._accept(sock)
                    elif sock in self.confirmed.connections:
                        self.confirmed.hear(sock)
                    else:
                        self._hear(sock)
                self._look()
        finally:
            self._sender.is_paused = False
            for sock in (*self._callers, *self.confirmed.connections):
                sock.close()

    def _patience(self) -> float | None:
        """Return the seconds until the next action is due; ``None`` if no action is due."""
        if self._sender.is_paused:
            return ROUND
        due = [caller.since + HELLO for caller in self._callers.values() if not caller.is_known]
        due += [self._rests_until] * any(caller.is_known for caller in self._callers.values())
        return max(0.0, min(due) - time.monotonic()) if due else None

    def _accept(self, listener: socket.socket) -> None:
        try:
            connection, _ = listener.accept()
        except OSError:  # the caller has given up, or there is no free descriptor; try again later
            readable([self._closing], ROUND)
            return
        connection.setblocking(False)
        strangers = [sock for sock, caller in self._callers.items() if not caller.is_known]
        if len(strangers) >= PENDING:
            self._drop(strangers[0])
        self._callers[connection] = _Caller(time.monotonic())
        if not _may_ask(connection):
            self._drop(connection)

    def _hear(self, sock: socket.socket) -> None:
        """Receive from a caller: first the sender's name, then signs of life.

        Only the sender's receivers know the name. If the caller reports taken messages, pass the connection to ``confirmed``.
        """
        caller = self._callers.get(sock)
        if caller is None:  # the caller was dropped in this round
            return
        try:
            said = sock.recv(64 if caller.is_known else len(self._hellos[0]) - len(caller.said))
        except BlockingIOError:
            return
        except OSError:  # the caller closed without reading the number
            said = b""
        caller.heard = time.monotonic()
        if caller.is_known:
            caller.is_found |= FOUND in said
        else:
            caller.said += said
            if caller.said == self._hellos[0] and self.confirmed.welcome(sock):
                del self._callers[sock]
                return
            if caller.said == self._hellos[0] or not any(hello.startswith(caller.said) for hello in self._hellos):
                said = b""
            caller.is_known = caller.said in self._hellos
        if not said:
            self._gone += caller.leaves_since is not None
            self.left += caller.is_found
            self._drop(sock)

    def _look(self) -> None:
        """Pause the sender for leaving receivers, and answer them. Send due marks. Drop callers that take too long."""
        now = time.monotonic()
        for sock, caller in list(self._callers.items()):
            if not caller.is_known:
                is_late = now > caller.since + HELLO
            elif caller.leaves_since is not None:
                is_late = now > caller.leaves_since + PAUSE or now > caller.heard + SILENCE
            else:
                is_late = False
                if self._may_begin(now):
                    caller.leaves_since = caller.heard = now
                    with contextlib.suppress(OSError):  # the caller has closed already
                        sock.send(_NUMBER.pack(self._number))
            if is_late:
                self._drop(sock)
        if not self._sender.is_paused:
            return
        leaving = [caller for caller in self._callers.values() if caller.leaves_since is not None]
        if not leaving:
            self._go_on()
        elif not all(caller.is_found for caller in leaving) and now >= self._marks_at:
            self._marks_at = now + ROUND
            self._sender.mark(self._mark(self._number))

    def _may_begin(self, now: float) -> bool:
        """Return whether a receiver can leave now. If so, pause the sender, unless the sender is paused already.

        Several receivers can leave in one pause. After a pause, the sender runs for at least as long as the pause took. So receivers that
        leave one after another cannot stop the sender.
        """
        if self._sender.is_paused:
            return now < self._paused_at + PAUSE
        if now < self._rests_until:
            return False
        self._paused_at, self._gone, self._marks_at = now, 0, now
        self._closed_before = _closed(self._sender.peers())
        self._number = self._sender.pause()
        return True

    def _go_on(self) -> None:
        """End the pause after ZeroMQ has reported that the receivers have disconnected, or after ``GONE`` seconds."""
        noticed = time.monotonic() + GONE
        if self._gone:
            while _closed(self._sender.peers()) < self._closed_before + self._gone and time.monotonic() < noticed:
                if readable([self._closing], 0.002):
                    return
            self._sender.settle(GONE)
        self._sender.is_paused = False
        now = time.monotonic()
        self._rests_until = now + (now - self._paused_at)

    def _drop(self, sock: socket.socket) -> None:
        del self._callers[sock]
        sock.close()


@dataclass
class _Caller:
    """The server's record of a caller.

    Args:
        since: Time when the caller connected.
        said: The part of the sender's name that has been received so far.
        is_known: Whether the caller has sent the sender's name.
        leaves_since: Time when the sender was paused for the caller; ``None`` before the pause.
        heard: Time when the caller last sent something.
        is_found: Whether the caller has read a mark.
    """

    since: float
    said: bytes = b""
    is_known: bool = False
    leaves_since: float | None = None
    heard: float = 0.0
    is_found: bool = False


class Leave:
    """Notifies the senders that a receiver leaves, and tracks which marks the receiver has not read yet.

    Use a ``Leave`` only on the receiving thread.
    """

    def __init__(self) -> None:
        self._asked: dict[bytes, socket.socket] = {}
        self._told: set[bytes] = set()
        self._numbers: dict[bytes, bytes] = {}  # the received part of each sender's reply
        self._due = 0.0
        self.marked: set[bytes] = set()
        self.unreachable: set[bytes] = set()

    def tell(self, name: bytes, port: int | None, host: str) -> None:
        """Begin or continue to notify a sender.

        ``port`` and ``host`` are as for :func:`call`. If the sender cannot be reached, add its name to ``unreachable``.
        """
        if name in self._told or name in self.unreachable:
            return
        try:
            if name not in self._asked:
                self._asked[name] = call(name, port, host)
            self._asked[name].send(MAGIC + name)
            self._told.add(name)
        except BlockingIOError:  # the connection is still being established
            pass
        except OSError:
            self.unreachable.add(name)

    def found(self, name: bytes, number: int) -> None:
        """Note a sender's mark. Ignore a mark for a receiver that left earlier, because messages can follow this mark."""
        if not self.waits_for(name) or name not in self._told or len(said := self._numbers.get(name, b"")) < _NUMBER.size:
            return
        if number >= _NUMBER.unpack(said)[0]:
            self.marked.add(name)
            with contextlib.suppress(OSError):  # the sender has ended
                self._asked[name].send(FOUND)

    def waits_for(self, name: bytes) -> bool:
        """Read a sender's reply if it has arrived.

        Return whether to wait for the sender's mark. False if the mark was read, or if the sender is unreachable.
        """
        if name in self.unreachable or name in self.marked:
            return False
        if name in self._told:
            said = self._numbers.get(name, b"")
            try:
                more = self._asked[name].recv(max(1, _NUMBER.size - len(said)))
            except BlockingIOError:
                return True
            except OSError:  # the connection was lost
                more = b""
            if not more:
                self.unreachable.add(name)
                return False
            self._numbers[name] = said + more
        return True

    def go_on(self) -> None:
        """Send a sign of life to the senders if the next sign of life is due."""
        if (now := time.monotonic()) >= self._due:
            self._due = now + READING
            for name in self._told - self.unreachable:
                with contextlib.suppress(OSError):  # the sender has ended
                    self._asked[name].send(STILL_READING)

    def close(self) -> None:
        """Close the connections. Close this end of the link first."""
        for connection in self._asked.values():
            connection.close()


def has_back_channel(link: Link) -> bool:
    """Return whether a receiver can notify the senders before leaving: on push and pull links over tcp, ipc or named."""
    return not link.fans_out and link.transport.departure == "marks"


def path_of(name: bytes) -> str:
    """Return the name of the UNIX socket at which the sender ``name`` listens."""
    return f"\0highway-leave-{name.hex()}"


def interface(link: Link, bound: Sequence[str]) -> str:
    """Return the local IP address of a link, or ``""`` if the address is unknown.

    If this end binds, return the bound address. If this end connects, return the local address of the route to the first peer. For named
    links, return the address from the rendezvous, the place where the ends publish their addresses.
    """
    locations = [address.removeprefix("tcp://") for address in bound or link.addresses if address.startswith("tcp://")]
    if not locations:
        return rendezvous.directory(str(link)).host if link.transport.is_named else ""
    host, port = locations[0].rsplit(":", 1)
    host = host.strip("[]")
    if bound:
        return host
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, int(port), type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, kind, protocol) as probe:
            probe.connect(address)  # sends nothing
            return str(probe.getsockname()[0])
    except OSError:
        return ""


def _family_of(host: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in host else socket.AF_INET


def call(name: bytes, port: int | None, host: str) -> socket.socket:
    """Begin to connect to a sender's server, without waiting.

    The UNIX socket is tried first, then the TCP port. The connection of the returned socket may not be established yet. ``port`` is the
    number in the sender's messages: ``None`` if the sender has no server, and 0 if the server has no TCP port.

    Raises:
        BlockingIOError: too many callers wait for the server; try again later.
        OSError: the sender has no server, or cannot be reached.
    """
    if port is None:
        raise ConnectionRefusedError
    addresses: list[tuple[int, Any]] = [(socket.AF_UNIX, path_of(name))]
    if port and host:
        addresses.append((_family_of(host), (host, port)))
    for family, address in addresses:
        connection = socket.socket(family)
        connection.setblocking(False)
        error = connection.connect_ex(address)
        if error == errno.EINPROGRESS or (not error and _may_ask(connection)):
            return connection
        connection.close()
        if error == errno.EAGAIN:  # a UNIX socket whose queue is full; no connection is being established
            raise BlockingIOError(error, os.strerror(error))
    raise ConnectionRefusedError


def _may_ask(connection: socket.socket) -> bool:
    """Return False if the other end belongs to another user. Over TCP, the user is unknown, so return True."""
    return connection.family != socket.AF_UNIX or peer_user(connection) == os.getuid()


def _closed(peers: Peers | None) -> int:
    return peers.seen - peers.live if peers else 0

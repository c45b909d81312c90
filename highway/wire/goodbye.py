"""How a receiver over tcp or ipc leaves without a loss: it tells its senders, and they pause until it is gone (docs/adr/0010-drain.md).

A sender listens beside its link, on a thread of its own: on a UNIX socket in the abstract namespace that is named after it, and, where its
link leaves the machine, on a TCP port that its messages announce. A receiver that leaves says the sender's name there. The sender then
says how many it has sent, and sends no items, but marks with that number: on each connection, nothing that was sent before a mark comes
behind it. The receiver reads until it finds such a mark (one with a lower number was for a receiver that left before), says so, closes its
end of the link, and then this connection; the sender goes on with the receivers that are left.
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
from typing import Any, Final

from highway.process.readable import readable
from highway.wire import rendezvous
from highway.wire.address import is_loopback, peer_user
from highway.wire.pausable import PausableSender
from highway.wire.transports.protocol import Frame, Peers
from highway.wire.url import Link

MAGIC: Final = b"~HwyBye~"
STILL_READING, FOUND = b"\0", b"\1"  # what a receiver says behind it: now and then, and once
_NUMBER: Final = struct.Struct("<Q")  # what the sender says: how many messages it had sent when it paused
PAUSE: Final = 20.0  # seconds that a receiver may take to leave; then the sender goes on all the same
SILENCE: Final = 3.0  # seconds that it may take between two bytes which say that it reads still
READING: Final = 0.1  # seconds between two of them
HELLO: Final = 2.0  # seconds that it may take to say whom it means; on a busy machine it may not run for a while, once it has called
GONE: Final = 5.0  # seconds that ZeroMQ may take to notice that it is gone
ROUND: Final = 0.05  # seconds between two rounds of marks
PENDING: Final = 128  # receivers that may wait for their turn to leave


class LeaveServer:
    """Where receivers say that they leave. It listens at once, on a thread of its own until it is closed.

    Args:
        link: The link whose receivers they are.
        name: The sender's name.
        sender: What to pause.
        mark: Returns the frames of a mark behind so many messages.

    Attributes:
        port: Where it listens besides the UNIX socket; 0 for nowhere.

    Raises:
        OSError: it cannot listen.
    """

    def __init__(self, link: Link, name: bytes, sender: PausableSender, mark: Callable[[int], Sequence[Frame]]) -> None:
        self._name, self._sender, self._mark = name, sender, mark
        self._pid = os.getpid()
        self._listening = [socket.create_server(path_of(name), family=socket.AF_UNIX, backlog=PENDING)]
        self.port = 0
        if (host := interface(link, sender.bound)) and not is_loopback(host):
            with contextlib.suppress(OSError):  # then only receivers on this machine are heard
                self._listening.append(socket.create_server((host, 0), family=_family_of(host), backlog=PENDING))
                self.port = self._listening[-1].getsockname()[1]
        self._closing, self._wake = socket.socketpair()
        self._thread = threading.Thread(target=self._serve, name="highway:leave", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop listening. Who is leaving is not waited for. Closing again does nothing."""
        if os.getpid() == self._pid and self._wake.fileno() >= 0:
            self._wake.send(b"\0")
            self._thread.join()
            for each in (self._wake, self._closing, *self._listening):
                each.close()

    def _serve(self) -> None:
        while self._closing not in (ready := readable([self._closing, *self._listening], None)):
            with contextlib.suppress(OSError):
                connection, _ = ready[0].accept()
                with connection:
                    connection.settimeout(HELLO)
                    if _may_ask(connection) and _read(connection, len(MAGIC + self._name)) == MAGIC + self._name:
                        self._let_go(connection)

    def _let_go(self, connection: socket.socket) -> None:
        """Pause while a receiver leaves; then rest as long, so that who says it again and again stops nobody."""
        started = time.monotonic()
        before = _closed(self._sender.peers())
        try:
            number = self._sender.pause()
            with contextlib.suppress(ConnectionError):  # it went at once
                connection.send(_NUMBER.pack(number))
            if self._is_gone_after_marks(connection, number, started):
                noticed = time.monotonic() + GONE
                while _closed(self._sender.peers()) == before and time.monotonic() < noticed:
                    if readable([self._closing], 0.002):
                        return
                self._sender.settle(GONE)
        finally:
            self._sender.is_paused = False
        readable([self._closing], time.monotonic() - started)

    def _is_gone_after_marks(self, connection: socket.socket, number: int, started: float) -> bool:
        """Send marks until the receiver has found one; say whether it went in time."""
        is_found, heard = False, started
        while time.monotonic() <= started + PAUSE:
            if not is_found:
                self._sender.mark(self._mark(number))
            ready = readable([self._closing, connection], ROUND)
            if self._closing in ready:
                return False
            if connection in ready:
                try:
                    said = connection.recv(64)
                except ConnectionError:  # it went without having read the number
                    said = b""
                if not said:
                    return True
                is_found |= FOUND in said
                heard = time.monotonic()
            elif time.monotonic() > heard + SILENCE:
                break
        return False


class Leave:
    """The other side: tells senders that this receiver leaves, and keeps who has still to send a mark. For the thread that receives."""

    def __init__(self) -> None:
        self._asked: dict[bytes, socket.socket] = {}
        self._told: set[bytes] = set()
        self._numbers: dict[bytes, bytes] = {}  # of messages that each has sent when it paused, as far as they have come
        self._due = 0.0
        self.marked: set[bytes] = set()
        self.unreachable: set[bytes] = set()

    def tell(self, name: bytes, port: int | None, host: str) -> None:
        """Tell a sender, or go on with it; ``port`` is the one that it announced, ``None`` if it announced none."""
        if name in self._told or name in self.unreachable:
            return
        try:
            if name not in self._asked:
                self._asked[name] = _call(name, port, host)
            self._asked[name].send(MAGIC + name)
            self._told.add(name)
        except BlockingIOError:  # it is on its way there
            pass
        except OSError:
            self.unreachable.add(name)

    def found(self, name: bytes, number: int) -> None:
        """Note that a sender's mark has come, if it is not one for a receiver that left before: then messages may be behind it."""
        if not self.waits_for(name) or name not in self._told or len(said := self._numbers.get(name, b"")) < _NUMBER.size:
            return
        if number >= _NUMBER.unpack(said)[0]:
            self.marked.add(name)
            with contextlib.suppress(OSError):  # it has ended
                self._asked[name].send(FOUND)

    def waits_for(self, name: bytes) -> bool:
        """Say whether a sender that is there has still to send a mark."""
        if name in self.unreachable or name in self.marked:
            return False
        if name in self._told:
            said = self._numbers.get(name, b"")
            try:
                more = self._asked[name].recv(max(1, _NUMBER.size - len(said)))
            except BlockingIOError:
                return True
            except ConnectionError:
                more = b""
            if not more:
                self.unreachable.add(name)
                return False
            self._numbers[name] = said + more
        return True

    def go_on(self) -> None:
        """Say that this receiver reads still, now and then."""
        if (now := time.monotonic()) >= self._due:
            self._due = now + READING
            for name in self._told - self.unreachable:
                with contextlib.suppress(OSError):  # it has ended
                    self._asked[name].send(STILL_READING)

    def close(self) -> None:
        """Close the connections; by then this end of the link must be closed."""
        for connection in self._asked.values():
            connection.close()


def has_back_channel(link: Link) -> bool:
    """Say whether receivers can tell the senders of a link that they leave: where they push and pull over a transport that has marks."""
    return link.kind in ("push", "pull") and link.transport.departure == "marks"


def path_of(name: bytes) -> str:
    """Return the name of the UNIX socket at which the sender ``name`` listens."""
    return f"\0highway-leave-{name.hex()}"


def interface(link: Link, bound: Sequence[str]) -> str:
    """Return this machine's address that a link uses to reach others (the first one's); ``""`` if it has none or that is not known."""
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


def _call(name: bytes, port: int | None, host: str) -> socket.socket:
    """Return a connection to a sender, which may be on its way still.

    Raises:
        OSError: it cannot be reached.
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
        if error in (errno.EINPROGRESS, errno.EAGAIN) or (not error and _may_ask(connection)):
            return connection
        connection.close()
    raise ConnectionRefusedError


def _may_ask(connection: socket.socket) -> bool:
    """Say whether the other end is of this user, which only a UNIX socket tells."""
    return connection.family != socket.AF_UNIX or peer_user(connection) == os.getuid()


def _read(connection: socket.socket, count: int) -> bytes:
    read = b""
    while len(read) < count and (more := connection.recv(count - len(read))):
        read += more
    return read


def _closed(peers: Peers | None) -> int:
    return peers.seen - peers.live if peers else 0

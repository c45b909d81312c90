"""How the two ends of a same-host link find each other: SEQPACKET sockets with names in Linux's abstract namespace.

Such a name is no file: it is gone with the process that listens, however that went. The name holds the user's number, and each end asks
the kernel who is at the other end: a process of another user is turned away. Then each sends a hello: magic, version of the protocol,
whether it sends or receives, and (a sender) the limits of its pool.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import select
import socket
import struct
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Generic, Literal, NamedTuple, Protocol, TypeVar

from highway.errors import ConfigError, LinkError
from highway.wire.transport import Peers

log = logging.getLogger("highway")

VERSION: Final = 1
RETRY: Final = 0.05  # seconds between attempts to reach somebody who does not listen yet
LONGEST_NAME: Final = 80  # bytes

Role = Literal["sender", "receiver"]
_ROLES: dict[int, Role] = {0: "sender", 1: "receiver"}
_MAGIC = b"~HwyShm~"
_START = struct.Struct("<8sI")  # magic and version: the same in every version
_REST = struct.Struct("<IQI")
_CREDENTIALS = struct.Struct("3i")


class Hello(NamedTuple):
    """What one end says first.

    Args:
        role: Whether it sends or receives.
        budget: Bytes that all slots of a sender may take.
        most: How many slots it may have.
    """

    role: Role
    budget: int = 0
    most: int = 0

    def pack(self) -> bytes:
        """Return it as a packet."""
        (role,) = (number for number, role in _ROLES.items() if role == self.role)
        return _START.pack(_MAGIC, VERSION) + _REST.pack(role, self.budget, self.most)

    def fitting(self, packet: bytes) -> Hello:
        """Return what the other end said.

        Raises:
            LinkError: it is none that this end can work with.
        """
        if len(packet) < _START.size or not packet.startswith(_MAGIC):
            raise LinkError(f"it is not highway: it began with {packet[:16]!r}")
        _, version = _START.unpack_from(packet)
        if version != VERSION:
            raise LinkError(
                f"it speaks version {version} of the same-host protocol and this process {VERSION}; run the same highway on both ends"
            )
        if len(packet) != _START.size + _REST.size:
            raise LinkError(f"its hello has {len(packet)} bytes; expected {_START.size + _REST.size}")
        role, budget, most = _REST.unpack_from(packet, _START.size)
        theirs = Hello(_ROLES.get(role, self.role), budget, most)
        if theirs.role == self.role:
            raise LinkError(f"both ends are {self.role}s; one must push and the other pull")
        return theirs


class Peer(Protocol):
    """The other end of a connection, once it is known to be a fitting one."""

    @property
    def sock(self) -> socket.socket: ...


P = TypeVar("P", bound=Peer)


@dataclass
class _Target:
    """Somebody to connect to, again whenever the connection is lost."""

    name: str
    sock: socket.socket | None = None
    due: float = 0.0


@dataclass
class _Stranger:
    """A connection whose hello has not come yet; ``calls`` if this end has made it."""

    sock: socket.socket
    calls: bool


class Meeting(Generic[P]):
    """Keeps the connections of one end of a link, as the others come and go. For one thread.

    Args:
        link: How messages call the link.
        hello: What this end says.
        welcome: Makes a peer of a connection and what the other end said.
    """

    def __init__(self, link: str, hello: Hello, welcome: Callable[[socket.socket, Hello], P]) -> None:
        self.link, self._hello, self._welcome = link, hello, welcome
        self.peers: list[P] = []
        self.seen = 0  # how many peers there have been
        self.bound: list[str] = []  # where this end listens
        self._pid = os.getpid()
        self._targets: list[_Target] = []
        self._watched: dict[int, socket.socket | _Stranger | P] = {}
        self._epoll = select.epoll()

    def listen(self, name: str) -> None:
        """Be found under a name.

        Raises:
            LinkError: another process is.
        """
        sock = _new_socket()
        try:
            sock.bind(_address(name))
            sock.listen(64)
        except OSError as error:
            sock.close()
            if error.errno != errno.EADDRINUSE:
                raise LinkError(f"{self.link}: cannot listen: {error}") from error
            raise LinkError(f"{self.link}: a running process has this name; stop it, choose another name, or connect to it") from None
        self.bound.append(f"shm://{name}")
        self._watch(sock, sock)

    def call(self, name: str) -> None:
        """Connect to whoever listens under a name, as soon as somebody does, and again when the connection is lost."""
        _address(name)
        self._targets.append(_Target(name))

    def adopt(self, sock: socket.socket) -> None:
        """Take a connection that exists already."""
        sock.setblocking(False)
        self._meet(sock, calls=True)

    @property
    def is_over(self) -> bool:
        """Whether nobody is there and nobody can come."""
        return not self._watched and not self._targets

    def count(self) -> Peers:
        """Return how many peers there are and have been, and how many connections."""
        strangers = sum(isinstance(watched, _Stranger) for watched in self._watched.values())
        return Peers(len(self.peers), self.seen, self.seen + strangers)

    def attend(self, timeout: float) -> list[P]:
        """Wait at most ``timeout`` seconds for something to happen; return the peers that have something to read, or are gone.

        Raises:
            LinkError: who was called is none that this end can work with; or this end is closed, or belongs to another process.
        """
        if os.getpid() != self._pid:
            raise LinkError(f"{self.link} was opened in process {self._pid}; open it in the process that uses it (this is {os.getpid()})")
        if self._epoll.closed:
            raise LinkError(f"{self.link} is closed")
        if self._targets and self._call_again():
            timeout = min(timeout, RETRY)
        ready: list[P] = []
        for fd, _ in self._epoll.poll(timeout):
            watched = self._watched[fd]
            if isinstance(watched, socket.socket):
                self._accept(watched)
            elif isinstance(watched, _Stranger):
                self._greet(watched)
            else:
                ready.append(watched)
        return ready

    def part(self, peer: P) -> None:
        """Let go of a peer. The socket is not closed yet: on other threads it may be in use."""
        self.peers.remove(peer)
        self._forget(peer.sock)
        if os.getpid() == self._pid:  # else it is the parent's, who still uses it
            with contextlib.suppress(OSError):
                peer.sock.shutdown(socket.SHUT_RDWR)

    def close(self) -> list[P]:
        """Let go of everybody; return the peers that there were. Closing again does nothing."""
        parted = list(self.peers)
        for peer in parted:
            self.part(peer)
        for watched in self._watched.values():
            (watched if isinstance(watched, socket.socket) else watched.sock).close()
        self._watched.clear()
        self._targets.clear()
        self._epoll.close()
        return parted

    def _call_again(self) -> bool:
        """Call those who are due, and say whether somebody is still missing."""
        missing, now = False, time.monotonic()
        for target in self._targets:
            if target.sock is None and target.due <= now:
                sock = _new_socket()
                try:
                    sock.connect(_address(target.name))
                except OSError as error:
                    sock.close()
                    if error.errno not in (errno.ECONNREFUSED, errno.EAGAIN):  # nobody listens, or too many call
                        raise LinkError(f"{self.link}: cannot connect: {error}") from error
                    target.due = now + RETRY
                else:
                    target.sock = sock
                    self._meet(sock, calls=True)
            missing = missing or target.sock is None
        return missing

    def _accept(self, listener: socket.socket) -> None:
        with contextlib.suppress(BlockingIOError, ConnectionError):  # who called may have given up
            sock, _ = listener.accept()
            sock.setblocking(False)
            self._meet(sock, calls=False)

    def _meet(self, sock: socket.socket, calls: bool) -> None:
        self._watch(sock, _Stranger(sock, calls))
        with contextlib.suppress(OSError):  # it is gone already; the poll will say so
            sock.send(self._hello.pack(), socket.MSG_NOSIGNAL)

    def _greet(self, stranger: _Stranger) -> None:
        sock = stranger.sock
        try:
            packet = sock.recv(4096)
        except OSError:
            packet = b""
        if not packet:
            self._forget(sock)
            sock.close()
            return
        try:
            pid, uid, _ = _CREDENTIALS.unpack(sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size))
            if uid != os.getuid():
                raise LinkError(f"it belongs to user {uid} and this process to {os.getuid()}; same-host links do not cross users")
            theirs = self._hello.fitting(packet)
        except LinkError as error:
            self._forget(sock)
            sock.close()
            refusal = f"{self.link}: process {pid} at the other end is refused: {error}"
            if stranger.calls:
                raise LinkError(refusal) from None
            log.warning("%s", refusal)
            return
        peer = self._welcome(sock, theirs)
        self._watched[sock.fileno()] = peer
        self.peers.append(peer)
        self.seen += 1

    def _watch(self, sock: socket.socket, what: socket.socket | _Stranger) -> None:
        self._watched[sock.fileno()] = what
        self._epoll.register(sock.fileno(), select.EPOLLIN)

    def _forget(self, sock: socket.socket) -> None:
        del self._watched[sock.fileno()]
        self._epoll.unregister(sock.fileno())
        for target in self._targets:
            if target.sock is sock:
                target.sock, target.due = None, time.monotonic() + RETRY


def _new_socket() -> socket.socket:
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    sock.setblocking(False)
    return sock


def _address(name: str) -> str:
    if len(name.encode()) > LONGEST_NAME:
        raise ConfigError(f"'{name}': a name of {len(name.encode())} bytes; same-host links take at most {LONGEST_NAME}")
    return f"\0highway/{os.getuid()}/{name}"

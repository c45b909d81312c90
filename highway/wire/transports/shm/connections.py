"""Connect the two ends of a same-host link over SEQPACKET sockets with names in Linux's abstract namespace.

A name in this namespace is not a file. The name disappears with the process that listens, even if the process is killed. Each end asks the
kernel for the user at the other end, and closes connections of other users. Then each end sends a *hello*, its first packet
(:mod:`highway.wire.transports.shm.packets`).
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import select
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Generic, Protocol, TypeVar

from highway.errors import ConfigError, LinkError
from highway.wire.address import peer_process
from highway.wire.transports.protocol import Peers
from highway.wire.transports.shm.packets import Hello
from highway.wire.url import Link

log = logging.getLogger("highway")

RETRY: Final = 0.05  # seconds between attempts to connect to an end that does not listen yet
MOST_PENDING: Final = 64  # maximum number of connections without a hello; few, because highway sends the hello immediately
MOST_TOLD: Final = 16  # maximum number of different warnings that are logged
LONGEST_NAME: Final = 80  # maximum bytes of a name


class Peer(Protocol):
    """The other end of an accepted connection."""

    @property
    def sock(self) -> socket.socket: ...


P = TypeVar("P", bound=Peer)


@dataclass
class _Target:
    """A name to which this end connects. When the connection is lost, this end reconnects."""

    name: str
    sock: socket.socket | None = None
    due: float = 0.0


@dataclass
class _Pending:
    """A connection over which no hello has come yet. ``calls`` is True if this end has connected, False if the other end has connected."""

    sock: socket.socket
    calls: bool
    pid: int


class Connections(Generic[P]):
    """The current connections of one end of a link. Use this object on one thread.

    Args:
        link: Name of the link in messages.
        hello: The hello of this end.
        make_peer: Function that creates a peer from a connection and the other end's hello.
    """

    def __init__(self, link: str, hello: Hello, make_peer: Callable[[socket.socket, Hello], P]) -> None:
        self.link, self._hello, self._make_peer = link, hello, make_peer
        self.peers: list[P] = []
        self.seen = 0  # number of peers so far
        self.bound: list[str] = []  # names under which this end listens
        self._pid = os.getpid()
        self._targets: list[_Target] = []
        self._watched: dict[int, socket.socket | _Pending | P] = {}
        self._paused: list[socket.socket] = []  # listeners that do not accept, because there is no free descriptor
        self._listens_again_at = 0.0
        self._told: set[str] = set()
        self._epoll = select.epoll()

    def attach(self, link: Link) -> None:
        """Listen under each name of a link, or connect to each name, depending on ``link.bind``."""
        for name in link.locations:
            (self.listen if link.bind else self.connect)(name)

    def listen(self, name: str) -> None:
        """Listen under a name.

        Raises:
            LinkError: another process listens under the name, or the system does not allow listening.
        """
        sock = _new_socket()
        try:
            sock.bind(_address(name))
            sock.listen(64)
        except OSError as error:
            sock.close()
            if error.errno != errno.EADDRINUSE:
                raise LinkError(f"{self.link}: cannot listen: {error}") from error
            raise LinkError(
                f"{self.link}: another process already listens under this name; stop that process, use another name, or connect to it"
            ) from None
        self.bound.append(f"shm://{name}")
        self._watch(sock, sock)

    def connect(self, name: str) -> None:
        """Connect to the process that listens under a name, as soon as there is such a process. Reconnect after the connection is lost."""
        _address(name)
        self._targets.append(_Target(name))

    def adopt(self, sock: socket.socket) -> None:
        """Use an existing connection."""
        sock.setblocking(False)
        self._send_hello(sock, calls=True)

    @property
    def is_over(self) -> bool:
        """Whether no connection exists or can be established."""
        return not self._watched and not self._targets

    def count(self) -> Peers:
        """Return the counts of the connections."""
        return Peers(len(self.peers), self.seen, self.seen + len(self._pending()))

    def check(self) -> None:
        """Raise LinkError if this end is closed, or belongs to another process."""
        if os.getpid() != self._pid:
            raise LinkError(f"{self.link} was opened in process {self._pid}; open it in the process that uses it (this is {os.getpid()})")
        if self._epoll.closed:
            raise LinkError(f"{self.link} is closed")

    def poll(self, timeout: float) -> list[P]:
        """Wait at most ``timeout`` seconds for an event. Return the peers that have sent something, or have disconnected.

        Raises:
            LinkError: this end has connected to an incompatible process, or to a process of another user; this end cannot connect; or as
                for :meth:`check`.
        """
        self.check()
        if (self._targets and self._reconnect()) or (self._paused and not self._listen_again()):
            timeout = min(timeout, RETRY)
        ready: list[P] = []
        for fd, _ in self._epoll.poll(timeout):
            watched = self._watched.get(fd)
            if isinstance(watched, socket.socket):
                self._accept(watched)
            elif isinstance(watched, _Pending):
                self._take_hello(watched)
            elif watched is not None:  # otherwise the connection was dropped in this round, to make room
                ready.append(watched)
        return ready

    def detach(self, peer: P) -> None:
        """Remove a peer without closing its socket, because other threads might use the socket."""
        self.peers.remove(peer)
        self._forget(peer.sock)
        if os.getpid() == self._pid:  # in a forked child, the selector belongs to the parent process, which still uses it
            with contextlib.suppress(OSError):
                peer.sock.shutdown(socket.SHUT_RDWR)

    def close(self) -> list[P]:
        """Remove all peers and return them. Closing again does nothing."""
        detached = list(self.peers)
        for peer in detached:
            self.detach(peer)
        for watched in self._watched.values():
            (watched if isinstance(watched, socket.socket) else watched.sock).close()
        self._watched.clear()
        self._targets.clear()
        self._paused.clear()
        self._epoll.close()
        return detached

    def _reconnect(self) -> bool:
        """Connect to the targets that are due. Return whether a target is still not connected."""
        missing, now = False, time.monotonic()
        for target in self._targets:
            if target.sock is None and target.due <= now:
                sock = _new_socket()
                try:
                    sock.connect(_address(target.name))
                except OSError as error:
                    sock.close()
                    if error.errno not in (errno.ECONNREFUSED, errno.EAGAIN):  # no process listens, or too many processes connect
                        raise LinkError(f"{self.link}: cannot connect: {error}") from error
                    target.due = now + RETRY
                else:
                    target.sock = sock
                    self._send_hello(sock, calls=True)
            missing = missing or target.sock is None
        return missing

    def _accept(self, listener: socket.socket) -> None:
        """Accept the waiting connections, and close connections of other users."""
        for _ in range(MOST_PENDING):
            try:
                sock, _ = listener.accept()
            except BlockingIOError:
                return
            except ConnectionError:  # the caller has given up
                continue
            except OSError as error:
                self._make_room(listener, error)
                return
            sock.setblocking(False)
            if len(pending := self._pending()) >= MOST_PENDING:
                self._drop(next(each for each in pending if not each.calls))
            self._send_hello(sock, calls=False)

    def _make_room(self, listener: socket.socket, error: OSError) -> None:
        """When no descriptor is free, drop accepted connections without a hello, and accept no connections for a moment."""
        for pending in self._pending():
            if not pending.calls:
                self._drop(pending)
        self._epoll.modify(listener.fileno(), 0)
        self._paused.append(listener)
        self._listens_again_at = time.monotonic() + RETRY
        self._warn(f"no process can connect at the moment: {error.strerror}; raise the limit (ulimit -n)")

    def _listen_again(self) -> bool:
        if time.monotonic() < self._listens_again_at:
            return False
        while self._paused:
            self._epoll.modify(self._paused.pop().fileno(), select.EPOLLIN)
        return True

    def _send_hello(self, sock: socket.socket, calls: bool) -> None:
        pid, uid = peer_process(sock)
        pending = _Pending(sock, calls, pid)
        self._watch(sock, pending)
        if uid != os.getuid():
            self._refuse(
                pending,
                f"it belongs to user {uid}, but this process belongs to user {os.getuid()}; both ends of a same-host "
                f"link must belong to the same user",
            )
            return
        with contextlib.suppress(OSError):  # the other end has gone; the poll will report it
            sock.send(self._hello.pack(), socket.MSG_NOSIGNAL)

    def _take_hello(self, pending: _Pending) -> None:
        try:
            packet = pending.sock.recv(4096)
        except BlockingIOError:
            return
        except OSError:
            packet = b""
        if not packet:
            self._drop(pending)
            return
        try:
            theirs = self._hello.fitting(packet)
        except LinkError as error:
            self._refuse(pending, str(error))
            return
        peer = self._make_peer(pending.sock, theirs)
        self._watched[pending.sock.fileno()] = peer
        self.peers.append(peer)
        self.seen += 1

    def _pending(self) -> list[_Pending]:
        """Return the connections over which no hello has come, the oldest first."""
        return [watched for watched in self._watched.values() if isinstance(watched, _Pending)]

    def _drop(self, pending: _Pending) -> None:
        self._forget(pending.sock)
        pending.sock.close()

    def _refuse(self, pending: _Pending, why: str) -> None:
        """Close a connection, and log a warning.

        If this end has connected, raise LinkError, because only one process can listen under a name.
        """
        self._drop(pending)
        refusal = f"process {pending.pid} at the other end is refused: {why}"
        if pending.calls:
            raise LinkError(f"{self.link}: {refusal}")
        self._warn(refusal)

    def _warn(self, what: str) -> None:
        if what not in self._told and len(self._told) < MOST_TOLD:
            self._told.add(what)
            log.warning("%s: %s", self.link, what)

    def _watch(self, sock: socket.socket, what: socket.socket | _Pending) -> None:
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
        raise ConfigError(
            f"'{name}': the name has {len(name.encode())} bytes; names of same-host links can have at most {LONGEST_NAME} bytes"
        )
    return f"\0highway/{os.getuid()}/{name}"

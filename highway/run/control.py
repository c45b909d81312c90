"""Find a running process of a role on this machine, and ask it to drain (to end its source and deliver the items in flight).

Each process listens on a socket with a name in Linux's abstract namespace. The name has no file, and disappears with the process. The name
consists of the user, the topology file, the role and the index of the replica. If another process on this machine already has this index,
the process uses the first free index above the indexes of the file's replicas. A process obeys only requests of its own user and of root.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import socket
import sys
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any, Self

from highway.errors import ConfigError
from highway.process.readable import readable
from highway.topology.process_spec import RoleKey
from highway.wire.address import peer_process

JOINED = 64  # maximum number of processes of a role on one machine, in addition to the replicas in the file

_DRAIN = b"drain"
_LARGEST = 4096


def _address(key: RoleKey, number: int) -> str:
    digest = hashlib.blake2s(f"{key.path}\0{key.role}".encode(errors="surrogateescape"), digest_size=8).hexdigest()
    return f"\0highway-role-{os.getuid()}-{digest}-{number}"


def _listen(address: str) -> socket.socket | None:
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    listener.setblocking(False)
    try:
        listener.bind(address)
    except OSError:  # another process listens under this name
        listener.close()
        return None
    listener.listen()
    return listener


def _received(connection: socket.socket) -> bytes:
    """Return the next message; empty if the other end has closed."""
    try:
        return connection.recv(_LARGEST)
    except OSError:
        return b""


class ControlServer:
    """Lets other processes ask this process to drain.

    The owner waits until some of ``sockets`` are readable, and then calls :meth:`poll`. Outside Linux, there are no sockets.

    Args:
        key: The role of the process.
        replica: The index of the replica in the file.
        on_drain: A function that is called at the first request to drain.
    """

    def __init__(self, key: RoleKey, replica: int, on_drain: Callable[[], None] = lambda: None) -> None:
        self.number: int | None = None
        """The index by which ``highway drain`` finds this process; ``None`` if ``highway drain`` cannot find it."""
        self.drains = False
        self._on_drain = on_drain
        self._listener: socket.socket | None = None
        self._clients: list[socket.socket] = []
        if sys.platform == "linux":
            for number in (replica, *range(key.replicas, key.replicas + JOINED)):
                if listener := _listen(_address(key, number)):
                    self.number, self._listener = number, listener
                    break

    @property
    def sockets(self) -> Sequence[socket.socket]:
        """Sockets to wait for."""
        return [self._listener, *self._clients] if self._listener else []

    def poll(self, ready: Collection[Any]) -> bool:
        """Serve the readable sockets. Return whether the process must drain."""
        for sock in self.sockets:
            if sock in ready:
                if sock is self._listener:
                    self._accept(sock)
                else:
                    self._receive(sock)
        return self.drains

    def answer(self, items: int, complete: bool) -> None:
        """Send all clients the number of delivered items, and whether all items were delivered."""
        for client in self._clients:
            with contextlib.suppress(OSError):  # the client did not wait for the answer
                client.send(json.dumps({"items": items, "complete": complete}).encode(), socket.MSG_NOSIGNAL)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        """Stop listening."""
        for sock in self.sockets:
            sock.close()

    def _accept(self, listener: socket.socket) -> None:
        with contextlib.suppress(OSError):  # the client has given up
            client, _ = listener.accept()
            client.setblocking(False)
            if peer_process(client)[1] in (os.getuid(), 0):
                self._clients.append(client)
            else:
                client.close()

    def _receive(self, client: socket.socket) -> None:
        if _received(client) != _DRAIN:
            self._clients.remove(client)
            client.close()
        elif not self.drains:
            self.drains = True
            self._on_drain()


@dataclass
class ControlClient:
    """A connection to the control server of a running process. The owner of the client must close ``connection``."""

    name: str
    number: int
    connection: socket.socket

    def ask(self) -> None:
        """Ask the process to drain, without waiting."""
        with contextlib.suppress(OSError):  # the process is already ending; wait() notices this
            self.connection.send(_DRAIN, socket.MSG_NOSIGNAL)

    def wait(self) -> tuple[int, bool] | None:
        """Wait until the process has ended.

        Returns:
            The number of delivered items, and whether all items were delivered; ``None`` if the process ended without an answer.
        """
        pid, _ = peer_process(self.connection)
        answer = self.answer()
        with contextlib.suppress(OSError), open(os.pidfd_open(pid)) as process:  # the process has already ended, or is in another container
            readable([process])
        return answer

    def answer(self) -> tuple[int, bool] | None:
        """Wait for the answer that the process sends when its pipeline has ended. Return the same values as :meth:`wait`."""
        if not (said := _received(self.connection)):
            return None
        answer = json.loads(said)
        return answer["items"], answer["complete"]


def find(key: RoleKey) -> list[ControlClient]:
    """Return the processes of a role that run on this machine and belong to this user.

    Raises:
        ConfigError: this is not Linux.
    """
    if sys.platform != "linux":
        raise ConfigError("running processes can be found only on Linux; on this system, send SIGTERM to the process")
    found = []
    for number in range(key.replicas + JOINED):
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            sock.connect(_address(key, number))
            is_ours = peer_process(sock)[1] == os.getuid()
        except OSError:
            is_ours = False
        if is_ours:
            single = key.replicas == 1 and number == 0
            found.append(ControlClient(key.role if single else f"{key.role}[{number}]", number, sock))
        else:
            sock.close()
    return found

"""Control messages between a pipeline and its process, separate from the items: requests and answers."""

from __future__ import annotations

import _thread
import os
import signal
import socket
from multiprocessing.connection import Connection
from typing import Any

from highway.children.pickling import pack, unpack
from highway.process import interrupt

LOOK = 1.0  # seconds between checks whether the parent lives; a forked process may hold the other end of the socket


class ControlClosed(Exception):
    """The other side is closed."""


class Control:
    """One side of a socket for pickled messages. Any thread may send, but only one thread may receive."""

    def __init__(self, sock: socket.socket) -> None:
        self._connection = Connection(sock.detach())
        self._sending = _thread.allocate_lock()

    def send(self, message: Any) -> None:
        """Send a message. Its arrays are not copied, and may be as large as memory allows.

        Raises:
            ControlClosed: the other end is closed.
        """
        frames = pack(message)
        try:
            with interrupt.held(), self._sending:  # the receiver would read a partial message as the start of the next message
                self._connection.send_bytes(len(frames).to_bytes(4, "little"))
                for frame in frames:
                    self._connection.send_bytes(frame)
        except OSError:
            raise ControlClosed from None

    def receive(self) -> Any:
        """Wait for a message and return it. Its arrays are writable.

        Raises:
            ControlClosed: the other end is closed, and no message is left.
        """
        try:
            count = int.from_bytes(self._connection.recv_bytes(), "little")
            frames = [bytearray(self._connection.recv_bytes()) for _ in range(count)]
        except (EOFError, OSError):
            raise ControlClosed from None
        return unpack(frames)

    def receive_from(self, parent: int) -> Any:
        """Receive a message in a child process. If its parent has ended, the child kills itself, which also ends its running stages."""
        while not self._connection.poll(LOOK):
            _expect(parent)
        try:
            return self.receive()
        except ControlClosed:
            _expect(parent)
            raise

    def close(self) -> None:
        """Close this end. Closing again does nothing."""
        self._connection.close()


def _expect(parent: int) -> None:
    if os.getppid() != parent:
        os.kill(os.getpid(), signal.SIGKILL)

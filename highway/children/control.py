"""Control messages (requests and answers) between a pipeline and the process that runs it. Items use other sockets."""

from __future__ import annotations

import _thread
import os
import signal
import socket
from multiprocessing.connection import Connection
from typing import Any

from highway.children.pickling import pack, unpack
from highway.process import interrupt

LOOK = 1.0  # seconds between checks that the parent lives; after its death, a process that it forked can keep the socket open


class ControlClosed(Exception):
    """The other end of the socket is closed."""


class Control:
    """One end of a socket for pickled messages. Any thread can send, but only one thread is allowed to receive."""

    def __init__(self, sock: socket.socket) -> None:
        self._connection = Connection(sock.detach())
        self._sending = _thread.allocate_lock()

    def send(self, message: Any) -> None:
        """Send a message. The arrays in the message are not copied, and their size is not limited.

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
        """Wait for a message and return it. The arrays in the message are writable.

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
        """Receive a message in a child process. If the parent has ended, kill this process, which also ends its running stages."""
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

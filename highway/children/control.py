"""What a pipeline and the process that it runs in say to each other besides items: requests, and answers to them."""

from __future__ import annotations

import _thread
import os
import signal
import socket
from multiprocessing.connection import Connection
from typing import Any

from highway.children.pickling import pack, unpack
from highway.process import script_interrupt

LOOK = 1.0  # seconds between two looks whether the parent lives: a process that it has forked may hold its end of the socket


class ControlClosed(Exception):
    """The other end is gone."""


class Control:
    """One end of a socket for pickled messages. Any thread may send, one may receive."""

    def __init__(self, sock: socket.socket) -> None:
        self._connection = Connection(sock.detach())
        self._sending = _thread.allocate_lock()

    def send(self, message: Any) -> None:
        """Send a message; its arrays are not copied, and as large as memory allows.

        Raises:
            ControlClosed: nobody can receive it.
        """
        frames = pack(message)
        try:
            with script_interrupt.held(), self._sending:  # the other end takes a part of a message for the begin of the next
                self._connection.send_bytes(len(frames).to_bytes(4, "little"))
                for frame in frames:
                    self._connection.send_bytes(frame)
        except OSError:
            raise ControlClosed from None

    def receive(self) -> Any:
        """Wait for a message; its arrays are writable.

        Raises:
            ControlClosed: no other comes.
        """
        try:
            count = int.from_bytes(self._connection.recv_bytes(), "little")
            frames = [bytearray(self._connection.recv_bytes()) for _ in range(count)]
        except (EOFError, OSError):
            raise ControlClosed from None
        return unpack(frames)

    def receive_from(self, parent: int) -> Any:
        """Do the same in a child process. It is killed when its parent is gone, as what runs in that process itself."""
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

"""A sender that a second thread can pause. The second thread can also send marks (:mod:`highway.wire.goodbye`), and check connections."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, Final

from highway.engine.context import here
from highway.wire.transports.protocol import Frame, Peers, TransportSender, deadline_of
from highway.wire.url import Link

SLICE: Final = 0.15  # maximum seconds that a thread holds the sender's lock; more than 0.1 s, because one wait of the socket takes 0.1 s
MARK: Final = 0.025  # maximum seconds to wait for room for a mark
LOOK_EVERY: Final = 1.0  # seconds between two checks of the connections while nothing is sent


class PausableSender:
    """A :class:`~highway.wire.transports.protocol.TransportSender` that a second thread can pause, and use to send marks.

    Attributes:
        is_paused: Whether the sending thread must wait. :meth:`pause` sets this flag, and the second thread resets it.
    """

    def __init__(self, sender: TransportSender) -> None:
        self.bound = sender.bound
        self._sender = sender
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._sent = 0
        self.is_paused = False

    def send(self, frames: Sequence[Frame], timeout: float | None = None) -> None:
        self._in_slices(self._send, (frames,), timeout)

    def send_to_each(self, frames: Sequence[Frame], receivers: int, timeout: float | None = None) -> None:
        for _ in range(receivers):
            self._in_slices(self._sender.send_to_each, (frames, 1), timeout)

    def attach(self, link: Link) -> None:
        with self._lock:
            self._sender.attach(link)

    def peers(self) -> Peers | None:
        with self._lock:
            return self._sender.peers()

    def unsent(self) -> int:
        with self._lock:
            return self._sender.unsent()

    def settle(self, timeout: float) -> None:
        with self._lock:
            self._sender.settle(timeout)

    def unread(self) -> bool:
        with self._lock:
            return self._sender.unread()

    def close(self, linger: float) -> None:
        if os.getpid() == self._pid:  # in a forked child, no thread would release the lock
            with self._lock:
                self._sender.close(linger)

    def pause(self) -> int:
        """Make the sending thread wait. Return the number of messages that the thread has sent."""
        self.is_paused = True
        with self._lock:  # so that the sending thread is not in the middle of a message
            return self._sent

    def mark(self, frames: Sequence[Frame]) -> None:
        """Send a mark over each connection that has room. Only the second thread calls this method."""
        with self._lock, contextlib.suppress(TimeoutError):
            peers = self._sender.peers()
            for _ in range(peers.live if peers else 0):
                self._sender.send_to_each(frames, 1, MARK)

    def _send(self, frames: Sequence[Frame], timeout: float | None) -> None:
        self._sender.send(frames, timeout)
        self._sent += 1

    def _in_slices(self, send: Callable[..., None], arguments: tuple[Any, ...], timeout: float | None) -> None:
        deadline = deadline_of(timeout)
        while True:
            left = max(0.0, deadline - time.monotonic())
            try:
                with self._lock:
                    if not self.is_paused:
                        return send(*arguments, min(SLICE, left))
            except TimeoutError:
                if left <= SLICE:
                    raise
                continue
            if not left:
                raise TimeoutError("nothing can be sent while a receiver leaves")
            with here().blocked():
                here().wait(0.002)  # poll, because the thread that ends the pause cannot wake this stage


class Caretaker(threading.Thread):
    """Checks a sender's connections while nothing is sent. Until the next check, ZeroMQ keeps 11 kB of memory for each closed connection.

    Args:
        sender: The sender. Other threads can use the sender at the same time.
    """

    def __init__(self, sender: PausableSender) -> None:
        super().__init__(name="highway:caretaker", daemon=True)
        self._sender, self._closed = sender, threading.Event()
        self.start()

    def run(self) -> None:
        while not self._closed.wait(LOOK_EVERY):
            self._sender.unsent()

    def close(self) -> None:
        """End the thread."""
        self._closed.set()
        self.join()

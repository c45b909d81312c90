"""What a transport offers: an end that sends frames, and an end that receives them. They are opened by the transport in a link's URL."""

from __future__ import annotations

import time
from collections.abc import Hashable, Sequence
from typing import Any, NamedTuple, Protocol

from highway.wire.url import Link

Frame = Any  # bytes, memoryview, numpy array or zmq.Frame: whatever memoryview() takes


def deadline_of(timeout: float | None) -> float:
    """Return when ``timeout`` seconds from now will be, by ``time.monotonic()``; for ``None`` that is never."""
    return float("inf") if timeout is None else time.monotonic() + timeout


class Peers(NamedTuple):
    """The other ends of a socket, as far as the transport can tell.

    Args:
        live: Connections that are open.
        seen: Connections that there have been.
        opened: Connections that there have been or are being made.
        strangers: Connections that were closed because the other end does not speak the transport's protocol; they count nowhere else.
    """

    live: int = 0
    seen: int = 0
    opened: int = 0
    strangers: int = 0


class SourceAddress(NamedTuple):
    """Where a message came from.

    Args:
        connection: What names the connection.
        host: The address of the sender's host; ``""`` for this one.
    """

    connection: Hashable
    host: str = ""


class TransportEnd(Protocol):
    """One end of a link. It is used by the thread that opened it, and in the process that opened it."""

    bound: list[str]
    """Addresses that peers can connect to, with the port that was really bound; empty if this end connects."""

    def attach(self, link: Link) -> None:
        """Open further addresses, beside those of the link that it was opened with and whose other settings they share.

        Raises:
            ConfigError: they cannot share a socket.
            LinkError: an address cannot be bound or connected.
        """

    def peers(self) -> Peers | None:
        """Return the connections, or ``None`` if the transport does not tell."""

    def close(self, linger: float) -> None:
        """Close; what has not left yet may do so within ``linger`` seconds, in the background."""


class TransportSender(TransportEnd, Protocol):
    """An end that sends."""

    def send(self, frames: Sequence[Frame], timeout: float | None = None) -> None:
        """Send a message of one or more frames, which nobody may change afterwards; wait while the receivers are behind.

        What it waits counts as waiting for room (:func:`highway.engine.context.Context.blocked`).

        Raises:
            TimeoutError: there was no room within ``timeout`` seconds.
            Cancelled: the stage that runs on this thread was cancelled.
        """

    def send_to_each(self, frames: Sequence[Frame], receivers: int, timeout: float | None = None) -> None:
        """Send a message to each receiver that is connected; ``receivers`` is how many are believed to be. Raises as :meth:`send`."""

    def unsent(self) -> int:
        """Return how many messages are known not to have left this process."""

    def settle(self, timeout: float) -> None:
        """Wait until nothing more is given to those of whom :meth:`peers` has said that they are gone; ``timeout`` seconds at most."""

    def unread(self) -> bool:
        """Say whether a receiver has still to read what would be lost if this end closed before."""


class TransportReceiver(TransportEnd, Protocol):
    """An end that receives."""

    def refuse(self) -> None:
        """Have the senders turn to other receivers, where the transport can tell them; what was sent before can still be received."""

    def recv(self, timeout: float | None = None) -> list[Frame]:
        """Wait for a message and return its frames, whose ``len()`` is their bytes; they stay valid as long as somebody refers to them.

        What it waits counts as waiting for input (:func:`highway.engine.context.Context.starved`).

        Raises:
            TimeoutError: nothing came within ``timeout`` seconds.
            Cancelled: the stage that runs on this thread was cancelled.
        """

    def source(self, frames: Sequence[Frame]) -> SourceAddress | None:
        """Return the connection that the last message came over; ``None`` if the transport does not tell."""

    def times_used(self, connection: Hashable) -> int:
        """Return how many connections have had this name: a number may be used again when its connection was closed."""


class Opener(Protocol):
    """What opens the ends of a transport: its package."""

    def open_sender(self, link: Link) -> TransportSender:
        """Return the end that sends, which listens or connects as the link says.

        Raises:
            ConfigError: this platform does not have the transport, or a name is too long.
            LinkError: an address cannot be bound or connected.
        """

    def open_receiver(self, link: Link) -> TransportReceiver:
        """Return the end that receives. Raises as :meth:`open_sender`."""

    def start_threads(self) -> None:
        """Start what runs beside the threads that use an end, while threads can still be started."""

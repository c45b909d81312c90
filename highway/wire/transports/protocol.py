"""The interface of a transport: the sending end, the receiving end, and the functions that open them."""

from __future__ import annotations

import time
from collections.abc import Hashable, Sequence
from typing import Any, NamedTuple, Protocol

from highway.wire.url import Link

Frame = Any  # bytes, memoryview, numpy array or zmq.Frame: anything that memoryview() takes


def deadline_of(timeout: float | None) -> float:
    """Return ``time.monotonic()`` plus ``timeout`` seconds; infinity for ``None``."""
    return float("inf") if timeout is None else time.monotonic() + timeout


class Peers(NamedTuple):
    """Counts of a socket's connections to other ends.

    Args:
        live: Number of open connections.
        seen: Number of connections so far, open or closed, whose handshake succeeded.
        opened: Number of connections so far, including connections before their handshake.
        strangers: Number of connections to programs that do not speak the transport's protocol. The other fields do not count these
            connections.
    """

    live: int = 0
    seen: int = 0
    opened: int = 0
    strangers: int = 0


class SourceAddress(NamedTuple):
    """The source of a message.

    Args:
        connection: Identifier of the connection.
        host: Address of the sender's host; ``""`` for this host.
    """

    connection: Hashable
    host: str = ""


class TransportEnd(Protocol):
    """One end of a link. Use the end only in the process and on the thread that opened it."""

    bound: list[str]
    """Addresses that peers can connect to, with the actual port; empty if this end connects."""

    def attach(self, link: Link) -> None:
        """Open the addresses of another link in addition to the current addresses. The settings of this end do not change.

        Raises:
            ConfigError: the URLs cannot share a socket.
            LinkError: an address cannot be bound or connected.
        """

    def peers(self) -> Peers | None:
        """Return the counts of connections, or ``None`` if the transport does not report connections."""

    def close(self, linger: float) -> None:
        """Close this end. Unsent messages are still sent in the background for ``linger`` seconds."""


class TransportSender(TransportEnd, Protocol):
    """An end that sends."""

    def send(self, frames: Sequence[Frame], timeout: float | None = None) -> None:
        """Send a message of one or more frames. If the receivers are slow, wait for room. Do not change the frames after this call.

        The statistics of the stage count the waiting time as waiting for room (:func:`highway.engine.context.Context.blocked`).

        Raises:
            TimeoutError: there was no room for the message within ``timeout`` seconds.
            Cancelled: the stage that runs on this thread was cancelled.
        """

    def send_to_each(self, frames: Sequence[Frame], receivers: int, timeout: float | None = None) -> None:
        """Send a message to each connected receiver.

        ``receivers`` is the expected number of receivers. Raises the errors of :meth:`send`.
        """

    def unsent(self) -> int:
        """Return the known number of messages that have not left this process."""

    def settle(self, timeout: float) -> None:
        """Wait at most ``timeout`` seconds until the transport gives no more messages to peers that have disconnected."""

    def unread(self) -> bool:
        """Return whether a receiver has unread messages that are lost if this end closes now."""


class TransportReceiver(TransportEnd, Protocol):
    """An end that receives."""

    def refuse(self) -> None:
        """If the transport can notify the senders, make them use other receivers. Messages that were sent before can still be received."""

    def recv(self, timeout: float | None = None) -> list[Frame]:
        """Wait for a message and return its frames. ``len(frame)`` is the size in bytes. Frames stay valid while they are referenced.

        The statistics of the stage count the waiting time as waiting for input (:func:`highway.engine.context.Context.starved`).

        Raises:
            TimeoutError: no message came within ``timeout`` seconds.
            Cancelled: the stage that runs on this thread was cancelled.
        """

    def source(self, frames: Sequence[Frame]) -> SourceAddress | None:
        """Return the source of ``frames``, the message that was received last; ``None`` if the transport does not report sources."""

    def times_used(self, connection: Hashable) -> int:
        """Return the number of connections that have had this identifier. Identifiers of closed connections can be reused."""


class Opener(Protocol):
    """Opens the ends of a link. The package of each transport has these functions."""

    def open_sender(self, link: Link) -> TransportSender:
        """Return a sending end that listens or connects as the link specifies.

        Raises:
            ConfigError: this platform does not support the transport, or a name is too long.
            LinkError: an address cannot be bound or connected.
        """

    def open_receiver(self, link: Link) -> TransportReceiver:
        """Return a receiving end that listens or connects as the link specifies. Raises the errors of :meth:`open_sender`."""

    def start_threads(self, link: Link) -> None:
        """Start the helper threads of an end early. Since Python 3.12, threads cannot start after the script has ended."""

"""The interface of a transport: a sending end and a receiving end, opened by the transport in a link's URL."""

from __future__ import annotations

import time
from collections.abc import Hashable, Sequence
from typing import Any, NamedTuple, Protocol

from highway.wire.url import Link

Frame = Any  # bytes, memoryview, numpy array or zmq.Frame: anything that memoryview() takes


def deadline_of(timeout: float | None) -> float:
    """Return the time ``timeout`` seconds from now, by ``time.monotonic()``; infinity for ``None``."""
    return float("inf") if timeout is None else time.monotonic() + timeout


class Peers(NamedTuple):
    """Counts of the other ends of a socket.

    Args:
        live: Open connections.
        seen: Connections so far.
        opened: Connections so far, and connections being established.
        strangers: Connections to programs that do not speak the transport's protocol. The other fields do not count them.
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
    """One end of a link. Use it only on the thread, and in the process, that opened it."""

    bound: list[str]
    """Addresses that peers can connect to, with the actual port; empty if this end connects."""

    def attach(self, link: Link) -> None:
        """Open the addresses of another link in addition to the current addresses. The other settings stay the same.

        Raises:
            ConfigError: the URLs cannot share a socket.
            LinkError: an address cannot be bound or connected.
        """

    def peers(self) -> Peers | None:
        """Return the connections, or ``None`` if the transport does not report them."""

    def close(self, linger: float) -> None:
        """Close. Unsent messages are still sent for ``linger`` seconds, in the background."""


class TransportSender(TransportEnd, Protocol):
    """An end that sends."""

    def send(self, frames: Sequence[Frame], timeout: float | None = None) -> None:
        """Send a message of one or more frames. Do not change the frames afterwards. If the receivers are slow, this waits.

        The wait counts as waiting for room (:func:`highway.engine.context.Context.blocked`).

        Raises:
            TimeoutError: there was no room for the message within ``timeout`` seconds.
            Cancelled: the stage that runs on this thread was cancelled.
        """

    def send_to_each(self, frames: Sequence[Frame], receivers: int, timeout: float | None = None) -> None:
        """Send a message to each connected receiver; ``receivers`` is their assumed number. Raises the errors of :meth:`send`."""

    def unsent(self) -> int:
        """Return the number of messages that are known to be in this process."""

    def settle(self, timeout: float) -> None:
        """Wait at most ``timeout`` seconds until the transport gives no more messages to peers that have gone."""

    def unread(self) -> bool:
        """Return whether a receiver has unread messages that would be lost if this end closed now."""


class TransportReceiver(TransportEnd, Protocol):
    """An end that receives."""

    def refuse(self) -> None:
        """Make the senders use other receivers, if the transport can notify them. Messages that they have sent can still be received."""

    def recv(self, timeout: float | None = None) -> list[Frame]:
        """Wait for a message and return its frames. ``len(frame)`` is its size in bytes. Frames stay valid while they are referenced.

        The wait counts as waiting for input (:func:`highway.engine.context.Context.starved`).

        Raises:
            TimeoutError: no message came within ``timeout`` seconds.
            Cancelled: the stage that runs on this thread was cancelled.
        """

    def source(self, frames: Sequence[Frame]) -> SourceAddress | None:
        """Return the connection of the last message; ``None`` if the transport does not report it."""

    def times_used(self, connection: Hashable) -> int:
        """Return the number of connections that have had this identifier: a new connection may reuse it."""


class Opener(Protocol):
    """Opens the ends of a transport. The package of each transport has these functions."""

    def open_sender(self, link: Link) -> TransportSender:
        """Return the sending end, which listens or connects as the link specifies.

        Raises:
            ConfigError: this platform does not support the transport, or a name is too long.
            LinkError: an address cannot be bound or connected.
        """

    def open_receiver(self, link: Link) -> TransportReceiver:
        """Return the receiving end. Raises the errors of :meth:`open_sender`."""

    def start_threads(self, link: Link) -> None:
        """Start the helper threads of an end, while threads can still be started."""

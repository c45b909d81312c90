"""The receiving end of a link: read items from a socket until all senders have ended, and count gaps and duplicates."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

from highway.errors import EndOfStream, FrameError
from highway.wire import codec
from highway.wire.codec import Message
from highway.wire.envelope import Envelope
from highway.wire.goodbye import Leave, has_back_channel
from highway.wire.sequence_numbers import Senders
from highway.wire.transports.opening import opener_of
from highway.wire.transports.protocol import Peers, SourceAddress, deadline_of
from highway.wire.url import Link, joined

log = logging.getLogger("highway")

CHECK_EVERY_AT_THE_END = 0.1  # seconds between two checks of the connections after a sender has ended
CHECK_EVERY = 1.0  # seconds between two checks of the connections before a sender has ended
# Seconds without a message before a warning, if no connected sender can send more. The interval doubles after each warning.
TELL_AFTER = 10.0
TELL_SILENCE_AFTER = 60.0  # seconds without a message before a warning, if a connected sender can send more
TELL_AT_LEAST = 600.0  # maximum seconds between two warnings

FOR_EVER = float("inf")

wait_for_senders: float | None = None
"""Maximum seconds that receivers of this process wait while no sender is connected. After this time, the stream ends.

``None``: no limit.
"""


class LinkReceiver:
    """The receiving end of a link. The constructor opens the socket. Use the receiver in a ``with`` block, on one thread.

    Args:
        link: The link to receive from.
        counters: Dict in which the receiver counts: :data:`~highway.wire.counters.LINK_COUNTERS`, ``received`` items, ``senders``,
            ``ended`` senders, and ``strangers`` (connections of programs that do not speak the link's protocol).

    Attributes:
        bound: Addresses that peers can connect to; empty if this end connects.
        transport_end: The receiving end of the transport, which provides the frames.

    Raises:
        ConfigError: the codec is unknown.
        LinkError: the socket cannot be bound or connected.
    """

    def __init__(self, link: Link, counters: dict[str, float]) -> None:
        self._link, self.counters = link, counters
        self._codec = codec.named(link.options.codec)
        self._senders = Senders(link, counters)
        self._leave: Leave | None = None
        self._over = False
        self._silence = _Silence(counters["messages"], time.monotonic())
        self.transport_end = opener_of(link.transport).open_receiver(link)
        self.bound = self.transport_end.bound

    def attach(self, link: Link) -> None:
        """Open the addresses of another link on the socket of this receiver.

        Raises:
            ConfigError: the URLs cannot share the socket.
            LinkError: an address cannot be bound or connected.
        """
        whole = joined([self._link, link])
        self.transport_end.attach(link)
        self._link = self._senders.link = whole
        self._over = False

    @property
    def connections(self) -> int:
        """Number of connections to senders so far, including closed connections; 0 if the transport does not report connections."""
        peers = self.transport_end.peers()
        return peers.seen if peers else 0

    def recv(self, timeout: float | None = None) -> Message:
        """Wait for the next item.

        Raises:
            EndOfStream: all senders have ended, or no sender came within :data:`wait_for_senders` seconds. Each later call also raises this
                error.
            TimeoutError: no message came within ``timeout`` seconds.
            FrameError: the message is malformed. The next call returns the next message.
        """
        deadline = deadline_of(timeout)
        while not self._over:
            frames = self._frames(deadline)
            if frames is None:
                break
            try:
                message = self._codec.decode(frames)
            except FrameError as error:
                self.counters["malformed"] += 1
                raise FrameError(f"{self._link}: message {self.counters['messages']:.0f}: {error}") from None
            envelope = message.envelope
            if envelope is None or not envelope.sender:
                self.counters["received"] += 1
                return message
            if envelope.mark:
                if self._leave is not None:
                    self._leave.found(envelope.sender, envelope.number)
                continue
            if not envelope.end:
                self._senders.take(envelope, self._source, frames)
                self.counters["received"] += 1
                return message
            source = self._source(envelope, frames)
            if self._senders.end(envelope, source, self.transport_end.times_used(source.connection)):
                self._over = self._enough and not self._link.bind
        self._over = True
        raise EndOfStream(f"{self._link}: the stream has ended")

    def recv_raw(self, timeout: float | None = None) -> list[Any]:
        """Return the undecoded frames of the next message. The message can be an end message.

        Raises the errors of :meth:`recv` except ``FrameError``.
        """
        frames = self._frames(deadline_of(timeout))
        if frames is None:
            raise EndOfStream(f"{self._link}: the stream has ended")
        return frames

    def _frames(self, deadline: float) -> list[Any] | None:
        """Wait for the next message and return its frames. Return ``None`` if enough senders have ended.

        Raises:
            TimeoutError: no message came before ``deadline``, a time of ``time.monotonic()``.
        """
        while True:
            left = FOR_EVER if deadline == FOR_EVER else max(0.0, deadline - time.monotonic())
            look = CHECK_EVERY if deadline == FOR_EVER or wait_for_senders is not None else FOR_EVER
            if self._senders.ended:
                look = CHECK_EVERY_AT_THE_END
            try:
                frames = self.transport_end.recv(min(look, left))
            except TimeoutError:
                self._senders.catch_up()
                if self.is_over():
                    return None
                if left <= look:
                    raise
                continue
            if self._link.topic and len(frames) % 2 != self._codec.single:
                frames = frames[1:]
            self.counters["messages"] += 1
            self.counters["bytes"] += sum(map(len, frames))
            return frames

    def leave(self) -> None:
        """If the link allows this, make the senders use other receivers. Messages that were sent before can still be received."""
        self.transport_end.refuse()
        if has_back_channel(self._link):
            self._leave = Leave()
            self.awaits_marks()

    def awaits_marks(self) -> bool:
        """Return whether to wait for marks. Call this method after :meth:`leave`.

        A *mark* is a message that tells a leaving receiver that it has read all earlier messages of the sender.
        """
        if self._leave is None:
            return False
        self._leave.go_on()
        senders = self._senders.unended()
        for name, known in senders.items():
            self._leave.tell(name, known.leave, known.host)
        return any(self._leave.waits_for(name) for name in senders)

    def untold(self) -> int:
        """Return the number of connected senders that could not be notified. The messages in transit from these senders are lost."""
        peers = None if self._leave is None else self.transport_end.peers()
        return 0 if peers is None or self._leave is None else max(0, self._unended(peers) - len(self._leave.marked))

    def close(self) -> None:
        """Close the socket."""
        self.transport_end.close(0)
        self._senders.close()
        if self._leave is not None:
            self._leave.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _source(self, envelope: Envelope, frames: Sequence[Any]) -> SourceAddress:
        """Return the source of a message. If the transport does not report sources, use the sender's name instead of the connection."""
        return self.transport_end.source(frames) or SourceAddress(envelope.sender)

    @property
    def _enough(self) -> bool:
        """Whether enough senders have ended, so that the receiver ends."""
        names, connections, wanted = self._senders.ended, self._senders.connections, self._link.options.senders
        if self._link.bind:
            return min(names, connections) >= (wanted or 1)
        # One sender may have bound several addresses.
        return names >= wanted if wanted else max(names, connections) >= len(self._link.locations)

    def is_over(self) -> bool:
        """Return whether no more messages will come. If more messages can come, log at growing intervals why the receiver waits."""
        peers = self.transport_end.peers()
        if peers is None:
            return self._link.bind and self._enough
        if peers.strangers:
            self.counters["strangers"] = peers.strangers
        unended = self._unended(peers)
        if self._link.bind and self._enough and not unended:
            if peers.seen > self._senders.connections:
                gone = peers.seen - self._senders.connections
                log.warning("%s: %d of %d senders disconnected without the end of their stream", self._link, gone, peers.seen)
            return True
        return self._wait_on(peers, unended > 0)

    def _unended(self, peers: Peers) -> int:
        """Return the number of open connections over which no end message has come yet.

        A closed connection is assumed to be the connection of a sender that has ended.
        """
        return max(0, peers.live - max(0, self._senders.connections - (peers.seen - peers.live)))

    def _wait_on(self, peers: Peers, may_come: bool) -> bool:
        """Log at growing intervals why the receiver waits.

        Return whether the receiver has waited for ``wait_for_senders`` seconds without a sender.
        """
        silence, now = self._silence, time.monotonic()
        if silence.messages != self.counters["messages"] or silence.may_come != may_come:
            self._silence = silence = _Silence(self.counters["messages"], now, TELL_SILENCE_AFTER if may_come else TELL_AFTER, may_come)
        waited = now - silence.since
        heard, ended = self.counters["senders"], self._senders.ended
        if wait_for_senders is not None and not may_come and waited >= wait_for_senders:
            log.warning(
                "%s: the stream ends, because no sender connected within %g s. %d senders had sent messages, and %d senders had ended",
                self._link,
                waited,
                heard,
                ended,
            )
            return True
        if waited >= silence.tell:
            silence.tell = waited + min(waited, TELL_AT_LEAST)
            wanted = self._link.options.senders
            log.warning(
                "%s: no message has arrived for %.0f s: %s; %d senders are connected, %d have sent messages, %d%s have ended. Ctrl-C or "
                "`highway drain` ends the wait. If no sender is connected, `highway run --wait SECONDS` limits the wait",
                self._link,
                waited,
                "the connected senders send no messages" if may_come else "waiting for a sender",
                peers.live,
                heard,
                ended,
                f" of senders={wanted}" if wanted else "",
            )
        return False


@dataclass
class _Silence:
    """A period without messages.

    Args:
        messages: Number of messages before the period.
        since: Start of the period.
        tell: Seconds after the start at which the next warning is due.
        may_come: Whether a connected sender could send a message.
    """

    messages: float
    since: float
    tell: float = TELL_AFTER
    may_come: bool = False

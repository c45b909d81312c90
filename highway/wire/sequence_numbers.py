"""Track the senders of a receiver: the numbers of their messages, and which senders have ended.

The memory is bounded: at most ``MOST`` senders are stored, each with the last ``WINDOW`` numbers. Only the first ``NAMED`` senders have
their own counters.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Hashable, Sequence
from functools import partial
from typing import Any, Final, TypeVar

from highway.engine.stage import Origin
from highway.wire.confirmation import ACK, CONNECTS, LAST_WORD, MOST_CHANNELS, MOST_WAITS, ReportChannel
from highway.wire.counters import start
from highway.wire.envelope import Envelope
from highway.wire.goodbye import call
from highway.wire.transports.protocol import SourceAddress
from highway.wire.url import Link

log = logging.getLogger("highway")

T = TypeVar("T")

MOST: Final = 10_000
NAMED: Final = 100
WINDOW: Final = 4096  # maximum stored numbers of a sender, one byte for each number
LABEL: Final = 64  # maximum characters of a host's or role's name


class SequenceNumbers:
    """The numbers of the messages that have come from one sender.

    Args:
        label: Name of the sender in messages and counters.
        warns: Whether to log a warning at the first fault.
        first: The first number received.
        leave, host: Port and host at which receivers notify the sender that they leave. The port is from the envelope (the metadata of a
            message).
        in_order: Whether the messages come in order. If true, a skipped number counts as missing immediately. If false (several connections
            to one sender), a number counts as missing after ``WINDOW`` later numbers or the end have come.
        channel: The connection for reports to the sender, if the sender accepts reports.
    """

    def __init__(
        self, label: str, warns: bool, first: int, leave: int | None, host: str, in_order: bool, channel: ReportChannel | None = None
    ) -> None:
        self.label, self.warns, self.leave, self.host, self.channel = label, warns, leave, host, channel
        self.next = 0  # the highest received number plus 1
        self._first, self._in_order = first, in_order
        self._settled = 0  # missing numbers below this number are already counted
        self._came = bytearray(WINDOW)

    def take(self, number: int) -> tuple[int, int, bool]:
        """Note the number of a message.

        Return the counts of missing numbers before and after ``first``, and whether the same number has come earlier.
        """
        if number < self.next:
            if self.next - number > WINDOW:  # too old to be stored
                return 0, 0, False
            again = bool(self._came[number % WINDOW])
            self._came[number % WINDOW] = 1
            return 0, 0, again
        missing = 0, 0
        if number > self.next or not self._in_order:
            missing = self._settle(number if self._in_order else number + 1 - WINDOW)
            if number - self.next >= WINDOW:
                self._came = bytearray(WINDOW)
            else:
                for skipped in range(self.next, number):
                    self._came[skipped % WINDOW] = 0
        self._came[number % WINDOW] = 1
        self.next = number + 1
        return *missing, False

    def end(self, number: int) -> tuple[int, int]:
        """Note the total number of messages. Return the counts of missing numbers before and after ``first``."""
        missing = self._settle(max(number, self.next))
        self.next = max(number, self.next)
        return missing

    def _settle(self, until: int) -> tuple[int, int]:
        """Count the missing numbers below ``until`` that were not counted yet. Return the counts before and after ``first``."""
        start = max(self._settled, self.next if self._in_order else 0)
        known = range(start, min(until, self.next))
        beyond = range(max(start, self.next), max(until, self.next))
        gone = [number for number in known if not self._came[number % WINDOW]]
        late = sum(number < self._first for number in gone) + max(0, min(beyond.stop, self._first) - beyond.start)
        self._settled = max(self._settled, until)
        return late, len(gone) + len(beyond) - late


class Senders:
    """The senders of one receiver.

    Args:
        link: The receiver's link.
        counters: Dict in which ``gaps``, ``duplicates``, ``late``, ``malformed``, ``senders`` and ``ended`` are counted.

    Attributes:
        ended: Number of senders that have ended. Senders with the option ``extra`` do not count.
        connections: Number of connections over which an end message has come.
    """

    def __init__(self, link: Link, counters: dict[str, float]) -> None:
        self.link, self._counters = link, counters
        self._numbers: dict[bytes, SequenceNumbers] = {}
        self._on: dict[Hashable, set[bytes]] = {}  # connection -> names of the senders whose first message came over this connection
        self._ended: dict[bytes, None] = {}
        self._ended_on: dict[Hashable, set[bytes]] = {}
        self._warned_of_ends = False
        self._own = os.urandom(8)
        self._channels: dict[bytes, ReportChannel] = {}
        self.ended = self.connections = 0
        start(counters)

    def take(self, envelope: Envelope, source: Callable[[Envelope, Sequence[Any]], SourceAddress], frames: Sequence[Any]) -> None:
        """Note a message. For a new sender, ``source`` is called to get the source of the message."""
        known = self._numbers.get(envelope.sender)
        if known is None:
            known = self._hear(envelope, source(envelope, frames))
        channel = known.channel
        if channel is not None:
            channel.taken += 1
            if channel.taken >= channel.due:
                channel.report()
        late, gaps, again = known.take(envelope.number)
        if late or gaps or again:
            self._count(known, envelope, late, gaps, again)

    def end(self, envelope: Envelope, source: SourceAddress, connections: int) -> bool:
        """Note an end message. Return whether the end message is accepted.

        An end message is accepted if its sender has sent messages, or if no other sender has used the same connection.

        Args:
            envelope: The envelope of the end message.
            source: The source of the end message.
            connections: The number of connections so far with the identifier ``source.connection``.
        """
        known = self._numbers.get(envelope.sender)
        if known is None:
            if len(self._on.get(source.connection, ())) >= connections:
                return self._refuse(envelope)
            known = self._hear(envelope, source)
        if envelope.number < known.next:
            log.warning(
                "%s: %s announced its end after %d messages, but message %d arrived",
                self.link,
                known.label,
                envelope.number,
                known.next - 1,
            )
        late, gaps = known.end(envelope.number)
        self._count(known, envelope, late, gaps, False)
        if envelope.sender not in self._ended:
            _keep(self._ended, envelope.sender, None)
            self.ended += not envelope.extra
            self._counters["ended"] = self.ended
        names = _keep(self._ended_on, source.connection, set())
        if envelope.sender not in names and len(names) < connections:
            names.add(envelope.sender)
            self.connections += 1
        if known.channel is not None:
            known.channel.end()
        return True

    def catch_up(self) -> None:
        """Send the reports that were not sent yet. Call this method while no message arrives."""
        for channel in self._channels.values():
            channel.catch_up()

    def close(self) -> None:
        """Notify the senders that this receiver closes. Call this method after the receiving end of the link is closed."""
        deadline = time.monotonic() + LAST_WORD
        for channel in self._channels.values():
            channel.close(max(0.0, deadline - time.monotonic()))

    def unended(self) -> dict[bytes, SequenceNumbers]:
        """Return a dict of the senders that have not ended. The keys are the names of the senders."""
        return {name: known for name, known in self._numbers.items() if name not in self._ended}

    def _refuse(self, envelope: Envelope) -> bool:
        self._counters["malformed"] += 1
        if not self._warned_of_ends:
            self._warned_of_ends = True
            log.warning(
                "%s: ignored the end of the stream of sender %s, because this sender has sent nothing over this connection. Further cases "
                "are counted as malformed, but not logged",
                self.link,
                _label(envelope),
            )
        return False

    def _hear(self, envelope: Envelope, source: SourceAddress) -> SequenceNumbers:
        self._counters["senders"] += 1
        is_named = self._counters["senders"] <= NAMED
        label, in_order = _label(envelope) if is_named else "others", len(self.link.locations) == 1
        channel = self._channel(envelope, source.host)
        known = SequenceNumbers(label, is_named, envelope.number, envelope.leave, source.host, in_order, channel)
        names = _keep(self._on, source.connection, set())
        if len(names) < MOST:
            names.add(envelope.sender)
        return _keep(self._numbers, envelope.sender, known)

    def _channel(self, envelope: Envelope, host: str) -> ReportChannel | None:
        """Return the connection for reports to a sender; ``None`` if the sender accepts no reports, or is a publisher."""
        for name in [name for name, channel in self._channels.items() if channel.is_over()]:
            self._channels.pop(name).close()
        if envelope.leave is None or self.link.fans_out or len(self._channels) >= MOST_CHANNELS:
            return None
        patience = CONNECTS if len(self._channels) < MOST_WAITS else 0.0
        channel = ReportChannel(ACK + envelope.sender + self._own, partial(call, envelope.sender, envelope.leave, host), patience)
        return self._channels.setdefault(envelope.sender, channel)

    def _count(self, known: SequenceNumbers, envelope: Envelope, late: int, gaps: int, again: bool) -> None:
        # A receiver that pulls gets only a share of a shared stream. A subscriber gets all messages, even from the tap of such a link.
        if envelope.shared and (not self.link.fans_out or envelope.end):
            late = gaps = 0
        for name, count in (("late", late), ("gaps", gaps), ("duplicates", int(again))):
            if count:
                self._counters[name] += count
                each = f"{name} from {known.label}"
                self._counters[each] = self._counters.get(each, 0) + count
        if (gaps or again) and known.warns:
            known.warns = False
            what = f"message {envelope.number} arrived twice"
            if gaps:
                end = f"the end, after {envelope.number} sent messages"
                what = f"{gaps} messages are missing before {end if envelope.end else f'message {envelope.number}'}"
            log.warning("%s: sender %s: %s; further cases are counted, but not logged", self.link, known.label, what)


def _keep(known: dict[Any, T], key: Hashable, value: T) -> T:
    """Return the value of a key. If the key is missing, store ``value``, and drop the oldest entry if there are ``MOST`` entries."""
    if key not in known:
        if len(known) >= MOST:
            del known[next(iter(known))]
        known[key] = value
    return known[key]


def _label(envelope: Envelope) -> str:
    origin = envelope.passport.origin if envelope.passport else Origin()
    return "/".join(filter(None, [origin.host[:LABEL], origin.role[:LABEL], envelope.sender.hex()[:8]]))

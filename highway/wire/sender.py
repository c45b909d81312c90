"""The sending end of a link: send numbered items over a socket, and announce the end.

``docs/reference/wire.md`` describes the guarantees, and how the end is announced. To *drain* a pipeline is to end it without
losing items: the source stops, and all items that have been read are delivered.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Sequence
from typing import Any, Self

import numpy as np

from highway.engine import batch
from highway.engine.context import here, in_stage
from highway.engine.stage import Passport
from highway.errors import LinkError
from highway.wire import codec, tally
from highway.wire.confirmation import Confirmations, Receiver
from highway.wire.envelope import Envelope
from highway.wire.goodbye import LeaveServer
from highway.wire.pausable import Caretaker, PausableSender
from highway.wire.tap import open_tap
from highway.wire.transports.opening import opener_of
from highway.wire.transports.protocol import Peers, TransportSender
from highway.wire.url import Link, joined

log = logging.getLogger("highway")

LOOK_EVERY = 0.5  # while a message cannot be sent: seconds between two checks whether the pipeline is drained
CHECK_EVERY = 0.01  # seconds between two checks of unsent messages and connections
TELL_AFTER = 10.0  # seconds of waiting for receivers before a warning
TELL_AGAIN = 1.0  # maximum seconds between two end messages; repeated, because a receiver without room misses an end message
TELL_READING_AFTER = 60.0  # seconds after the end message without progress of a receiver, before a warning
MOST_SILENT = 600.0  # seconds after the end message without progress of a receiver, before the sender stops waiting
FIRST_REPORT = 1.0  # maximum seconds to wait for the first report of a receiver


class LinkSender:
    """The sending end of a link. The constructor opens the socket. Use the sender in a ``with`` block, on one thread.

    Args:
        link: The link to send to.
        allow64: Whether arrays with 64-bit elements may be sent, unless :meth:`send` overrides it.
        made: The software and the host of this process, for the envelope (the metadata) of each message; empty by default.
        hears_leave: Whether receivers can announce that they leave, and report how many messages they have taken. If true, the sender
            starts a thread.

    Attributes:
        name: The sender's name in messages: random bytes.
        bound: Addresses that peers can connect to; empty if this end connects.
        transport_end: The sending end of the transport, which sends the frames.
        tap: The tap: a second socket from which viewers read copies of the messages. ``None`` if the link has no tap.

    Raises:
        ConfigError: the codec is unknown.
        LinkError: the socket cannot be bound or connected.
    """

    def __init__(self, link: Link, allow64: bool = False, made: tuple[str, ...] = (), hears_leave: bool = False) -> None:
        self._link, self._allow64, self._made = link, allow64, made
        self._codec = codec.named(link.options.codec)
        self.name = os.urandom(8)
        self._number = 0
        self._closed = False
        self._empty: Any = np.empty(0, np.uint8)  # the item of an end message: an empty batch, for peers that do not know end messages
        self.transport_end: TransportSender = opener_of(link.transport).open_sender(link)
        self.bound = self.transport_end.bound
        self._leave: LeaveServer | None = None
        self._confirmed = Confirmations()
        self._told_at, self._tell_after = 0.0, TELL_READING_AFTER
        self._caretaker: Caretaker | None = None
        hears_leave = hears_leave and not link.fans_out and link.transport.departure != "no" and self._codec.has_envelopes
        has_marks = link.transport.departure == "marks"
        if hears_leave or (link.bind and has_marks):
            pausable = PausableSender(self.transport_end)
            if has_marks:
                self.transport_end = pausable
            try:
                if hears_leave:
                    self._leave = LeaveServer(link, self.name, pausable, self._mark)
                    self._confirmed = self._leave.confirmed
                if link.bind and has_marks:
                    self._caretaker = Caretaker(pausable)
            except (OSError, RuntimeError) as error:  # RuntimeError: since Python 3.12, threads cannot start after the script has ended
                log.info("%s: receivers cannot announce that they leave, so messages to a leaving receiver can be lost: %s", link, error)
        self.tap = open_tap(link)

    def attach(self, link: Link) -> None:
        """Open the addresses of another link on this socket. Raises the errors of :meth:`highway.wire.receiver.LinkReceiver.attach`."""
        whole = joined([self._link, link])
        self.transport_end.attach(link)
        self._link = whole

    def wait_for_receivers(self) -> bool:
        """Wait until as many receivers are connected as the link requires. Return False if the pipeline is drained first."""
        wanted, told = self._link.options.receivers, time.monotonic() + TELL_AFTER
        while (peers := self.transport_end.peers()) is not None and peers.live < wanted:
            if time.monotonic() > told:
                log.warning("%s: waiting for receivers; %d of %d are connected", self._link, peers.live, wanted)
                told = float("inf")
            if here().draining:
                log.info("%s: the pipeline was drained before a receiver connected, so nothing was sent", self._link)
                return False
            _wait()
        return True

    @property
    def receivers(self) -> int:
        """Number of receivers that have been connected so far; 0 if the transport does not report connections."""
        peers = self.transport_end.peers()
        return peers.seen if peers else 0

    @property
    def strangers(self) -> int:
        """Number of connections that were refused because the other end does not speak the transport's protocol."""
        peers = self.transport_end.peers()
        return peers.strangers if peers else 0

    def send(
        self,
        item: Any,
        passport: Passport | None = None,
        *,
        infos: Sequence[str] | None = None,
        timeout: float | None = None,
        allow64: bool | None = None,
    ) -> bool:
        """Send an item. If the receivers are slow, wait until there is room. Do not change the item after this call.

        Returns:
            Whether to continue. False: nothing was sent, because the pipeline was drained before the first receiver connected.

        Raises:
            LinkError: the pipeline is drained, and no receiver connected or reconnected within ``linger_ms``, so items are lost.
            ItemError: the item cannot be sent, for example because a field has 64-bit elements or is too large. ItemError is a TypeError.
            TimeoutError: there was no room within ``timeout`` seconds.
        """
        if passport is not None:
            passport = passport._replace(times=(*passport.times, time.time()))
        port, shared = None if self._leave is None else self._leave.port, self._is_shared()
        envelope = Envelope("tuple", (), (), passport, self.name, self._number, shared, False, self._made, False, port)
        frames = self._codec.encode(item, envelope, self._allow64 if allow64 is None else allow64, infos)
        if not self._number:
            self._empty = _emptied(item)
        if not self._deliver(self._addressed(frames), timeout):
            return False
        if self.tap is not None:
            self.tap.offer(frames)
        self._number += 1
        return True

    def _deliver(self, frames: Sequence[Any], timeout: float | None) -> bool:
        """Send a message. If the pipeline is drained, wait at most ``linger_ms`` for a receiver to reconnect. Raise LinkError if none does.

        Return False if the message was not sent, and no item is lost: no receiver has ever connected, and this process has received
        nothing.
        """
        if timeout is not None or not in_stage():
            self.transport_end.send(frames, timeout)
            return True
        since = None
        while True:
            try:
                self.transport_end.send(frames, LOOK_EVERY)
                return True
            except TimeoutError:
                peers, now = self.transport_end.peers(), time.monotonic()
            if peers is None or peers.live or not here().draining:
                since = None
                continue
            if not (peers.seen or self._number or tally.here()[tally.RECEIVED]):
                log.info("%s: the pipeline was drained before a receiver connected, so nothing was sent", self._link)
                return False
            since = now if since is None else since
            if not peers.seen or now - since >= self._link.options.linger_ms / 1000:  # an earlier receiver may reconnect
                raise LinkError(
                    f"{self._link}: drained while no receiver was connected, so message {self._number} and all later messages were not "
                    f"sent; to wait for receivers before the first item, set receivers=1 or more in the URL or the link"
                )

    def finish(self) -> None:
        """Wait until all messages have left this process. If the link's option ``end`` is true, announce the end to the receivers.

        While a receiver is connected, there is no time limit. Without a receiver, the limit is ``linger_ms``. If receivers have reported
        their progress, and then take no messages for ``MOST_SILENT`` seconds, the sender stops waiting for their confirmation.

        Raises:
            LinkError: messages could not be delivered, or it is unknown whether messages have arrived. The error names their number.
        """
        self._drain()
        if self._link.options.end:
            options, shared, port = self._link.options, self._is_shared(), None if self._leave is None else self._leave.port
            envelope = Envelope(sender=self.name, number=self._number, shared=shared, end=True, extra=options.extra, leave=port)
            frames = self._codec.encode(self._empty, envelope, allow64=True)
            self._tell_end(frames)
            self._check_arrived()
            if self.tap is not None:
                with here().blocked():
                    self.tap.finish(frames)

    def close(self, linger: float | None = None) -> None:
        """Close the socket. Unsent messages are still sent in the background for ``linger`` seconds, by default the link's ``linger_ms``.

        If ``linger`` is not given, and there are unsent messages but no connected receiver, wait at most ``linger_ms`` for a receiver. If
        no receiver comes, log a warning.
        """
        if self._closed:
            return
        self._closed = True
        for helper in (self._leave, self._caretaker):
            if helper is not None:
                helper.close()
        if self.tap is not None:
            self.tap.close() if linger is None else self.tap.close(linger)
        if linger is None:
            linger = self._link.options.linger_ms / 1000
            deadline = time.monotonic() + linger
            while (unsent := self._lost()) and time.monotonic() < deadline:
                time.sleep(CHECK_EVERY)  # poll, because no transport signals when messages have left
            if unsent:
                log.warning("%s: %d messages were not delivered, because no receiver connected within %g s", self._link, unsent, linger)
        self.transport_end.close(linger)

    def _mark(self, number: int) -> Sequence[Any]:
        return self._codec.encode(self._empty, Envelope(sender=self.name, number=number, shared=True, mark=True), allow64=True)

    def _lost(self) -> int:
        peers = self.transport_end.peers()
        return 0 if peers and peers.live else self.transport_end.unsent()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self.close(None if kind is None else 0)

    def _addressed(self, frames: Sequence[Any]) -> Sequence[Any]:
        return [self._link.topic.encode(), *frames] if self._link.topic else frames

    def _is_shared(self) -> bool:
        if self._link.fans_out:
            return False
        if not self._link.bind:
            return len(self._link.locations) > 1
        peers = self.transport_end.peers()
        return peers is None or peers.opened > 1

    def _drain(self) -> None:
        linger, since = self._link.options.linger_ms / 1000, time.monotonic()
        while unsent := self.transport_end.unsent():
            peers = self.transport_end.peers()
            unreachable = 0 if peers is None else self._confirmed.unreachable(peers.live)
            if peers is not None and peers.live > unreachable:
                since = time.monotonic()
                if unreachable:  # messages to unreachable receivers cannot leave, and the other receivers need not wait for them
                    return
            elif time.monotonic() - since > linger:
                raise LinkError(
                    f"{self._link}: {unsent} messages were not delivered, because no receiver connected within "
                    f"linger_ms={self._link.options.linger_ms}; start a receiver, or raise linger_ms in the URL"
                )
            _wait()

    def _tell_end(self, frames: Sequence[Any]) -> None:
        peers = self.transport_end.peers()
        if peers is None:
            self.transport_end.send_to_each(self._addressed(frames), max(1, self._link.options.receivers))
            return
        linger = self._link.options.linger_ms / 1000
        told, live, again, calm = 0, peers.live, 0.0, 0
        deadline, interval = time.monotonic() + linger, min(max(linger / 2, 10 * CHECK_EVERY), TELL_AGAIN)
        # Wait for the first receiver, unless the pipeline was drained before the first message.
        waits = bool(self._number) or not here().draining
        # A publisher drops even end messages for a slow subscriber, so the publisher repeats the end message until the subscriber
        # disconnects.
        may_come = self._link.bind or len(self._link.locations) > 1 or self._link.fans_out
        self._told_at = time.monotonic()
        while (
            peers.live > self._confirmed.unreachable(peers.live)
            or (waits and not (peers.seen or self._link.fans_out))
            or self._is_cut_off(peers, told)
            or self._awaits_confirmation(peers)
        ):
            now, is_confirmed = time.monotonic(), self._is_confirmed(peers)
            is_due = peers.seen > told or (now > again and not is_confirmed)  # for new receivers, and again for skipped receivers
            if peers.live and is_due:
                heard, calm = self._tell(frames, peers.live), 0
                if heard and peers.seen > told:
                    told, self._told_at = peers.seen, now
                again = now + interval
            if peers.live != live:
                live, deadline = peers.live, now + linger
            # Receivers that have read the end do not read further end messages. unsent() comes first, because unsent messages become
            # unread.
            is_calm = is_confirmed or not (self.transport_end.unsent() or self.transport_end.unread())
            calm = calm + 1 if is_calm else 0
            is_over = (now > deadline and calm) or (not may_come and told and calm > 2)
            if is_over and not self._awaits_confirmation(peers):
                if not peers.seen:
                    log.warning("%s: the stream has ended, but no receiver connected within linger_ms to receive the end", self._link)
                elif self._is_cut_off(peers, told):
                    raise LinkError(
                        f"{self._link}: some of {self._number} messages may be lost: the last receiver disconnected before the end of the "
                        f"stream, and no receiver connected within linger_ms={self._link.options.linger_ms}; see the log of the receiver"
                    )
                return
            _wait()
            peers = self.transport_end.peers() or peers

    def _is_cut_off(self, peers: Peers, told: int) -> bool:
        """Return whether messages might be lost: no receiver got the end message, and a receiver disconnected without notice."""
        if told or peers.live or self._leave is None or here().draining:
            return False
        return peers.seen > self._leave.left

    def _is_confirmed(self, peers: Peers) -> bool:
        """Return whether all connected and reachable receivers have confirmed that they have read the end."""
        return 0 < peers.live <= self._confirmed.ended + self._confirmed.unreachable(peers.live)

    def _awaits_confirmation(self, peers: Peers) -> bool:
        """Return whether to wait for a receiver that has not confirmed the end or not reported yet. False if the pipeline is drained."""
        if self._leave is None or here().draining:
            return False
        linger, now = self._link.options.linger_ms / 1000, time.monotonic()
        if reading := self._confirmed.reading:
            silent = now - max(self._told_at, self._confirmed.heard_at)
            if silent > self._tell_after:
                self._tell_after = float("inf")
                log.warning("%s: the stream has ended; waiting until %s has received the end", self._link, _named(reading))
            return silent < (MOST_SILENT if peers.live else linger)
        # Other programs and earlier versions never connect to report. A receiver that reads connects within some milliseconds.
        patience = linger if self._link.options.peers == "highway" and peers.live else min(linger, FIRST_REPORT)
        unknown = peers.seen - self._confirmed.named
        if peers.live:
            unknown = peers.live - self._confirmed.connected - self._confirmed.unreachable(peers.live)
        return unknown > 0 and now - self._told_at < patience

    def _check_arrived(self) -> None:
        """Raise LinkError if a receiver was killed or cut off while messages were on their way to this receiver.

        If a launcher, such as ``highway run``, counts the messages of this process, or if the pipeline is drained, log a warning instead.
        """
        peers = self.transport_end.peers()
        with self._confirmed.lock:
            lost, reading, missing = self._confirmed.lost, self._confirmed.reading, self._number - self._confirmed.taken
        if not (peers and peers.live):
            lost, reading = [*lost, *reading], []
        if missing <= 0 or not (lost or reading):
            return
        how = "ended or disconnected before the end of the stream" if lost else f"has received nothing for {MOST_SILENT:.0f} s"
        text = (
            f"{self._link}: {missing} of {self._number} messages may be lost: {_named(lost or reading)} {how}; see the log of the receiver"
        )
        if lost and not (tally.is_shared() or here().draining):
            raise LinkError(text)
        if lost or not here().draining:
            log.warning(text)

    def _tell(self, frames: Sequence[Any], receivers: int) -> bool:
        try:
            self.transport_end.send_to_each(self._addressed(frames), receivers, 10 * CHECK_EVERY)
        except TimeoutError:
            return False  # the receivers are slow, and get the end message in the next round
        return True


def _named(receivers: Sequence[Receiver]) -> str:
    first = f"the receiver {receivers[0].label}"
    return first if len(receivers) == 1 else f"each of {len(receivers)} receivers ({', '.join(each.label for each in receivers[:8])})"


def _wait() -> None:
    with here().blocked():
        here().wait(CHECK_EVERY)


def _emptied(item: Any) -> Any:
    """Return an item with the same structure as ``item``, but without samples."""
    plain = [np.empty(0) if isinstance(value, (dict, tuple)) else value for value in batch.fields(item)]
    values = [np.frombuffer(value, np.uint8) if type(value) is bytes else np.asarray(value) for value in plain]
    return batch.rebuild(item, [np.empty((0, *value.shape[1:]), value.dtype) for value in values])

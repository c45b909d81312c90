"""Links to other processes and machines, over ZeroMQ."""

from __future__ import annotations

import itertools
import logging
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any

from highway.engine.cancel import check_cancelled
from highway.engine.component import Traits
from highway.engine.context import Context, here
from highway.engine.stage import Items, Stamped
from highway.errors import Cancelled, EndOfStream, FrameError, ItemError
from highway.images.software import Comparison, made_here
from highway.parameters.checks import checked
from highway.parameters.ranges import Range
from highway.wire import tally
from highway.wire.codec import named
from highway.wire.options import LinkOptions, PeerKind
from highway.wire.receiver import LinkReceiver
from highway.wire.sender import LinkSender
from highway.wire.transports.memory import writable
from highway.wire.transports.opening import opener_of
from highway.wire.url import Link, parse

log = logging.getLogger("highway")

LAST_CALL = 1.0  # seconds at most for taking what has arrived already, when the pipeline is drained
LEAVE = 20.0  # seconds at most for taking all that was sent, where the senders wait for it
AT_ONCE = 16  # items that are received between two looks at who has still to say that nothing more comes
QUIET = 0.02  # seconds without a message after which there is none on the way from the kernel any more


@checked
@dataclass
class ZMQSource:
    """Receive items from other processes.

    Ends when its senders have said that they ended (:class:`ZMQSink` does; stock tensorcom peers never end); when the pipeline is drained,
    with what has arrived. Passports travel with the items. Gaps and repetitions in what a sender numbers are counted in the ``counters`` of
    its stage, which have the addresses that are ``bound``, too; and warned of once.

    Args:
        url: Where from: ``tcp://host:port`` or ``ipc://path``, or with a scheme that says what socket and who binds, such as ``zsub://``
            (see :mod:`highway.wire.url`); several URLs, or one with braces, share a socket.
        bind: For plain URLs: whether this end binds; by default it connects.
        codec: ``"tensorcom"``, ``"tenbin"`` or ``"msgpack"``; as for ``senders``, an option of the URL goes first.
        senders: Senders that must have ended at least; 0 means one for each URL. If this end binds, all that are connected must have:
            give the number where a sender may start when others have ended already.
        timeout: Seconds to wait for an item, or ``None`` for ever.
        writable: Whether arrays are copies that may be written into, aligned to 64 bytes. By default they are read-only views of the
            message: numpy says ``assignment destination is read-only`` to who writes into them, and ``torch.from_numpy`` warns that they
            are not writable. Over tcp and ipc they begin where ZeroMQ has put them, at any address: hand them to TensorFlow or JAX
            without a copy (DLPack) only if ``writable``. Over ``+shm`` they are aligned as they are.
        budget_mb: Megabytes of messages that may wait at this end of each connection; by default 64. An option of the URL goes first.
        peers: ``"highway"`` to refuse senders that do not announce that they are highway; the other end must say the same.

    Attributes:
        link: What its URLs say.

    Yields:
        What was sent; arrays are read-only, unless ``writable``.

    Raises:
        ConfigError: the URL cannot be used as written.
        LinkError: the address cannot be bound (when running).
        TimeoutError: nothing came within ``timeout``.
        FrameError: a message cannot be decoded; with ``on_error="skip"`` it is counted and left out.
    """

    url: str | list[str]
    bind: bool | None = None
    codec: str = "tensorcom"
    senders: Annotated[int, Range(ge=0)] = 0
    timeout: float | None = None
    writable: bool = False
    budget_mb: Annotated[float | None, Range(gt=0)] = None
    peers: PeerKind = "any"
    link: Link = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        options = LinkOptions(codec=self.codec, senders=self.senders, budget_mb=self.budget_mb, peers=self.peers)
        self.link = _parsed(self.url, "receive", self.bind, options)

    def __highway__(self) -> Traits:
        return Traits(
            finishes=True,
            numbers_epochs=len(self.link.addresses) == 1 and not self.link.bind,  # in order only from a single sender
            skips_epochs=False,  # its senders make them
            on_demand=True,  # takes nothing from others before the sink, which may wait for its receivers, can hand it on
        )

    def __iter__(self, context: Context | None = None) -> Iterator[Any]:
        context = context or here()
        link, counters = self.link, context.counters(self)
        if not link.transport.is_senders_budget:
            counters["budget_mb"] = link.budget_mb
        with LinkReceiver(link, counters) as receiver:
            counters["bound"] = receiver.bound
            try:
                yield from self._items(receiver, self.timeout, context)
                return
            except Cancelled:
                if not context.finish():
                    raise
            rest = self._arrived(receiver, context)
        yield from rest  # with the socket closed, so that the senders turn to others

    def _items(self, receiver: LinkReceiver, timeout: float | None, context: Context) -> Iterator[Any]:
        counts, comparison, made = tally.here(), Comparison(self.link), None
        while True:
            check_cancelled()
            try:
                item, envelope, _ = receiver.recv(timeout)
            except EndOfStream:
                return
            except FrameError as error:
                counts[tally.RECEIVED] += 1
                context.report_error(error)
                continue
            counts[tally.RECEIVED] += 1
            if envelope and envelope.made != made and envelope.made:
                made = envelope.made
                comparison.note(made)
            counts[tally.SENDERS] = int(receiver.counters["senders"])
            if self.writable:
                item = writable(item)
            yield Stamped(item, envelope.passport) if envelope and envelope.passport else item

    def _arrived(self, receiver: LinkReceiver, context: Context) -> list[Any]:
        """Return what was sent to this receiver before its senders knew that it leaves.

        From senders that cannot be told, it is what has arrived: no more than the link's budget, since quick ones would go on for ever.
        """
        receiver.leave()
        most = receiver.counters["bytes"] + self.link.budget_mb * 1e6
        items: list[Any] = []
        now = since = awaited_at = time.monotonic()
        while now - since < LEAVE and now - awaited_at < LAST_CALL:
            awaited, wanted, now = receiver.awaits_marks(), len(items) + AT_ONCE, time.monotonic()
            awaited_at = now if awaited else awaited_at
            try:
                for item in itertools.islice(self._items(receiver, QUIET, context), AT_ONCE):
                    items.append(item)
                    receiver.counters["arrived"] = len(items)
            except TimeoutError:
                if awaited:
                    continue
                break
            if len(items) < wanted or (receiver.counters["bytes"] >= most and not awaited):  # the stream has ended, or goes on for ever
                break
        if untold := receiver.untold():
            receiver.counters["untold"] = untold
            log.warning(
                "%s: %d of the senders did not learn in time that this receiver leaves (they are not highway's, or cannot be reached, "
                "or had sent too much); what is on its way here from them is lost",
                self.link,
                untold,
            )
        return items


@checked
@dataclass
class ZMQSink:
    """Send items to other processes.

    When its input ends, it waits until everything has left, tells the receivers that nothing more will come, and waits for them to go:
    as long as it takes while one is behind, ``linger_ms`` while none is connected.

    Args:
        url: Where to; see :class:`ZMQSource`.
        bind: For plain URLs: whether this end binds; by default it does.
        codec: ``"tensorcom"``, ``"tenbin"`` or ``"msgpack"``; as for ``receivers`` and ``end``, an option of the URL goes first.
        allow64: Whether arrays with 64-bit elements may be sent.
        receivers: Receivers to wait for before the first item is sent, so that each gets its share, and its end.
        end: Whether to tell the receivers that the stream has ended. To a stock tensorcom peer that is a batch of no samples.
        budget_mb: Megabytes of messages that may wait at this end of each connection, by default 64; over ``+shm`` the memory that all of
            them may take, by default 256. An option of the URL goes first, as for ``tap``.
        tap: Address at which viewers may look at what is sent, such as ``ipc://@name`` or ``tcp://host:port``; by default none.
        extra: Whether it is there for some time only, so that receivers do not count it among the ``senders`` that must have ended.
        peers: ``"highway"`` to refuse receivers that do not announce that they are highway; the other end must say the same.

    Attributes:
        link: What its URLs say.

    Raises:
        ConfigError: the URL cannot be used as written.
        LinkError: the address cannot be bound, or the last messages could not be delivered (when running).
        ItemError: a field is no array, 64 bits wide without ``allow64``, or larger than ``max_mb``, or there are too many of them; with
            ``on_error="skip"`` the item is left out.
    """

    url: str | list[str]
    bind: bool | None = None
    codec: str = "tensorcom"
    allow64: bool = False
    receivers: Annotated[int, Range(ge=0)] = 0
    end: bool = True
    budget_mb: Annotated[float | None, Range(gt=0)] = None
    tap: str = ""
    extra: bool = False
    peers: PeerKind = "any"
    link: Link = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        given = {name: getattr(self, name) for name in ("codec", "receivers", "end", "budget_mb", "tap", "extra", "peers")}
        options = LinkOptions(**given)
        self.link = _parsed(self.url, "send", self.bind, options)

    def __highway__(self) -> Traits:
        return Traits(start_threads=opener_of(self.link.transport).start_threads)

    def consume(self, items: Items) -> None:
        link, counters = self.link, items.context.counters(self)
        counters["budget_mb"] = link.budget_mb
        with LinkSender(link, self.allow64, made_here(), hears_leave=True) as sender:
            counters["bound"] = sender.bound
            if not sender.wait_for_receivers():
                return
            try:
                if self._send_all(items, sender):
                    sender.finish()
            finally:
                tally.here()[tally.RECEIVERS] = sender.receivers
                if strangers := sender.strangers:
                    counters["strangers"] = strangers

    def _send_all(self, items: Items, sender: LinkSender) -> bool:
        """Send all items; say whether they were sent, and not given up before anybody came for the first one."""
        counts = tally.here()
        for item in items:
            counts[tally.SENT] += 1  # before it is sent: a process that is killed meanwhile may have sent it
            try:
                if not sender.send(item, items.passport):
                    counts[tally.SENT] -= 1
                    return False
            except BaseException as error:
                counts[tally.SENT] -= 1
                if not isinstance(error, ItemError):
                    raise
                items.context.report_error(error)
        return True


def _parsed(url: str | Sequence[str], direction: Any, bind: bool | None, defaults: LinkOptions) -> Link:
    link = parse(url, direction, bind, defaults=defaults)
    named(link.options.codec)
    opener_of(link.transport)  # before there is a pipeline: at the exit, sockets are closed by what is made here, pipelines before them
    return link

"""Send items to other processes and machines over ZeroMQ, receive such items, and read items from a queue.

A *link* connects senders and receivers. The *ends* of a link are its sockets. A *passport* is the metadata of an item: epoch, index, keys
and more. To *drain* a pipeline means to stop its source and to deliver all items that the source has read.
"""

from __future__ import annotations

import itertools
import logging
import queue
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
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

LAST_CALL = 1.0  # when drained: maximum seconds to read after the last mark (see ``LinkReceiver.awaits_marks``)
LEAVE = 20.0  # when drained: maximum seconds to read messages in total
AT_ONCE = 16  # maximum number of items between two checks of the senders
QUIET = 0.02  # seconds to wait for a message before the source assumes that no more messages have arrived


@checked
@dataclass
class ZMQSource:
    """Receive items from other processes.

    The source ends when its senders have announced their end. A :class:`ZMQSink` announces its end. Senders that use the package tensorcom
    do not, so the source then waits for more messages until it is stopped. If the pipeline is drained, the source first reads the messages
    that have already arrived. An item from a :class:`ZMQSink` keeps its passport. The ``counters`` of the stage count missing and repeated
    messages, and list the ``bound`` addresses. highway logs a warning for the first missing or repeated message.

    Args:
        url: Address: ``tcp://host:port`` or ``ipc://path``; or a URL such as ``zsub://host:port``. The scheme of such a URL determines the
            type of the socket, and whether the socket binds (see :mod:`highway.wire.url`). Several URLs, or a URL with braces, use one
            socket.
        bind: For plain URLs, whether this end binds its socket to the address. By default, it connects to the address.
        codec: ``"tensorcom"``, ``"tenbin"`` or ``"msgpack"``. Options in the URL override ``codec`` and ``senders``.
        senders: Number of senders that must end before the source ends. 0 means one sender if this end binds, and one sender for each URL
            if this end connects. If this end binds, the source also waits until all connected senders have ended. Pass the number of
            senders if a sender can start after all other senders have ended.
        timeout: Seconds to wait for an item, or ``None`` to wait indefinitely.
        writable: Whether arrays are writable copies that are aligned to 64 bytes. By default, arrays are read-only views of the message.
            Writing to a view raises ``assignment destination is read-only``, and ``torch.from_numpy`` warns. Views are aligned only over
            ``+shm``. TensorFlow and JAX copy arrays that are not aligned, so ``writable`` avoids a second copy there.
        budget_mb: Maximum megabytes of messages that wait in the receive buffer of each connection, by default 64. An option in the URL
            overrides this number.
        peers: With ``"highway"``, the source accepts only senders that identify themselves as highway. The senders must use the same
            option.
        topology: Identifies the topology file, which describes all pipelines of a run. highway sets this parameter. With
            ``peers="highway"``, processes of different topology files refuse each other.

    Attributes:
        link: The parsed URLs.

    Yields:
        The items that were sent. Arrays are read-only, unless ``writable`` is true.

    Raises:
        ConfigError: the URL is not valid.
        LinkError: the address cannot be bound (when running).
        TimeoutError: no item arrived within ``timeout``.
        FrameError: a message cannot be decoded. With ``on_error="skip"``, the message is counted and skipped.

    >>> sender = Pipeline([[np.arange(3, dtype=np.uint8)], ZMQSink("ipc://batches")])
    >>> sender.start()
    >>> list(Pipeline([ZMQSource("ipc://batches", timeout=30)]))
    [array([0, 1, 2], dtype=uint8)]
    >>> sender.stop()
    """

    url: str | list[str]
    bind: bool | None = None
    codec: str = "tensorcom"
    senders: Annotated[int, Range(ge=0)] = 0
    timeout: float | None = None
    writable: bool = False
    budget_mb: Annotated[float | None, Range(gt=0)] = None
    peers: PeerKind = "any"
    topology: str = ""
    link: Link = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        given = {name: getattr(self, name) for name in ("codec", "senders", "budget_mb", "peers", "topology")}
        options = LinkOptions(**given)
        self.link = _parsed(self.url, "receive", self.bind, options)

    def __highway__(self) -> Traits:
        return Traits(
            finishes=True,
            numbers_epochs=len(self.link.addresses) == 1 and not self.link.bind,  # with several senders, items are not in order
            skips_epochs=False,  # the senders control the epochs
            on_demand=True,  # while this pipeline's sink waits for receivers, this source takes no items from the senders
            start_threads=partial(opener_of(self.link.transport).start_threads, self.link),
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
            finally:
                tally.here()[tally.CONNECTIONS] = receiver.connections
        yield from rest  # the socket was closed before, so that the senders use other receivers

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
        """Return the items that were sent before the senders learned that this receiver leaves.

        Senders that cannot be notified continue to send. For such senders, stop after ``budget_mb`` megabytes.
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
            # The senders have ended, or the budget is reached.
            if len(items) < wanted or (receiver.counters["bytes"] >= most and not awaited):
                break
        if untold := receiver.untold():
            receiver.counters["untold"] = untold
            log.warning(
                "%s: %d senders were not notified that this receiver leaves, so their messages in transit are lost. Such a sender is not "
                "highway, cannot be reached, or had too many messages in transit",
                self.link,
                untold,
            )
        return items


@checked
@dataclass
class ZMQSink:
    """Send items to other processes.

    At the end of its input, the sink waits until all messages have been sent. It then notifies the receivers of the end, and waits until
    they have closed the link. While a receiver is connected and reads, the sink waits without a time limit. While no receiver is connected,
    the limit is the option ``linger_ms`` of the URL.

    Args:
        url: Address; see :class:`ZMQSource`.
        bind: For plain URLs, whether this end binds its socket to the address, which is the default, or connects to the address.
        codec: ``"tensorcom"``, ``"tenbin"`` or ``"msgpack"``. Options in the URL override ``codec``, ``receivers`` and ``end``.
        allow64: Whether arrays with 64-bit elements can be sent. Otherwise, they raise an error.
        receivers: Number of receivers that must be connected before the first item is sent. Then each of these receivers gets items, and is
            notified of the end.
        end: Whether to notify the receivers after the last item. For receivers that use the package tensorcom, the notification is a
            batch without samples.
        budget_mb: Maximum megabytes of messages that wait in the send buffer of each connection, by default 64. Over ``+shm``, this is the
            size of the shared memory for all messages, by default 256. Options in the URL override ``budget_mb`` and ``tap``.
        tap: An additional address, such as ``ipc://@name`` or ``tcp://host:port``, at which programs can look at sent items without
            receiving them. By default, there is no such address.
        extra: Whether this sink is an additional, temporary sender. Receivers do not include it in the number of ``senders`` that must end.
        peers: With ``"highway"``, the sink accepts only receivers that identify themselves as highway. The receivers must use the same
            option.
        topology: Identifies the topology file, which describes all pipelines of a run. highway sets this parameter. With
            ``peers="highway"``, processes of different topology files refuse each other.

    Attributes:
        link: The parsed URLs.

    Raises:
        ConfigError: the URL is not valid.
        LinkError: the address cannot be bound; the last messages cannot be delivered; or a receiver was killed or disconnected before it
            had read its messages (when running). If a launcher started the process, or if the pipeline is drained, the last case only logs
            a warning.
        ItemError: a field is not an array, has 64-bit elements without ``allow64``, or is larger than ``max_mb``; or there are too many
            fields. With ``on_error="skip"``, the item is skipped.

    >>> sender = Pipeline([[np.arange(3, dtype=np.uint8)], ZMQSink("ipc://batches")])
    >>> sender.start()
    >>> list(Pipeline([ZMQSource("ipc://batches", timeout=30)]))
    [array([0, 1, 2], dtype=uint8)]
    >>> sender.stop()
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
    topology: str = ""
    link: Link = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        given = {name: getattr(self, name) for name in ("codec", "receivers", "end", "budget_mb", "tap", "extra", "peers", "topology")}
        options = LinkOptions(**given)
        self.link = _parsed(self.url, "send", self.bind, options)

    def __highway__(self) -> Traits:
        return Traits(start_threads=partial(opener_of(self.link.transport).start_threads, self.link))

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
        """Send all items. Return whether they were sent, or ``False`` if the sink gave up because no receiver connected."""
        counts = tally.here()
        for item in items:
            counts[tally.SENT] += 1  # count before sending: if the process is killed while it sends, the item might arrive
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
    opener_of(link.transport)  # import the transport before a pipeline exists, so that sockets are closed after pipelines at exit
    return link


@checked
@dataclass
class FromQueue:
    """Yield the items of a queue until the queue returns ``EndOfStream`` (the class or an instance).

    Args:
        queue: A ``queue.Queue``, a ``multiprocessing.Queue``, or any object with the method ``get(timeout=seconds)``. If no item arrives in
            this time, ``get`` must raise ``queue.Empty``.

    >>> import queue
    >>> source = queue.Queue()
    >>> for item in (1, 2, EndOfStream):
    ...     source.put(item)
    >>> list(Pipeline([FromQueue(source)]))
    [1, 2]
    """

    queue: Any

    def __iter__(self) -> Iterator[Any]:
        while True:
            check_cancelled()
            try:
                item = self.queue.get(timeout=0.1)
            except queue.Empty:
                continue
            if item is EndOfStream or isinstance(item, EndOfStream):
                return
            yield item

"""Run maps whose workers have several items in flight, because they send the items elsewhere, such as to another process."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from typing import Any, Protocol

from highway.engine.channel import Slot
from highway.engine.resume import Marker
from highway.engine.running import RunningStage, returned
from highway.engine.stage import DROP, Passport, Stamped
from highway.engine.stats import BLOCKED, BUSY, STARVED, Meter
from highway.errors import EndOfStream

Outcome = tuple[BaseException | None, Any]
"""A pair: the error that an item raised (or ``None``), and the result of the item."""


class WorkerAhead(Protocol):
    """Sends the items of one worker elsewhere, and receives their outcomes."""

    @property
    def depth(self) -> int:
        """The number of items that should be in flight now, at least 1."""

    def send(self, items: Sequence[Stamped]) -> None:
        """Send items."""

    def receive(self) -> Iterator[Outcome]:
        """Wait for at least one outcome. Yield all outcomes that are ready, in the order of the items."""


def work_ahead(running: RunningStage, ahead: WorkerAhead, meter: Meter) -> None:
    """Run one worker of a map with ``Traits(ahead=...)`` until there are no more items."""
    _ItemsAhead(running, meter, ahead).work()


class _ItemsAhead:
    """The items in flight of one worker. The worker has taken these items from its input, and has not passed on their results.

    Each item in flight has a permit (room for one item) of the output channel (:mod:`highway.engine.channel`). If the stage keeps the
    order, the worker also reserves a slot (the item's place in the order) when it takes the item. If not, an epoch begins only after the
    previous epoch is done.
    """

    def __init__(self, running: RunningStage, meter: Meter, ahead: WorkerAhead) -> None:
        self._running, self._meter, self._ahead = running, meter, ahead
        self._flying: deque[tuple[Slot | None, Passport, Marker | None]] = deque()
        self._done: list[tuple[Slot | None, Any]] = []  # the results to pass on
        self._number = running.here.number
        self._depth = 1  # number of items for which both channels were enlarged
        self._epoch = 0  # the epoch of the last item, if the stage does not keep the order
        self._has_ended = False

    def work(self) -> None:
        """Take items and pass on their results until there are no more."""
        while self._flying or not self._has_ended:
            items: list[Stamped] = []
            self._take(items)
            self._meter.enter(BUSY)
            self._exchange(items)
        self._hand_on()

    def _take(self, items: list[Stamped]) -> None:
        """Take items, and add them to ``items``. If no item is in flight, wait for an item. Otherwise, take only items that are ready."""
        running, outbox, depth = self._running, self._running.outbox, self._ahead.depth
        for channel in (running.inbox, outbox):
            channel.grow(depth - self._depth)
        self._depth = depth
        while (room := depth - len(self._flying)) > 0 and not self._has_ended:
            waits = not self._flying
            if waits:
                running.idle.add(self._number)
                self._hand_on()
                self._meter.enter(BLOCKED)
                outbox.acquire()
                self._meter.enter(STARVED)
            elif running.idle and depth <= 2:  # a small depth means that each item takes long: leave the items to idle workers
                return
            permits = 1 if waits else outbox.acquire_some(room)
            taken: list[Stamped] = []
            if permits and running.turn.acquire(waits):  # if not, another worker waits for an item
                try:
                    taken = [running.inbox.get()] if waits else running.inbox.get_some(permits)
                    for stamped in taken:
                        self._begin(stamped, items)
                except EndOfStream:
                    self._has_ended = True
                finally:
                    running.idle.discard(self._number)
                    running.turn.release()
            if len(taken) < permits:
                outbox.release(permits - len(taken))
            if not taken:
                return

    def _begin(self, stamped: Stamped, items: list[Stamped]) -> None:
        """Put an item in flight. If it is a marker (:mod:`highway.engine.resume`), pass it on. If its epoch is skipped, drop it."""
        running, (item, passport) = self._running, stamped
        is_marker, ordered = type(item) is Marker, running.stage.ordered
        epoch = passport.epoch if running.numbers_epochs else 0
        while not ordered and self._flying and (is_marker or epoch != self._epoch):
            self._exchange(items)
            items.clear()
        if is_marker:
            running.last_marker = item
            self._hand_on()
            running.in_work.wait()
            running.outbox.append(stamped)
            return
        slot = running.outbox.reserve() if ordered else None
        if slot is None:
            if epoch != self._epoch:
                self._hand_on()
                self._epoch = epoch
            running.in_work.enter(epoch)
        if passport.epoch > running.context.skipped:
            self._flying.append((slot, passport, running.last_marker))
            items.append(stamped)
        else:
            running.hand_on(slot, DROP, self._meter)

    def _exchange(self, items: list[Stamped]) -> None:
        """Send items, pass on the results that are ready, and wait until at least one more item is finished.

        Results are passed on before the wait, because the wait releases the GIL for the thread that receives the results.
        """
        if not self._flying:
            return
        here = self._running.here
        self._ahead.send(items)
        self._hand_on()
        _, here.passport, here.marker = self._flying[0]  # for errors, and for a state that is requested meanwhile
        for error, value in self._ahead.receive():
            slot, passport, _ = self._flying.popleft()
            try:
                if error is not None:
                    raise error
                self._done.append((slot, returned(self._running, value, passport)))
            except Exception as caught:
                self._hand_on()  # before report_error(), because the error can end the run
                self._running.report_error(caught)
                self._done.append((slot, DROP))
            if self._flying:
                _, here.passport, here.marker = self._flying[0]

    def _hand_on(self) -> None:
        for slot, result in self._done:
            self._running.hand_on(slot, result, self._meter)
        self._done.clear()

"""The iterators that streams and sinks receive. A stream with ``per_epoch`` receives one iterator per epoch.

Between items, the iterators handle markers, which collect the states of the stages (:mod:`highway.engine.resume`).
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

from highway.engine.batch import nbytes
from highway.engine.channel import Together
from highway.engine.component import NotNowError, no_state
from highway.engine.resume import Marker, StageState
from highway.engine.running import RunningStage
from highway.engine.stage import Items, Passport, Stamped
from highway.engine.stats import Meter
from highway.errors import Cancelled, EndOfStream, PipelineError


class StageInput:
    """The input of a stream or sink: see :class:`highway.engine.stage.Items`."""

    epoch, runs = 0, True  # with ``per_epoch``: the current epoch of the stream, and whether the stream is within this epoch

    def __init__(self, running: RunningStage, meter: Meter, count: bool = False) -> None:
        self.passport, self.context = Passport(), running.context
        self._running, self._meter, self._count = running, meter, count
        self.waiting: Any = []
        self.numbered = 0  # the index of the next output that is yielded without a passport (metadata)
        self._dropped: list[Marker] = []  # markers that were received after the last marker that was passed on
        self.rest: Iterator[Stamped] = iter(())  # the remaining items of the last ``Together``

    @property
    def left_out(self) -> int:
        return sum(running.left_out.errors for running in self._running.before)

    def __iter__(self) -> StageInput:
        return self

    def __next__(self) -> Any:
        return self._handed_on(self._get())

    def _get(self) -> Stamped:
        """Wait for the next item of an epoch that is not skipped. Add the stage's state to the markers that come before this item."""
        running = self._running
        if running.demand is not None and not running.demand.is_wanted:
            running.demand.want()
        try:
            while True:
                came = next(self.rest, None)
                if came is None:
                    came = running.inbox.get(meter=self._meter, together=True)
                elif running.context.cancelled:
                    raise Cancelled
                if type(came) is Together:
                    self.rest = iter(came)
                elif type(came.item) is Marker:
                    self._dropped.append(came.item)
                    if add_state(running, came.item, self):
                        came.item.dropped += self._dropped[:-1]
                        self._dropped.clear()
                        running.outbox.put(came)
                    running.here.marker = came.item
                elif came.passport.epoch > running.context.skipped or running.traits.whole_epochs:
                    return came
        except EndOfStream:
            raise StopIteration from None

    def _handed_on(self, stamped: Stamped) -> Any:
        item, self.passport = stamped
        self._running.here.passport = stamped.passport
        if self._count:
            self._meter.items += 1
            self._meter.bytes += nbytes(item)
        return item


class InputByEpoch(StageInput):
    """The input of a stream with ``per_epoch``.

    It reads one item ahead, because only an item of the next epoch shows that an epoch has ended.
    """

    epoch = -1
    _ahead: Stamped | None = None

    def begin_next(self) -> bool:
        """Skip the rest of this epoch, and return whether there is a next epoch."""
        self.runs = False
        for _ in self:
            pass
        self.runs = True
        if self._ahead is None:
            return False
        self.epoch = self._ahead.passport.epoch
        return True

    def __next__(self) -> Any:
        stamped, self._ahead = self._ahead, None
        if stamped is None or stamped.passport.epoch <= self._running.context.skipped:
            stamped = self._get()
        if stamped.passport.epoch > self.epoch:
            self._ahead = stamped
            raise StopIteration
        return self._handed_on(stamped)


def together(items: Items) -> Iterator[list[Stamped]]:
    """Yield lists of items that arrived together, with their passports. ``items.passport`` belongs to the first item of a list."""
    for item in items:
        yield [Stamped(item, items.passport), *getattr(items, "rest", ())]


def add_state(running: RunningStage, marker: Marker, items: StageInput) -> bool:
    """Add the state of a source or stream to a marker.

    Args:
        running: The stage. This function must be called on the thread of the stage.
        marker: The marker that the stage received, or a new marker if the stage itself creates markers.
        items: The input of the stage.

    Returns:
        ``False`` if the run cannot be resumed at this point. ``True`` if the marker holds the state, or the reason why there is no state.
    """
    state, began = running.context.running[1], time.monotonic()
    if not items.runs:
        marker.states[running.number] = StageState(items.epoch, runs=False)
    elif state is None:
        marker.refused = marker.refused or no_state(running.stage.name)
    else:
        try:
            waiting = items.waiting() if callable(items.waiting) else items.waiting
            held = [stamped.passport for stamped in waiting]
            marker.states[running.number] = StageState(items.epoch, True, state.state(), held, items.numbered)
            marker.refused = marker.refused or running.context.refusal or running.cannot_make_again(held)
        except NotNowError:
            return False
        except PipelineError as error:  # a source inside the stage does not support states
            marker.refused = marker.refused or str(error)
        if marker.clock is not None:
            marker.clock.spent(time.monotonic() - began)
    return True

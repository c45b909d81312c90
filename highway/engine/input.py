"""The iterators that streams and sinks receive. A stream that restarts with each epoch receives one iterator per epoch."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

from highway.engine.batch import nbytes
from highway.engine.channel import Together
from highway.engine.component import NotNowError, no_state
from highway.engine.resume import Marker, StageState
from highway.engine.stage import Items, Passport, Stamped
from highway.engine.stats import Meter
from highway.engine.workers import StageWorkers
from highway.errors import Cancelled, EndOfStream, PipelineError


class StageInput:
    """The input of a stream or sink: bare items, and the passport of the last item."""

    epoch, runs = 0, True  # the current epoch of a stream that restarts with each epoch, and whether it is within that epoch

    def __init__(self, worker: StageWorkers, meter: Meter, count: bool = False) -> None:
        self.passport, self.context = Passport(), worker.context
        self._worker, self._meter, self._count = worker, meter, count
        self.waiting: Any = []
        self.numbered = 0  # the index of the next output without a passport
        self._dropped: list[Marker] = []  # markers since the last one that was passed on
        self.rest: Iterator[Stamped] = iter(())  # the remaining items of the last ``Together``

    @property
    def left_out(self) -> int:
        return sum(worker.left_out.errors for worker in self._worker.before)

    def __iter__(self) -> StageInput:
        return self

    def __next__(self) -> Any:
        return self._handed_on(self._get())

    def _get(self) -> Stamped:
        """Wait for the next item of an epoch that is not skipped. Add the stage's state to markers that come before it."""
        worker = self._worker
        if worker.demand is not None and not worker.demand.is_wanted:
            worker.demand.want()
        try:
            while True:
                came = next(self.rest, None)
                if came is None:
                    came = worker.inbox.get(meter=self._meter, together=True)
                elif worker.context.cancelled:
                    raise Cancelled
                if type(came) is Together:
                    self.rest = iter(came)
                elif type(came.item) is Marker:
                    self._dropped.append(came.item)
                    if add_state(worker, came.item, self):
                        came.item.dropped += self._dropped[:-1]
                        self._dropped.clear()
                        worker.outbox.put(came)
                    worker.here.marker = came.item
                elif came.passport.epoch > worker.context.skipped or worker.traits.whole_epochs:
                    return came
        except EndOfStream:
            raise StopIteration from None

    def _handed_on(self, stamped: Stamped) -> Any:
        item, self.passport = stamped
        self._worker.here.passport = stamped.passport
        if self._count:
            self._meter.items += 1
            self._meter.bytes += nbytes(item)
        return item


class InputByEpoch(StageInput):
    """The input of a stream that restarts with each epoch. It reads one item ahead: an item of the next epoch ends an epoch."""

    epoch = -1
    _ahead: Stamped | None = None

    def begin_next(self) -> bool:
        """Skip the rest of this epoch, and return whether there is another epoch."""
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
        if stamped is None or stamped.passport.epoch <= self._worker.context.skipped:
            stamped = self._get()
        if stamped.passport.epoch > self.epoch:
            self._ahead = stamped
            raise StopIteration
        return self._handed_on(stamped)


def together(items: Items) -> Iterator[list[Stamped]]:
    """Iterate over lists of items that arrived together, with passports. ``items.passport`` is the passport of the first item."""
    for item in items:
        yield [Stamped(item, items.passport), *getattr(items, "rest", ())]


def add_state(worker: StageWorkers, marker: Marker, items: StageInput) -> bool:
    """Add the state of a source or stream to a marker.

    Args:
        worker: The stage. Called on its thread.
        marker: The marker that the stage received, or a new one if markers start at the stage.
        items: The input of the stage.

    Returns:
        Whether the stage can be resumed at this point, or the marker tells why no state can be saved.
    """
    state, began = worker.context.running[1], time.monotonic()
    if not items.runs:
        marker.states[worker.number] = StageState(items.epoch, runs=False)
    elif state is None:
        marker.refused = marker.refused or no_state(worker.stage.name)
    else:
        try:
            waiting = items.waiting() if callable(items.waiting) else items.waiting
            held = [stamped.passport for stamped in waiting]
            marker.states[worker.number] = StageState(items.epoch, True, state.state(), held, items.numbered)
            marker.refused = marker.refused or worker.context.refusal or worker.cannot_make_again(held)
        except NotNowError:
            return False
        except PipelineError as error:  # a source inside the stage does not support states
            marker.refused = marker.refused or str(error)
        if marker.clock is not None:
            marker.clock.spent(time.monotonic() - began)
    return True

"""The code that runs on the worker threads of a stage. Each shape (source, map, stream, sink) has one function, its *body*."""

from __future__ import annotations

import threading
import time
import warnings
from collections.abc import Callable, Generator, Iterator, Sequence
from typing import Any, Protocol

from highway.engine.ahead import work_ahead
from highway.engine.channel import Together
from highway.engine.component import Shape, Traits, name_of
from highway.engine.context import enter, leave
from highway.engine.input import InputByEpoch, StageInput, add_state
from highway.engine.resume import Marker, MarkerClock, StageState, as_json
from highway.engine.running import RunningStage, completed, weight
from highway.engine.source import OpenSource
from highway.engine.stage import DROP, Lineage, Passport, Stamped
from highway.engine.stats import BUSY, IDLE, STARVED, Meter
from highway.engine.time_limit import at_work_for
from highway.errors import Cancelled, EndOfStream, PipelineError
from highway.process.threads import frame_of


class Reports(Protocol):
    """The methods by which a worker reports to its run."""

    def fail(self, error: BaseException) -> None: ...
    def finished(self, running: RunningStage) -> None: ...


def work(running: RunningStage, number: int, run: Reports) -> None:
    """Run the body of a stage on this thread until its input ends, or until it returns early, fails or is cancelled."""
    running.here.number, running.here.passport = number, None
    enter(running.context)
    meter = running.meters[number]
    meter.enter(BUSY)
    try:
        try:
            running.context.check()
            _BODIES[running.shape](running, meter)
        finally:
            leave()
    except Cancelled as error:
        if not (running.context.cancelled or running.context.draining):
            run.fail(running.located(RuntimeError(f"{running.stage.name} raised Cancelled, though nothing cancelled it"), error))
    except BaseException as error:
        run.fail(running.located(error))
    finally:
        meter.enter(IDLE)
        if running.has_ended():
            running.__dict__.pop("apply", None)  # watch() sets this function, which can refer to items
            running.outbox.close()
            run.finished(running)


def _source(running: RunningStage, meter: Meter) -> None:
    meter.enter(STARVED)
    running.context.wait_until(lambda: running.context.is_wanted)
    meter.enter(BUSY)
    source = OpenSource(running.stage.op, running.traits, running.context, running.resumed and running.resumed.state)
    items = StageInput(running, meter)  # a source has no input, but markers need the attributes of this object
    items.numbered = source.first if running.resumed is None else max(source.first, running.resumed.numbered)
    _emit(running, source, meter, items)


def _stream(running: RunningStage, meter: Meter) -> None:
    resumed = running.resumed
    if not (running.numbers_epochs and running.traits.per_epoch):
        _emit_stream(running, StageInput(running, meter), meter, resumed)
        return
    epochs = InputByEpoch(running, meter)
    if resumed is not None:
        epochs.epoch = resumed.epoch
        if resumed.runs:
            _emit_stream(running, epochs, meter, resumed)
    while epochs.begin_next():
        _emit_stream(running, epochs, meter)


def _emit_stream(running: RunningStage, items: StageInput, meter: Meter, resumed: StageState | None = None) -> None:
    items.waiting, items.numbered = ([], 0) if resumed is None else (running.remake(resumed.held), resumed.numbered)
    running.context.begin(running.stage.op, running.traits.new_state(), resumed and resumed.state)
    _emit(running, iter(running.stage.op.stream(items)), meter, items)


def _sink(running: RunningStage, meter: Meter) -> None:
    running.stage.op.consume(StageInput(running, meter, count=True))


def _map(running: RunningStage, meter: Meter) -> None:
    limit = running.limit
    op = running.own_copy() if running.stage.per_worker and limit is None else running.stage.op
    traits = Traits.of(op) if running.stage.per_worker else running.traits
    if limit is None and traits.ahead is not None and (ahead := traits.ahead(running.context)) is not None:
        work_ahead(running, ahead, meter)
        return
    several, ordered = len(running.meters) > 1, running.stage.ordered
    op, marker = running.with_context(op, running.context) if limit is None else limit.apply, None
    while True:
        running.outbox.acquire(meter)
        if several:  # this worker might wait while another worker takes an input
            meter.enter(STARVED)
        with running.turn:
            try:
                item, passport = running.inbox.get(meter=None if several else meter)
            except EndOfStream:
                return
            if type(item) is Marker:
                running.last_marker = item
                running.in_work.wait()
                running.outbox.append(Stamped(item, passport))
                continue
            if marker is not running.last_marker:
                marker = running.here.marker = running.last_marker
            slot = running.outbox.reserve() if several and ordered else None
            if not ordered:
                running.in_work.enter(passport.epoch if running.numbers_epochs else 0)
        if several:
            meter.enter(BUSY)
        running.here.passport = passport
        result = running.apply(item, passport, op) if passport.epoch > running.context.skipped else DROP
        running.hand_on(slot, result, meter)


def _emit(running: RunningStage, outputs: Iterator[Any], meter: Meter, items: StageInput) -> None:
    """Pass on the outputs of a source or stream. At the end, close the iterator on this thread.

    Args:
        running: The stage.
        outputs: The iterator of the outputs.
        meter: Counts the outputs.
        items: The input. ``items.numbered`` is the index of the next output without a passport.
    """
    clock, context, is_source = MarkerClock(), running.context, running.shape == "source"
    # The lineage (how an item was made) of an output whose inputs are unknown.
    made_of = None if is_source else Lineage(stage=running.number)
    begins = is_source and running.traits.numbers_epochs and running.resumed is None
    try:
        for output in outputs:
            if type(output) is Together:
                output = Together(_yielded(running, one) for one in output)
                passport = output[-1].passport
            elif type(output) is Stamped:
                output = _yielded(running, output)
                passport = output.passport
            else:
                last = items.passport
                passport = Passport(last.epoch, items.numbered, running.origin, (), last.times or (time.time(),), made_of)
                items.numbered += 1
                output = Stamped(output, passport)
            if begins:
                _expect_first_epoch(running, passport.epoch)
                begins = False
            if passport.epoch > context.skipped:
                count, size, more = weight(output)
                running.outbox.put(output, more, meter)
                meter.items += count
                meter.bytes += size
                running.here.passport = passport
            due = (is_source or context.is_source) and running.is_asked and context.running[1] is not None and clock.is_due(meter.items)
            if due and add_state(running, marker := Marker(clock), items):  # never between the items of a ``Together``
                running.outbox.put(Stamped(marker, passport))
                clock.begin(meter.items)
                running.here.marker = marker
            if running.ends_between:
                context.check()
    finally:
        if isinstance(outputs, (Generator, OpenSource)):
            outputs.close()


def _expect_first_epoch(running: RunningStage, epoch: int) -> None:
    """Raise PipelineError if a user's source begins with an epoch above 0, because loops over the earlier epochs would be empty."""
    is_own = running.traits.skips_epochs and type(running.stage.op).__module__.partition(".")[0] != "highway"
    if is_own and epoch > running.context.skipped + 1:
        raise PipelineError(
            f"{running.stage.name}: its first item belongs to epoch {epoch}; number epochs from 0. Each loop over the pipeline is one "
            f"epoch, so the first {epoch} loops would be empty. To begin in a later epoch, load a state"
        )


_BODIES: dict[Shape, Callable[[RunningStage, Meter], None]] = {"source": _source, "map": _map, "stream": _stream, "sink": _sink}


def _yielded(running: RunningStage, output: Stamped) -> Stamped:
    """Return an item that was yielded with a passport (metadata), and fill in the missing entries of the passport."""
    if not output.passport.times:
        output = completed(output, running.origin, (time.time(),))
    return Stamped(output.item, _made_by(running, output.passport)) if output.passport.made_of else output


def _made_by(running: RunningStage, passport: Passport) -> Passport:
    """Complete the lineage of a passport with the index of the stage that made the item."""
    inputs, part, stage = _lineage_of(running, passport)
    if stage is None:
        return Passport(*passport[:5], Lineage(inputs, part, running.number), passport.positions)  # twice as fast as _replace
    if running.shape == "source":  # the item comes from an inner pipeline, whose stages the lineage counts
        return passport._replace(made_of=Lineage((), as_json(passport), running.number))
    return passport


def _lineage_of(running: RunningStage, passport: Passport) -> Lineage:
    """Return the lineage of a passport. The old form ``(None, inputs, part)`` still works, with a warning, until version 0.3."""
    made_of: Any = passport.made_of
    if type(made_of) is Lineage:
        return made_of
    _, inputs, part = made_of
    warnings.warn(
        f"{running.stage.name}: made_of=(None, inputs, part) in a passport is now made_of=Lineage(inputs, part), from highway; highway "
        "accepts the tuple until version 0.3",
        FutureWarning,
        stacklevel=2,
    )
    return Lineage(inputs, part)


def at_work(stages: Sequence[RunningStage], threads: Sequence[threading.Thread]) -> str:
    """Describe what the threads (at most three) of the last working stage do. If no stage works, describe where the source waits."""
    busy = ((stage, [number for number, meter in enumerate(stage.meters) if meter.state == BUSY]) for stage in reversed(stages))
    stage, numbers = next((found for found in busy if found[1]), (stages[0], [0]))
    by_name, now = {thread.name: thread for thread in threads}, time.perf_counter()
    parts = []
    for number in numbers[:3]:
        meter = stage.meters[number]
        does = f"has worked for {now - meter.since:.3g} s" if meter.state == BUSY else "waits"
        parts.append(f"worker {number + 1} of {len(stage.meters)} {does}: {position(by_name[thread_name(stage.stage.name, number)])}")
    others = len(numbers) - len(parts)
    declared = stages[0].traits.ranks
    ranks = [f"rank {rank} of {world_size}: " for rank, world_size in (declared() if declared is not None else []) if world_size > 1]
    return f"{''.join(ranks[:1])}it waits for the stage {stage.stage.name!r}: {'; '.join(parts)}{f'; and {others} more' if others else ''}"


_ANEW = (
    "build a new pipeline for each pass. Give each pipeline other seeds (Pipeline(..., seed=) and the seeds of its stages): with the same "
    "seeds, all passes have the same order and random numbers"
)


def why_over(stages: Sequence[RunningStage], ended_first: RunningStage | None) -> str:
    """Return why a pipeline has ended, and the way out. ``ended_first`` is the stage that ended first, if it is known."""
    if ended_first is not None and ended_first.shape == "stream":
        name = ended_first.stage.name
        return f"the pipeline has ended: {name} needs no more items and has ended the pipeline; change this stage, or {_ANEW}"
    running = next(running for running in reversed(stages) if running.traits.repeats or running.number == 0)
    name, epochs = name_of(op := running.layers[-1]), running.traits.epochs
    if epochs is not None:
        return f"the pipeline has ended: {name} has yielded all its epochs ({epochs}); for more passes, raise this number, or {_ANEW}"
    if hasattr(type(op), "__next__"):
        return f"the pipeline has ended: its source, a {name}, yields its items only once; create a new {name} and {_ANEW}"
    is_repeat = "times" in getattr(type(op), "__dataclass_fields__", {})
    way_out = "raise times=" if is_repeat else "use a reader with epochs=, or Repeat(source, times=...)"
    return f"the pipeline has ended: {name} has no more items; for more passes, {way_out}, or {_ANEW}"


def thread_name(stage: str, number: int) -> str:
    return f"highway:{stage}:{number}"


def position(thread: threading.Thread) -> str:
    """Return a text that names the line of code at which a worker is."""
    frame = frame_of(at_work_for(thread))
    if frame is None:
        return "it is just ending"
    code = frame.f_code
    return f"it is in {code.co_name}, line {frame.f_lineno} of {code.co_filename}"

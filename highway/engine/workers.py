"""The code that runs on the worker threads of one stage, with a body for each of the four shapes."""

from __future__ import annotations

import itertools
import sys
import threading
import time
from collections.abc import Generator, Iterator, Sequence
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

from highway.engine.ahead import work_ahead
from highway.engine.channel import Channel, Slot, Together
from highway.engine.component import Shape, Stateless, Traits, layers
from highway.engine.context import Context, State, enter, leave
from highway.engine.input import EpochInWork, InputByEpoch, StageInput
from highway.engine.left_out import LeftOut
from highway.engine.outputs import returned, weight, yielded
from highway.engine.randomness import generator, stage_key
from highway.engine.resume import Marker, MarkerClock, Remaker, StageState, mark
from highway.engine.source import OpenSource, has_state, ranks_of
from highway.engine.stage import DROP, Origin, Passport, Stage, Stamped
from highway.engine.stats import BLOCKED, BUSY, IDLE, STARVED, Meter, StageStats
from highway.errors import Cancelled, ConfigError, EndOfStream, PipelineError
from highway.mistakes import InputWatch
from highway.parameters.hints import takes_context, takes_rng
from highway.process.cores import available_cores

if TYPE_CHECKING:  # because that module imports this one
    from highway.engine.threads import Run


class _Here(threading.local):
    """A worker's number and current item. Thread-local, because other threads make items of the stage again."""

    number = 0
    passport: Passport | None = None
    marker: Marker | None = None  # the last marker before the item


class StageWorkers:
    """One stage of a running pipeline: its queues, its meters and the code of its threads."""

    def __init__(self, stage: Stage, shape: Shape, count: int, inbox: Channel, outbox: Channel, origin: Origin) -> None:
        self.stage, self.shape, self.origin, self.traits = stage, shape, origin, stage.traits
        self.inbox, self.outbox = inbox, outbox
        self.meters = [Meter() for _ in range(count)]
        self.context = Context(self.report_error, self._report_state)
        self.layers = stage.layers
        self.body = {"source": self._source, "map": self._map, "stream": self._stream, "sink": self._sink}[shape]
        self.idle: set[int] = set()  # workers that wait for an input, if they can hold several items
        self.turn = threading.Lock()  # held while an input is taken and its output slot is reserved
        self._tally = threading.Lock()
        self.copying = threading.Lock()
        self._running = len(self.meters)
        self.here = _Here()
        self.left_out = LeftOut(stage)
        self.last_marker: Marker | None = None  # the last marker that a map has received
        self.before: list[StageWorkers] = []  # the stages before this one
        self.demand: threading.Event | None = None  # set when the sink asks for an item, if the source starts on demand
        self._ends_between = shape == "source" and not self.traits.finishes
        self._takes_rng = shape == "map" and takes_rng(stage.op)
        self._takes_context = shape == "map" and takes_context(stage.op)
        self.drops = stage.drops or self.traits.drops
        self.has_dropped = False  # whether a map that does not declare drops has returned DROP
        self.is_counted = False  # whether len(pipeline) was called: it counts every item of a map that does not declare drops
        self.numbers_epochs = False  # whether the passports of the inputs give their epochs
        self.in_work = EpochInWork(self.context)
        self.number = 0
        self.is_asked = True  # whether the pipeline can be asked for its state
        self.has_state = has_state(stage.op, self.traits)
        self.may_hold = self.traits.state not in (None, Stateless)  # for a stream: whether items may wait in it, or it counts them
        self.resumed: StageState | None = None  # the saved state of this stage, to resume from
        self.remaker: Remaker | None = None  # makes the items again that waited in the stage

    def use_seed(self, seed: int) -> None:
        """Derive all random numbers of the stage from the pipeline's seed. Called before the stage begins."""
        self.context.seed, self.context.key = seed, stage_key(seed, self.stage.name)

    def stats(self) -> StageStats:
        queued, capacity = (0, 0) if self.shape == "sink" else (len(self.outbox), self.outbox.capacity)
        counters, parameter = self.context.counted(self.layers), self.traits.workers_parameter
        about = {"shape": self.shape, "counters": counters, "parameter": parameter, "error": self.left_out.last}
        return StageStats.of(self.stage.name, self.meters, queued=queued, capacity=capacity, **about)

    def work(self, number: int, run: Run) -> None:
        """Run the stage's body on this thread until its input ends, it returns early, it fails, or it is cancelled."""
        self.here.number, self.here.passport = number, None
        enter(self.context)
        meter = self.meters[number]
        meter.enter(BUSY)
        try:
            try:
                self.context.check()
                self.body(meter)
            finally:
                leave()
        except Cancelled as error:
            if not (self.context.cancelled or self.context.draining):
                run.fail(self._located(RuntimeError(f"{self.stage.name} raised Cancelled, though nothing cancelled it"), error))
        except BaseException as error:
            run.fail(self._located(error))
        finally:
            meter.enter(IDLE)
            with self._tally:
                self._running -= 1
                last = self._running == 0
            if last:
                self.__dict__.pop("apply", None)  # of watch(): it may hold the data
                self.outbox.close()
                run.finished(self)

    # --- the four bodies ---

    def _source(self, meter: Meter) -> None:
        meter.enter(STARVED)
        while self.demand is not None and not self.demand.wait(0.1):
            self.context.check()
        meter.enter(BUSY)
        source = OpenSource(self.stage.op, self.traits, self.context, self.resumed and self.resumed.state)
        self._emit(source, meter, StageInput(self, meter), source.first)  # nothing comes before a source; this input's passport has epoch 0

    def _stream(self, meter: Meter) -> None:
        resumed = self.resumed
        if not (self.numbers_epochs and self.traits.per_epoch):
            self._emit_stream(StageInput(self, meter), meter, resumed)
            return
        epochs = InputByEpoch(self, meter)
        if resumed is not None:
            epochs.epoch = resumed.epoch
            if resumed.runs:
                self._emit_stream(epochs, meter, resumed)
        while epochs.begin_next():
            self._emit_stream(epochs, meter)

    def _emit_stream(self, items: StageInput, meter: Meter, resumed: StageState | None = None) -> None:
        items.waiting = self.remaker.items(resumed.held) if resumed is not None and self.remaker is not None else []
        self.context.begin(self.stage.op, self.traits.new_state(), resumed and resumed.state)
        self._emit(iter(self.stage.op.stream(items)), meter, items)

    def _sink(self, meter: Meter) -> None:
        self.stage.op.consume(StageInput(self, meter, count=True))

    def _map(self, meter: Meter) -> None:
        op = self._own_copy() if self.stage.per_worker else self.stage.op
        traits = Traits.of(op) if self.stage.per_worker else self.traits
        if traits.ahead is not None and (ahead := traits.ahead(self.context)) is not None:
            work_ahead(self, ahead, meter)
            return
        several, ordered = len(self.meters) > 1, self.stage.ordered
        op, marker = self.with_context(op, self.context), None
        while True:
            self.outbox.acquire(meter)
            if several:  # another worker may be waiting for an input
                meter.enter(STARVED)
            with self.turn:
                try:
                    item, passport = self.inbox.get(meter=None if several else meter)
                except EndOfStream:
                    return
                if type(item) is Marker:
                    self.last_marker = item
                    self.in_work.wait()
                    self.outbox.append(Stamped(item, passport))
                    continue
                if marker is not self.last_marker:
                    marker = self.here.marker = self.last_marker
                slot = self.outbox.reserve() if several and ordered else None
                if not ordered:
                    self.in_work.enter(passport.epoch if self.numbers_epochs else 0)
            if several:
                meter.enter(BUSY)
            self.here.passport = passport
            result = self.apply(item, passport, op) if passport.epoch > self.context.skipped else DROP
            self.hand_on(slot, result, meter)

    def hand_on(self, slot: Slot | None, result: Any, meter: Meter) -> None:
        """Pass on the result of a map, or ``DROP``: in its slot if the order is kept."""
        more = None
        if result is not DROP:
            count, size, more = weight(result)
            meter.items += count
            meter.bytes += size
        if slot is not None:
            self.outbox.fill(slot, result, more)
            return
        self.outbox.append(result, more)
        if not self.stage.ordered:
            self.in_work.leave()

    def _own_copy(self) -> Any:
        """Return a worker's copy of a map that is not thread-safe. The copy shares the map's counters."""
        with self.copying:  # copying may not be thread-safe either, so no worker calls the map itself
            copied = self.stage.copied()
        for part, original in zip(layers(copied), self.layers, strict=False):
            self.context.copied(part, original)
        return copied

    def with_context(self, op: Any, context: Context) -> Any:
        """Return the map as a function that needs no context."""
        return partial(op, context=context) if self._takes_context else op

    def apply(self, item: Any, passport: Passport, op: Any) -> Any:
        """Return the map's result for an item, with its passport, or ``DROP``."""
        try:
            result = op(item, generator(self.context.key, passport.epoch, passport.index)) if self._takes_rng else op(item)
            return returned(self, result, passport)
        except Exception as error:
            self.report_error(error)
            return DROP

    def watch(self) -> None:
        """Check on the map's first items whether the map writes into items that the stages before it still hold."""
        watch = InputWatch([(part, workers.stage.name) for workers in self.before for part in workers.layers])

        def apply(item: Any, passport: Passport, op: Any) -> Any:
            parts = watch.parts(item)
            result = StageWorkers.apply(self, item, passport, op)
            if watch.warn(parts, self.stage.name):
                self.__dict__.pop("apply", None)
            return result

        setattr(self, "apply", apply)  # noqa: B010  # mypy forbids the assignment; the method is back after a few items

    def _emit(self, outputs: Iterator[Any], meter: Meter, items: StageInput, first: int = 0) -> None:
        """Pass on the outputs of a source or stream, and close its iterator on its own thread when no more outputs are wanted.

        Args:
            outputs: The iterator of the outputs.
            meter: Counts the outputs.
            items: The input.
            first: Index of the first output without a passport.
        """
        numbers, clock, context, is_source = itertools.count(first), MarkerClock(), self.context, self.shape == "source"
        begins = is_source and self.traits.numbers_epochs and self.resumed is None
        try:
            for output in outputs:
                if type(output) is Together:
                    output = Together(yielded(self, one) for one in output)
                    passport = output[-1].passport
                elif type(output) is Stamped:
                    output = yielded(self, output)
                    passport = output.passport
                else:
                    last = items.passport
                    passport = Passport(last.epoch, next(numbers), self.origin, (), last.times or (time.time(),))
                    output = Stamped(output, passport)
                if begins:
                    self._expect_first_epoch(passport.epoch)
                    begins = False
                if passport.epoch > context.skipped:
                    count, size, more = weight(output)
                    self.outbox.put(output, more, meter)
                    meter.items += count
                    meter.bytes += size
                    self.here.passport = passport
                due = (is_source or context.is_source) and self.is_asked and context.running[1] is not None and clock.is_due(meter.items)
                if due and mark(self, marker := Stamped(Marker(clock), passport), items):  # not in the middle of a batch
                    clock.begin(meter.items)
                    self.here.marker = marker.item
                if self._ends_between:
                    context.check()
        finally:
            if isinstance(outputs, (Generator, OpenSource)):
                outputs.close()

    def _expect_first_epoch(self, epoch: int) -> None:
        """Raise PipelineError if the first item of a user's source has a later epoch, because the loops before it would be empty."""
        is_own = self.traits.skips_epochs and type(self.stage.op).__module__.partition(".")[0] != "highway"
        if is_own and epoch > self.context.skipped + 1:
            raise PipelineError(
                f"{self.stage.name}: its first item is of epoch {epoch}; number epochs from 0: each loop over the pipeline is one epoch, "
                f"and the first {epoch} would be empty. To begin in a later epoch, load a state"
            )

    # --- what the stage's code reports ---

    @property
    def keeps_count(self) -> bool:
        """Whether each input of this stage becomes exactly one output, in order, and no input waits in the stage."""
        if self.traits.one_to_one is not None:
            return self.traits.one_to_one == "in order" and self.stage.ordered
        return self.shape == "map" and self.stage.ordered and not self.drops and self.stage.on_error != "skip"

    def note_drop(self, returned: str = "DROP") -> None:
        """Record that the map has dropped an item.

        Raises:
            PipelineError: the map does not declare drops, and the number of its items matters.
        """
        if self.drops:
            return
        self.has_dropped = True
        world_size = self._world_size
        if self.is_counted or world_size > 1:
            counted = "len(pipeline), which list(pipeline) calls, counted this item"
            why = counted if self.is_counted else f"all {world_size} ranks must get equally many items"
            raise PipelineError(
                f"{self.stage.name} returned {returned}, which it does not declare: {why}; declare it: Stage(map, drops=True)"
            )

    def note_renumbered(self) -> None:
        """Raise PipelineError if the map changed the epoch or index of an item while several ranks depend on them."""
        if self._world_size > 1 and self.traits.one_to_one is None:
            raise PipelineError(
                f"{self.stage.name} returned an item with another epoch or index, by which {self._world_size} ranks share the samples; "
                "keep them: Stamped(item, passport._replace(keys=...)), or number the items in a stream"
            )

    @cached_property
    def _world_size(self) -> int:
        return max((world_size for _, world_size in ranks_of(self.before[0].stage.op, self.before[0].traits)), default=1)

    def _report_state(self, state: State) -> None:
        self.meters[self.here.number].enter({"busy": BUSY, "starved": STARVED, "blocked": BLOCKED}[state])

    def report_error(self, error: Exception) -> None:
        """Count and log an error if the stage skips errors; else raise it."""
        if self.stage.on_error != "skip" or isinstance(error, (ConfigError, PipelineError)):  # these errors do not belong to a single item
            raise error
        if error is self.left_out.fatal:  # the error is already on its way out of the component
            raise error
        self.meters[self.here.number].errors += 1
        self.left_out.add(error, self.here.marker, self._where)

    def _located(self, error: BaseException, cause: BaseException | None = None) -> BaseException:
        """Return the error with a note about its place. An error that looks like the end of a stream becomes a RuntimeError."""
        if isinstance(error, (EndOfStream, StopIteration, StopAsyncIteration, GeneratorExit)):
            what = f"{type(error).__name__}{f': {error}' if str(error) else ''}"
            cause, error = error, RuntimeError(f"{self.stage.name} raised {what}; to end a stream, return")
        if cause is not None:
            error.__cause__ = cause
        error.add_note(f"highway: {self._where()}")
        if isinstance(error, ValueError) and "read-only" in str(error):  # numpy's message
            error.add_note(
                "an array may be shared with others: write into array.copy(), or, if it comes from a link, say ZMQSource(writable=True)"
            )
        return error

    def _where(self) -> str:
        passport: Passport | None = self.here.passport
        parts = [f"in stage {self.stage.name!r}"]
        if len(self.meters) > 1:
            parts.append(f"worker {self.here.number + 1} of {len(self.meters)}")
        if passport is not None:
            which = {"source": "after epoch", "map": "at epoch"}.get(self.shape, "last input epoch")
            parts.append(f"{which} {passport.epoch}, item {passport.index}")
            if passport.keys:
                parts.append(f"keys {', '.join(passport.keys[:3])}{', ...' if len(passport.keys) > 3 else ''}")
            if passport.origin.host and passport.origin != self.origin:
                parts.append(f"made by {_origin(passport.origin)}")
        if self.origin.role:
            parts.append(f"role {_origin(self.origin)}")
        return ", ".join(parts)


def at_work(stages: Sequence[StageWorkers], threads: Sequence[threading.Thread]) -> str:
    """Return in words what the last stage that is working does on each of its threads, or else what the source waits for."""
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


def thread_name(stage: str, number: int) -> str:
    """Return the name of a worker's thread."""
    return f"highway:{stage}:{number}"


def position(thread: threading.Thread) -> str:
    """Return in words where a thread is."""
    frame = sys._current_frames().get(thread.ident or 0)
    if frame is None:
        return "it is just ending"
    code = frame.f_code
    return f"it is in {code.co_name}, line {frame.f_lineno} of {code.co_filename}"


def worker_count(stage: Stage, shape: Shape) -> int:
    """Return the number of threads of a stage: 1, or for a map the number that it asks for."""
    if shape != "map":
        return 1
    return stage.num_workers or (available_cores() if stage.traits.parallel else 1)


def _origin(origin: Origin) -> str:
    return f"{origin.role}[{origin.replica}] on {origin.host}" if origin.role else origin.host

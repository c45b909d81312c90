"""One stage of a running pipeline: its queues and meters, and the errors of its code. :mod:`highway.engine.bodies` runs the threads."""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property, partial
from itertools import repeat
from typing import Any

from numpy.random import Generator

from highway.engine.batch import weighed
from highway.engine.channel import Channel, Slot, Together
from highway.engine.component import Shape, layers
from highway.engine.context import Context, Limit, State
from highway.engine.randomness import generator, stage_key
from highway.engine.resume import Marker, StageState
from highway.engine.source import ranks_of, remake_of
from highway.engine.stage import DROP, Lineage, Origin, Passport, Positions, Several, Stage, Stamped
from highway.engine.stats import BLOCKED, BUSY, STARVED, Meter, StageStats
from highway.errors import ConfigError, EndOfStream, PipelineError
from highway.mistakes import InputWatch
from highway.parameters.hints import takes_context, takes_rng
from highway.process.cores import available_cores

log = logging.getLogger("highway")

LONGEST = 400  # maximum characters of an error's text in statistics
WARN_EVERY = 5.0  # seconds between two warnings of one stage about skipped errors

_STAMPED, _PASSPORT, _LINEAGE = (partial(tuple.__new__, record) for record in (Stamped, Passport, Lineage))  # faster than _make


class EpochInWork:
    """Separates the epochs if the workers do not keep the order: all workers finish an epoch before a worker begins the next epoch."""

    def __init__(self, context: Context) -> None:
        self._context, self._changed = context, context.changed
        self._epoch = self._workers = 0

    def enter(self, epoch: int) -> None:
        """Wait until all workers are done with earlier epochs. A worker calls this method before it begins an item."""
        if epoch != self._epoch:
            self.wait()
        with self._changed:
            self._epoch = epoch
            self._workers += 1

    def wait(self) -> None:
        """Wait until all workers are done."""
        self._context.wait_until(lambda: not self._workers)

    def leave(self) -> None:
        """Record that a worker is done with an item."""
        with self._changed:
            self._workers -= 1
            if not self._workers:
                self._changed.notify_all()


class LeftOut:
    """The errors that a stage has skipped.

    Attributes:
        errors: Number of errors in this run.
        fatal: The error that exceeded ``max_errors``.
        last: The text of the last error.
        earlier: Number of errors in the run that this run resumes. These errors count for ``max_errors``.
        behind: Number of errors after each :class:`highway.engine.resume.Marker`. The key ``None`` holds the errors before the first
            marker.
    """

    def __init__(self, stage: Stage) -> None:
        self._stage, self._lock = stage, threading.Lock()
        self.errors = self.earlier = 0
        self.fatal: Exception | None = None
        self.last = ""
        self.behind: Counter[Marker | None] = Counter()
        self._unreported = 0
        self._warned = -WARN_EVERY

    def add(self, error: Exception, marker: Marker | None, where: Callable[[], str]) -> None:
        """Count an error. Log a warning, but at most one in :data:`WARN_EVERY` seconds.

        Args:
            error: The error.
            marker: The last marker before the item that raised the error.
            where: A function that returns a text that describes where the error was raised, for the warning.

        Raises:
            Exception: ``error`` itself, if there are now more than ``max_errors`` errors.
        """
        with self._lock:
            self.errors += 1
            self.behind[marker] += 1
            self._unreported += 1
            errors, now = self.earlier + self.errors, time.monotonic()
            count, due = self._unreported, now - self._warned >= WARN_EVERY
            if due:
                self._warned, self._unreported = now, 0
        if self._stage.max_errors is not None and errors > self._stage.max_errors:
            self.fatal = error
            error.add_note(f"max_errors={self._stage.max_errors} is exceeded: this is error {errors}")
            raise error
        self.last = f"{type(error).__name__}: {error}"[:LONGEST]
        if due:
            what = f"{count} items, the last" if count > 1 else "an item"
            text = "; ".join([f"{type(error).__name__}: {error}", *getattr(error, "__notes__", [])])
            log.warning("%s skipped %s (%s): %s", self._stage.name, what, where(), text)


class _Here(threading.local):
    """A worker's index, and the passport (metadata) of its current item. Thread-local, because several threads call a map."""

    number = 0
    passport: Passport | None = None
    marker: Marker | None = None  # the last marker before the item


class RunningStage:
    """One stage of a running pipeline: its queues, its meters, and the errors and states that its code reports."""

    def __init__(self, stage: Stage, shape: Shape, count: int, inbox: Channel, outbox: Channel, origin: Origin) -> None:
        self.stage, self.shape, self.origin, self.traits = stage, shape, origin, stage.traits
        self.inbox, self.outbox = inbox, outbox
        self.meters = [Meter() for _ in range(count)]
        self.context = Context(self.report_error, self._report_state)
        self.layers = stage.layers
        self.idle: set[int] = set()  # indexes of the workers that wait for an input, for maps with ``Traits(ahead=...)``
        self.turn = threading.Lock()  # held while an input is taken and its output slot is reserved
        self._tally = threading.Lock()
        self.copying = threading.Lock()
        self._working = len(self.meters)
        self.here = _Here()
        self.left_out = LeftOut(stage)
        self.last_marker: Marker | None = None  # the last marker that a map has received
        self.before: list[RunningStage] = []  # the stages before this stage
        self.demand: Context | None = None  # for a sink: the context of a source that starts when the sink needs an item
        self.ends_between = shape == "source" and not self.traits.finishes
        self._takes_rng = shape == "map" and takes_rng(stage.op)
        self._takes_context = shape == "map" and takes_context(stage.op)
        self.drops = stage.drops or self.traits.drops
        self.has_renumbered = False  # whether a map has changed the epoch or index of an item
        self.has_dropped = False  # whether a map that does not declare drops has returned DROP
        self.is_counted = False  # whether len(pipeline) was called; if so, only maps that declare drops are allowed to drop
        self.numbers_epochs = False  # whether the passports of the inputs hold epochs
        self.in_work = EpochInWork(self.context)
        self.number = 0
        self.is_asked = True  # whether states can be requested: the pipeline does not end in a sink
        self.resumed: StageState | None = None  # the saved state of this stage, to resume from
        self.remake: Callable[[Sequence[Passport]], list[Stamped]] = lambda passports: []  # makes the waiting items again

    def use_seed(self, seed: int) -> None:
        """Derive all random numbers of the stage from the pipeline's seed. Call this method before the stage begins."""
        self.context.seed, self.context.key = seed, stage_key(seed, self.stage.name)

    def stats(self) -> StageStats:
        queued, capacity = (0, 0) if self.shape == "sink" else (len(self.outbox), self.outbox.capacity)
        counters, parameter = self.context.counted(self.layers), self.traits.workers_parameter
        about = {"shape": self.shape, "counters": counters, "parameter": parameter, "error": self.left_out.last}
        return StageStats.of(self.stage.name, self.meters, queued=queued, capacity=capacity, **about)

    def hand_on(self, slot: Slot | None, result: Any, meter: Meter) -> None:
        """Pass on the result of a map, or ``DROP``. If several workers keep the order, ``slot`` is the slot of the result."""
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

    def own_copy(self) -> Any:
        """Return a worker's copy of a map that is not thread-safe. The copy shares the map's counters."""
        with self.copying:  # one copy at a time, and no calls of the original map, because copying might not be thread-safe
            copied = self.stage.copied()
        for part, original in zip(layers(copied), self.layers, strict=False):
            self.context.copied(part, original)
        return copied

    @property
    def limit(self) -> Limit | None:
        """The time limit of each call of the map; ``None`` without a timeout, or if the map applies the timeout itself."""
        return None if self.traits.applies_timeout else self.context.limit

    def own_map(self, context: Context) -> Any:
        """Return the map for one thread, as a function that needs no context. If the map is not thread-safe, return a copy."""
        return self.with_context(self.own_copy() if self.stage.per_worker else self.stage.op, context)

    def with_context(self, op: Any, context: Context) -> Any:
        """Return the map as a function that needs no context."""
        return partial(op, context=context) if self._takes_context else op

    def apply(self, item: Any, passport: Passport, op: Any) -> Any:
        """Call the map with an item. Return the result together with its passport, or ``DROP``."""
        try:
            result = op(item, self.generator(passport)) if self._takes_rng else op(item)
            return returned(self, result, passport)
        except Exception as error:
            self.report_error(error)
            return DROP

    def generator(self, passport: Passport) -> Generator:
        return generator(self.context.key, passport.epoch, passport.index, passport.rows)

    def watch(self) -> None:
        """For the first items, check whether the map writes into objects to which earlier stages still refer."""
        watch = InputWatch([(part, running.stage.name) for running in self.before for part in running.layers])

        def apply(item: Any, passport: Passport, op: Any) -> Any:
            parts = watch.parts(item)
            result = RunningStage.apply(self, item, passport, op)
            if watch.warn(parts, self.stage.name):
                self.__dict__.pop("apply", None)
            return result

        setattr(self, "apply", apply)  # noqa: B010  # mypy forbids the assignment; the method is back after a few items

    def has_ended(self) -> bool:
        """Record that a worker has ended, and return whether all workers have ended."""
        with self._tally:
            self._working -= 1
            return self._working == 0

    # --- reports of the stage's code ---

    def cannot_make_again(self, waiting: Iterable[Passport]) -> str:
        """Return why inputs that wait in this stage cannot be made again when the run resumes; an empty text if they can."""
        remaining = [passport.made_of for passport in waiting if passport.made_of]
        while remaining:
            made_of = remaining.pop()
            maker = self.before[made_of.stage or 0]
            if not made_of.is_known or remake_of(maker.stage.op, maker.traits) is None:
                return (
                    f"state_dict: {self.stage.name} holds items of {maker.stage.name}, which does not declare how to make them again. "
                    f"Change {maker.stage.name}: if an item is its last input, or a part of its last input, yield Stamped(item, "
                    "items.passport). Otherwise, yield Stamped(item, Passport(..., made_of=Lineage(inputs, part))), and declare "
                    f"Traits(remake=...). If {maker.stage.name} contains a pipeline with a Cache, move the stages of that pipeline to the "
                    "outer pipeline"
                )
            remaining.extend(one.made_of for one in made_of.inputs if one.made_of)
        return ""

    def note_drop(self, returned: str = "DROP") -> None:
        """Record that the map has dropped an item.

        Raises:
            PipelineError: the map does not declare drops, and either ``len(pipeline)`` was called or there are several ranks.
        """
        if self.drops:
            return
        self.has_dropped = True
        world_size = self._world_size
        if self.is_counted or world_size > 1:
            counted = "len(pipeline) has counted this item (list(pipeline) also calls len)"
            why = counted if self.is_counted else f"all {world_size} ranks must have the same number of items"
            raise PipelineError(
                f"{self.stage.name} returned {returned}, but does not declare that it drops items, and {why}; use Stage(map, drops=True)"
            )

    def note_renumbered(self) -> None:
        """Record that the map has changed the epoch or index of an item. If the map declares ``one_to_one``, do nothing.

        Raises:
            PipelineError: several ranks divide the samples by epoch and index.
        """
        if self.traits.one_to_one is not None:
            return
        self.has_renumbered = True
        if self._world_size > 1:
            raise PipelineError(
                f"{self.stage.name} returned an item with another epoch or index, but {self._world_size} ranks divide the samples by these "
                "numbers; keep them: Stamped(item, passport._replace(keys=...)), or number the items in a stream"
            )

    @cached_property
    def _world_size(self) -> int:
        return max((world_size for _, world_size in ranks_of(self.before[0].stage.op, self.before[0].traits)), default=1)

    def _report_state(self, state: State) -> None:
        self.meters[self.here.number].enter({"busy": BUSY, "starved": STARVED, "blocked": BLOCKED}[state])

    def report_error(self, error: Exception) -> None:
        """Count and log an error if the stage skips errors; else raise the error."""
        if self.stage.on_error != "skip" or isinstance(error, (ConfigError, PipelineError)):  # these errors do not belong to a single item
            raise error
        if error is self.left_out.fatal:  # the component is already raising this error
            raise error
        self.meters[self.here.number].errors += 1
        self.left_out.add(error, self.here.marker, self.where)

    def located(self, error: BaseException, cause: BaseException | None = None) -> BaseException:
        """Return the error with a note about its place. Errors that look like the end of an iterator become a RuntimeError."""
        if isinstance(error, (EndOfStream, StopIteration, StopAsyncIteration, GeneratorExit)):
            what = f"{type(error).__name__}{f': {error}' if str(error) else ''}"
            cause, error = error, RuntimeError(f"{self.stage.name} raised {what}; to end a stream, return")
        if cause is not None:
            error.__cause__ = cause
        error.add_note(f"highway: {self.where()}")
        if isinstance(error, ValueError) and "read-only" in str(error):  # numpy's message
            error.add_note(
                "an array may be shared with others: write into array.copy(), or, if it comes from a link, use ZMQSource(writable=True)"
            )
        return error

    def where(self) -> str:
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


def returned(running: RunningStage, result: Any, passport: Passport) -> Any:
    """Return the result of a map with its passport, or ``DROP``. ``Several`` becomes a ``Together``, one entry of a channel.

    Raises:
        TypeError: the result is ``None``.
        PipelineError: the result is ``DROP`` or has no items, and :meth:`RunningStage.note_drop` raises an error.
    """
    if result is None:
        raise TypeError(f"{running.stage.name} returned None; return the item, or return DROP to drop it")
    if type(result) is Stamped:
        if result.passport[:2] != passport[:2]:
            running.note_renumbered()
        return completed(result, passport.origin, passport.times, passport.positions)
    if type(result) is Several:
        made_of = map(_LINEAGE, zip(repeat((passport,)), result.parts, repeat(running.number)))
        epoch, _, origin, _, times, *_ = passport
        positions = result.positions or repeat(None)
        passports = zip(repeat(epoch), result.indexes, repeat(origin), result.keys, repeat(times), made_of, positions)
        together = Together(map(_STAMPED, zip(result.items, map(_PASSPORT, passports), strict=True)))
        if not together and running.traits.stands_for is None:  # a reader plans its samples, and counts skipped samples itself
            running.note_drop("Several without items")
        return together or DROP
    if result is DROP:
        running.note_drop()
        return DROP
    return Stamped(result, passport)


def weight(result: Any) -> tuple[int, int, int]:
    """Return the number of items in a result, their bytes, and how many extra items of this size can wait in a channel."""
    if type(result) is not Together:
        return 1, *weighed(result.item)
    sizes, more = zip(*[weighed(item) for item, _ in result], strict=True)
    return len(sizes), sum(sizes), min(more)


def completed(given: Stamped, origin: Origin, times: tuple[float, ...], positions: Positions | None = None) -> Stamped:
    """Set the origin, times and positions of an item, unless the stage that made the passport has set them."""
    epoch, index, _, keys, own, made_of, rows = given.passport
    return given if own else Stamped(given.item, Passport(epoch, index, origin, keys, times, made_of, rows or positions))


def worker_count(stage: Stage, shape: Shape) -> int:
    """Return the number of threads of a stage. Only maps can have several threads."""
    if shape != "map":
        return 1
    return stage.num_workers or (available_cores() if stage.traits.parallel else 1)


def _origin(origin: Origin) -> str:
    return f"{origin.role}[{origin.replica}] on {origin.host}" if origin.role else origin.host

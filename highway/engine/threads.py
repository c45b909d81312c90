"""Run a pipeline: start the threads of its stages, connect the stages by channels, and stop the threads at an error or the end."""

from __future__ import annotations

import _thread
import contextlib
import logging
import os
import threading
import time
import traceback
from collections.abc import Callable
from functools import cached_property
from types import TracebackType
from typing import Any

from highway import mistakes
from highway.engine import cancel, script
from highway.engine.batch import MOST_MORE
from highway.engine.bodies import at_work, position, thread_name, why_over, work
from highway.engine.channel import Channel
from highway.engine.component import Shape
from highway.engine.context import here, in_stage
from highway.engine.hashing.identity import Identities
from highway.engine.running import RunningStage, worker_count
from highway.engine.source import Fed
from highway.engine.stage import Origin, Stage, Stamped
from highway.engine.stats import Meter, PipelineStats
from highway.engine.time_limit import TimeLimit
from highway.errors import PipelineError
from highway.process.cores import available_cores, cpu_seconds, machine_load, resident_bytes
from highway.process.threads import join_at_exit

log = logging.getLogger("highway")

STOPPED = "the pipeline was stopped; build a new one"
WAITING = 2  # maximum number of finished items that wait for the next stage; more if the items are small
STOP_TIMEOUT = 5.0  # seconds that stop() waits for a stage before it logs a warning
STALLED_AFTER = 60.0  # seconds between two warnings while a caller waits for an item
EXPLAIN_AFTER = 5.0  # if a caller waits for an item for this many seconds, a warning names pipelines that have not begun
INTERRUPT_POLL = 0.1  # seconds between two checks for a missed Ctrl-C, or for the end of an outer pipeline


class Run:
    """The threads and queues of a pipeline.

    The threads refer to the ``Run``, but not to the ``Pipeline``, so that the ``Pipeline`` can be garbage-collected while they run.
    """

    def __init__(self, stages: list[tuple[Stage, Shape]], seed: int | None, origin: Origin, stalled_after: float = STALLED_AFTER) -> None:
        self._stalled_after = stalled_after
        self.stages: list[RunningStage] = []
        self.output = Channel(1)  # the output of the last stage so far; this first channel is never used
        self.numbers_epochs = False  # whether passports hold the epoch of each item
        for stage, shape in stages:
            count = worker_count(stage, shape)
            outbox = Channel((stage.buffer_size or WAITING) + count, count, 0 if stage.buffer_size else MOST_MORE)
            inbox, self.output = self.output, outbox
            running = RunningStage(stage, shape, count, inbox, self.output, origin)
            running.context.limit = None if stage.timeout is None else TimeLimit(running, stage.timeout, stage.attempts)
            running.before, running.number = list(self.stages), len(self.stages)
            running.numbers_epochs = self.numbers_epochs
            self.numbers_epochs |= running.traits.numbers_epochs
            if self.stages:
                self.stages[-1].context.workers_behind = count
            self.stages.append(running)
        first, last = self.stages[0], self.stages[-1]
        for running in self.stages:
            running.is_asked = last.shape != "sink"
            if running.shape == "map" and running.traits.ahead is None and mistakes.log.isEnabledFor(logging.WARNING):
                running.watch()
        if last.shape == "sink" and first.traits.on_demand:
            first.context.is_wanted, last.demand = False, first.context
        self._seed = seed
        self.stopped = False
        self.background = False  # whether the pipeline runs in the background: errors are logged, because no caller sees them
        self.error: BaseException | None = None
        self._trace: TracebackType | None = None
        self._lock = threading.Lock()
        self._gate = threading.Lock()  # a bare lock, because Ctrl-C can leave the lock inside an Event held
        self._gate.acquire()
        self._opened = self._has_given = False
        self._ended_first: RunningStage | None = None  # the first stage that ended
        self.resumed_from: Any = None  # the state that this run resumes
        self.is_counted = False  # whether len(pipeline) was called
        self._unfinished = len(self.stages)
        self._threads: list[threading.Thread] = []
        self._started_at = self._ended_at = self._cpu_at_start = self._cpu_at_end = 0.0
        self._pid = os.getpid()

    def __str__(self) -> str:
        return f"Pipeline({' -> '.join(running.stage.name for running in self.stages)})"

    @property
    def seed(self) -> int:
        """The seed of the random numbers: the pipeline's own seed, or the seed of the pipeline that contains it."""
        return here().seed if self._seed is None else self._seed

    def use_seed(self) -> None:
        for running in self.stages:
            running.use_seed(self.seed)

    @property
    def has_begun(self) -> bool:
        return self._opened

    @property
    def has_ended(self) -> bool:
        return self._ended_at > 0

    def spawn(self) -> None:
        """Start the threads. They wait until :meth:`start` opens the gate.

        Raises:
            RuntimeError: the system allows this process no more threads. The threads that were started have ended.
        """
        try:
            with self._lock:
                if not self._threads and not self.stopped:
                    self._start_threads()
        except BaseException as error:  # including Ctrl-C
            if isinstance(error, RuntimeError):
                number = sum(len(running.meters) for running in self.stages)
                error.add_note(
                    f"{self} needs {number} threads, but cannot start them; set num_workers lower, or raise the limit (ulimit -u, or the "
                    "container's pids)"
                )
            self.stop()
            raise

    def _start_threads(self) -> None:
        for running in self.stages:
            if running.traits.start_threads is not None:
                running.traits.start_threads()
        for running in self.stages:
            for number in range(len(running.meters)):
                name = thread_name(running.stage.name, number)
                thread = threading.Thread(target=self._thread, args=(running, number), name=name, daemon=True)
                self._threads.append(thread)  # before start(), because Ctrl-C can come during start()
                join_at_exit(thread)
                thread.start()

    def start(self) -> None:
        if os.getpid() != self._pid:
            raise PipelineError(
                f"this pipeline belongs to process {self._pid}; a forked child process has no threads of its parent: build the pipeline in "
                "the child, or start children with multiprocessing's 'spawn'"
            )
        if self._opened:
            return
        script.forget(self)
        if not in_stage():  # in a stage, the outer pipeline records and compares all stages
            self.note_stages()
        self.spawn()
        self.use_seed()
        if not self._started_at:
            self._started_at, self._cpu_at_start = time.perf_counter(), cpu_seconds()
        self._open()

    def _open(self) -> None:
        with self._lock:
            if not self._opened:
                self._opened = True
                self._gate.release()

    def _thread(self, running: RunningStage, number: int) -> None:
        with self._gate:
            pass
        work(running, number, self)

    def take(self, timeout: float | None, meter: Meter | None = None, is_in_stage: bool = False) -> Stamped:
        """Return the next output: an item, or a marker of :mod:`highway.engine.resume`. ``meter`` counts the time of the wait.

        Raises:
            TimeoutError: no output came within ``timeout`` seconds.
            EndOfStream: the run has ended.
            Cancelled: the run has failed or was stopped.
        """
        if not self._has_given:
            if others := "" if is_in_stage else script.not_begun():
                return self._first(timeout, others, meter)
            self._has_given = True
        return self._without_limit(meter, is_in_stage) if timeout is None else self._get(timeout, meter)

    def _without_limit(self, meter: Meter | None, is_in_stage: bool) -> Stamped:
        waited = 0.0
        while not is_in_stage:
            try:
                return self._get(self._stalled_after, meter)
            except TimeoutError:
                waited = self._has_waited(waited, self._stalled_after)
        while True:  # this pipeline is part of an outer pipeline, whose end must interrupt the wait
            cancel.check_cancelled()
            with contextlib.suppress(TimeoutError), here().starved():
                return self._get(INTERRUPT_POLL, meter)
            waited = self._has_waited(waited, INTERRUPT_POLL)

    def _has_waited(self, before: float, seconds: float) -> float:
        """Return for how many seconds the caller has waited for an item. Log a warning every ``stalled_after`` seconds."""
        waited = before + seconds
        if waited // self._stalled_after > before // self._stalled_after:
            log.warning("%s has waited for an item for %.3g s; %s", self, waited, at_work(self.stages, self._threads))
        return waited

    def _first(self, timeout: float | None, others: str, meter: Meter | None) -> Stamped:
        """Wait for the first item. If it is late, warn with the text ``others``: pipelines that have not begun can be the cause."""
        try:
            item = self._get(EXPLAIN_AFTER if timeout is None else timeout, meter)
        except TimeoutError:
            if timeout is not None:
                raise TimeoutError(others) from None
            log.warning("%s has waited for an item for %g s; %s", self, EXPLAIN_AFTER, others)
            item = self._without_limit(meter, False)
        self._has_given = True
        return item

    def _get(self, timeout: float | None, meter: Meter | None = None) -> Stamped:
        return self.output.get(timeout, meter)  # type: ignore[no-any-return]

    def fail(self, error: BaseException) -> None:
        """Store the first error and cancel all stages."""
        with self._lock:
            first = self.error is None and not self.stopped
            if first:
                self.error, self._trace = error, error.__traceback__
        if first and self.background:
            log.error("a pipeline failed in the background: %s", _one_line(error))
        elif not first:
            log.warning("another error after the pipeline %s: %s", "was stopped" if self.stopped else "had failed", _one_line(error))
        self._cancel()

    def finished(self, running: RunningStage) -> None:
        """Handle the end of a stage: cancel the stages before it, because nothing takes their items."""
        self._cancel(upto=self.stages.index(running))
        with self._lock:
            self._ended_first = self._ended_first or running
            self._unfinished -= 1
            if self._unfinished == 0:
                self._note_time()

    def _note_time(self) -> None:
        if not self._ended_at:
            self._ended_at, self._cpu_at_end = time.perf_counter(), cpu_seconds()

    def _cancel(self, upto: int | None = None) -> None:
        for running in self.stages[:upto]:
            running.context.cancel()
        for running in self.stages[:upto]:  # last, because the woken threads check whether their stages were cancelled
            running.outbox.cancel()

    @property
    def renumbered(self) -> list[int]:
        """The indexes of the stages whose maps have changed the epoch or index of an item."""
        return [running.number for running in self.stages if running.has_renumbered]

    def raise_error(self) -> None:
        if self.error is not None:
            raise self.error.with_traceback(self._trace)

    def wait(self, is_interrupted: Callable[[], bool] = lambda: False) -> None:
        """Wait until all threads have ended.

        Args:
            is_interrupted: A function that returns whether Python has missed a Ctrl-C. If so, this method raises KeyboardInterrupt.
        """
        try:
            for thread in self._threads:
                while thread.is_alive():
                    if is_interrupted():
                        raise KeyboardInterrupt
                    thread.join(INTERRUPT_POLL)  # Python can miss a Ctrl-C that comes just before it begins to wait
        except BaseException:
            self.stop()
            raise
        self.raise_error()

    def skip(self, epoch: int) -> bool:
        """Skip the rest of an epoch and all earlier epochs. If the source cannot skip epochs, only return ``False``."""
        source = max((number for number, running in enumerate(self.stages) if running.traits.repeats), default=0)
        if not self.stages[source].traits.skips_epochs:
            return False
        for running in self.stages[max((running.number for running in self.stages if running.traits.whole_epochs), default=0) :]:
            running.context.skip(epoch)
        return True

    def length(self) -> int:
        """Return the number of items of an epoch.

        Raises:
            TypeError: a stage does not know the number.
        """
        length = 0
        for running in self.stages:
            length = _length(running, length)
        self.count()
        return length

    def count(self) -> None:
        """Make ``DROP`` an error in maps that do not declare drops, because the caller relies on the number of items."""
        self.is_counted = True
        for running in self.stages:
            running.is_counted = True

    def epochs(self) -> int | None:
        """Return the number of epochs of the pipeline, including empty epochs; ``None`` if the number is unlimited or unknown."""
        if any(running.shape == "stream" and not _keeps_epochs(running) for running in self.stages):
            return None
        return next((running.traits.epochs for running in reversed(self.stages) if running.traits.repeats or running.number == 0), None)

    def why_over(self, has_ended: bool) -> str:
        """Return why there are no more items, and the way out. ``has_ended``: whether the run ended by itself, not by ``stop()``."""
        return why_over(self.stages, self._ended_first) if has_ended else STOPPED

    @cached_property
    def snapshot(self) -> Identities:
        """The identities (hashes) of the stages, recorded when the run begins, or when a state is first saved or loaded."""
        return Identities(self.stages)

    def note_stages(self) -> None:
        """If states can be requested, record the identities of the stages now, before a stage changes its own attributes."""
        first = self.stages[0]
        if first.is_asked and not isinstance(first.stage.op, Fed):
            self.snapshot  # noqa: B018

    def identities(self) -> dict[str, Any]:
        """Return the hashes of each stage and of its data, by the stage's name."""
        return self.snapshot.identities()

    def drain(self) -> None:
        for running in self.stages:
            running.context.drain(interrupt=running is self.stages[0])

    def stop(self) -> None:
        script.forget(self)
        with self._lock:
            self.stopped = self.stopped or self._unfinished > 0
        self._cancel()
        self._open()
        self.join()

    def join(self) -> None:
        deadline = time.monotonic() + STOP_TIMEOUT
        others = [thread for thread in self._threads if thread.ident not in (None, threading.get_ident())]  # None: it was not started
        for thread in others:
            thread.join(max(0.0, deadline - time.monotonic()))
        for thread in others:
            if thread.is_alive():
                log.warning(
                    "%s does not stop: %s; code that blocks there should call highway.check_cancelled()", thread.name, position(thread)
                )

    def abandon(self) -> None:
        """Stop after a garbage collection or at the exit of the interpreter. Any thread can run this, even a worker that holds a lock."""
        if os.getpid() != self._pid or not self._threads:
            return
        if threading.get_ident() in [thread.ident for thread in self._threads]:
            _thread.start_new_thread(self._cancel, ())
            return
        self.stop()

    def stats(self) -> PipelineStats:
        seconds = (self._ended_at or time.perf_counter()) - self._started_at if self._started_at else 0.0
        cpu = (self._cpu_at_end or cpu_seconds()) - self._cpu_at_start if self._started_at else 0.0
        cores = available_cores()
        stages = [running.stats() for running in self.stages]
        return PipelineStats(stages, seconds, cpu, cores, machine_load(cores), resident=resident_bytes())


def _keeps_epochs(running: RunningStage) -> bool:
    """Return whether a stream yields items for each epoch of its input, or makes its own epochs."""
    return running.traits.per_epoch or running.traits.repeats or running.traits.one_to_one is not None


def why_unknown(running: RunningStage) -> str:
    """Return why a stage's number of outputs in an epoch cannot be computed from its number of inputs; empty if it can."""
    whys = {"declares to drop items (drops=True)": running.drops, "has dropped items": running.has_dropped}
    whys["skips items whose work fails (on_error='skip')"] = running.stage.on_error == "skip"
    if running.shape == "map" and running.traits.one_to_one is None:
        return next((f"{running.stage.name} {why}" for why, applies in whys.items() if applies), "")
    source = running.shape == "source"
    if running.traits.length is not None or running.shape not in ("source", "stream") or (source and hasattr(running.stage.op, "__len__")):
        return ""
    return f"{running.stage.name} does not report {'its number of items' if source else 'how many items it yields for a number of inputs'}"


def _length(running: RunningStage, length: int) -> int:
    """Return the number of a stage's outputs in an epoch with ``length`` inputs. Raise TypeError if the number is unknown."""
    own, source = running.traits.length, running.shape == "source"
    if why := why_unknown(running):
        count = "count the items in a loop, or use a map that marks items instead of dropping them"
        way_out = f"; {count}" if running.shape == "map" else "; declare Traits(length=...) in this component"
        raise TypeError(f"the length of an epoch is unknown: {why}{way_out}")
    if own is not None:
        return own() if source else own(length)
    return len(running.stage.op) if source else length


def _one_line(error: BaseException) -> str:
    return "".join(traceback.format_exception_only(error)).strip().replace("\n", "; ")

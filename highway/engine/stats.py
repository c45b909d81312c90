"""Statistics: the work and waiting times of each stage, and a sentence that names the bottleneck."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, TypeVar

from highway.columns import Cell, fit, number, percent, terminal_width
from highway.engine.component import Shape

T = TypeVar("T")

BUSY: Final = 0
STARVED: Final = 1
BLOCKED: Final = 2
IDLE: Final = 3

FREE = 0.5  # more workers help only if at least this number of cores is free
SHORTEST = 0.1  # minimum seconds that a pipeline must have run to find its bottleneck
TOO_SHORT = f"The measurement covers less than {SHORTEST:g} s, which is too short to find the bottleneck."

_LOST_WORKERS = ("abandoned_threads", "ended_processes")  # counters of a stage with a timeout
_HEADINGS = ("stage", "workers", "items", "items/s", "MB/s", "busy", "starved", "blocked", "queued", "max MB", "errors")
_LESS = tuple(map(_HEADINGS.index, ("max MB", "queued", "workers", "MB/s")))  # columns that a narrow table omits, in this order


class Meter:
    """The counts of one worker. Only one thread at a time writes them, so they need no lock. Any thread can read them."""

    __slots__ = ("bytes", "errors", "items", "seconds", "since", "state")

    def __init__(self) -> None:
        self.items = 0
        self.bytes = 0
        self.errors = 0
        self.seconds = [0.0, 0.0, 0.0, 0.0]
        self.state = IDLE
        self.since = time.perf_counter()

    def enter(self, state: int) -> None:
        """Change the state to ``BUSY``, ``STARVED`` (waiting for input), ``BLOCKED`` (waiting for room downstream) or ``IDLE``."""
        now = time.perf_counter()
        self.seconds[self.state] += now - self.since
        self.state = state
        self.since = now

    def starve(self, wait: Callable[..., T], *arguments: Any) -> T:
        """Call ``wait``, which waits for input, and return its result. During the call, the state is ``STARVED``."""
        self.enter(STARVED)
        try:
            return wait(*arguments)
        finally:
            self.enter(BUSY)

    def read(self) -> tuple[float, float, float]:
        """Return the seconds busy, starved and blocked, including the current state."""
        seconds = list(self.seconds)
        seconds[self.state] += max(0.0, time.perf_counter() - self.since)
        return seconds[BUSY], seconds[STARVED], seconds[BLOCKED]


class HandOver:
    """The point where a pipeline passes items to its caller.

    If another pipeline takes the items, as in ``to_device`` on its own thread, the training loop waits at the hand-over of that pipeline.

    Attributes:
        look: A function, set by an observer such as a dashboard. It is called with each item, on the thread that takes the item. ``None``:
            no observer.
        ends_together: Whether the loops of all ranks end after the same number of items, even if the ranks have different numbers of items.
    """

    def __init__(self) -> None:
        self.look: Callable[[Any], None] | None = None
        self.ends_together = False
        self._meter = Meter()  # starved while a caller waits
        self._outer: HandOver | None = None
        self._earlier = 0.0  # seconds that earlier loops waited at their hand-overs

    @property
    def waited(self) -> float:
        """Seconds that callers have waited at the outermost hand-over, including the current wait."""
        return self._earlier + (self._meter.read()[1] if self._outer is None else self._outer.waited)

    def take(self, take: Callable[[float | None, Meter, bool], T], timeout: float | None, outer: HandOver | None, is_in_stage: bool) -> T:
        """Call ``take``, and count the time for which it waits.

        Args:
            take: A function that waits for an item and returns it.
            timeout: Maximum seconds to wait; ``None``: no limit.
            outer: The hand-over of the pipeline whose source takes the item; ``None`` if no source takes it.
            is_in_stage: Whether a stage takes the item.
        """
        if outer is not self._outer and outer is not None:
            self._earlier = self.waited if self._outer is not None else self._earlier
            self._outer = outer
        item = take(timeout, self._meter, is_in_stage)
        if self.look is not None:
            self.look(item)
        return item


class Rate(NamedTuple):
    """Items and megabytes per second."""

    items: float = 0.0
    megabytes: float = 0.0

    @classmethod
    def of(cls, items: float, nbytes: float, seconds: float) -> Rate:
        """Return the rate for a number of items and their bytes in ``seconds``."""
        seconds = max(seconds, 1e-9)
        return cls(items / seconds, nbytes / seconds / 1e6)

    def plus(self, other: Rate) -> Rate:
        """Return the sum of both rates."""
        return Rate(self.items + other.items, self.megabytes + other.megabytes)


@dataclass(frozen=True)
class StageStats:
    """Statistics of one stage since the start of its pipeline.

    Args:
        name: The stage's name.
        num_workers: Number of worker threads.
        items: Number of items that the stage has passed on; for a sink, the number of items that it has taken.
        bytes: Bytes of the arrays in these items.
        errors: Number of errors that ``on_error="skip"`` has skipped.
        busy: Seconds in which the workers worked, summed over all workers.
        starved: Seconds in which the workers waited for input.
        blocked: Seconds in which the workers waited for room in the queue to the next stage.
        queued: Number of items in the stage's output queue, including items that a worker is processing.
        capacity: Maximum of ``queued``.
        shape: ``"source"``, ``"map"``, ``"stream"`` or ``"sink"``.
        counters: The component's own counters, such as ``gaps``, the missing messages of a link.
        parameter: The name of the parameter that sets the number of workers.
        error: The text of the last skipped error.

    >>> pipeline = Pipeline([range(3), str])
    >>> items = list(pipeline)
    >>> stage = pipeline.stats().stages[1]
    >>> isinstance(stage, StageStats), stage.name, stage.shape, stage.items, stage.errors
    (True, 'str', 'map', 3, 0)
    """

    name: str
    num_workers: int
    items: int = 0
    bytes: int = 0
    errors: int = 0
    busy: float = 0.0
    starved: float = 0.0
    blocked: float = 0.0
    queued: int = 0
    capacity: int = 0
    shape: Shape = "map"
    counters: Mapping[str, Any] = field(default_factory=dict)
    parameter: str = "num_workers"
    error: str = ""

    @classmethod
    def of(cls, name: str, meters: list[Meter], **rest: Any) -> StageStats:
        """Return the statistics of a stage from the meters of its workers."""
        busy, starved, blocked = map(sum, zip(*(meter.read() for meter in meters), strict=True))
        counts = {key: sum(getattr(meter, key) for meter in meters) for key in ("items", "bytes", "errors")}
        return cls(name, len(meters), **counts, busy=busy, starved=starved, blocked=blocked, **rest)

    @property
    def memory(self) -> float:
        """Maximum bytes in the output queue, estimated from the mean size of the items, plus the memory budget of a link."""
        queue = self.capacity * self.bytes / self.items if self.items else 0.0
        return queue + 1e6 * float(self.counters.get("budget_mb", 0.0))

    def share(self, seconds: float) -> float:
        """Return ``seconds`` as a fraction, 0 to 1, of the total time of all workers."""
        return seconds / max(self.busy + self.starved + self.blocked, 1e-9)


@dataclass(frozen=True)
class PipelineStats:
    """Statistics of all stages of a pipeline since it started. ``str()`` and notebooks show them as a table.

    Args:
        stages: The statistics of the stages, in order.
        seconds: Seconds since the start of the pipeline.
        cpu: CPU seconds since the start, in the pipeline's process and its child processes.
        cores: Number of cores available to the process; 0 if unknown.
        load: Number of cores that all processes of the machine used, averaged over the last minute.
        waited: Seconds that the caller has waited for items. With ``to_device(pipeline)``, the caller is the loop over ``to_device``.
        resident: Bytes of memory that the process uses now; 0 if unknown.

    >>> pipeline = Pipeline([range(3), str])
    >>> items = list(pipeline)
    >>> stats = pipeline.stats()
    >>> isinstance(stats, PipelineStats), stats.items, [stage.items for stage in stats.stages]
    (True, 3, [3, 3])
    """

    stages: list[StageStats]
    seconds: float
    cpu: float = 0.0
    cores: int = 0
    load: float = 0.0
    waited: float = 0.0
    resident: int = 0

    @property
    def items(self) -> int:
        """Number of items that have left the last stage."""
        return self.stages[-1].items

    @property
    def rate(self) -> float:
        """Items per second that have left the last stage, averaged over the whole run."""
        return self.items / self.seconds if self.seconds > 0 else 0.0

    @property
    def memory(self) -> float:
        """Maximum bytes in all queues and links, without the items that stages hold."""
        return sum(stage.memory for stage in self.stages)

    @property
    def cores_used(self) -> float:
        """Average number of cores that the process has used."""
        return self.cpu / self.seconds if self.seconds > 0 else 0.0

    @property
    def bottleneck(self) -> str:
        """One sentence that names the bottleneck, which limits the rate.

        The bottleneck is the stage whose workers are busiest. The stages after it wait for input, and the stages before it wait for room.
        If the last stage spends more than half of its time waiting, the consumer or the receivers are the bottleneck. If no stage is busy
        for half of its time, the sentence names no stage.
        """
        last = self.stages[-1]
        waited = last.share(last.blocked)
        if last.shape == "sink" and waited > 0.5:
            return f"The receivers of {last.name} are the bottleneck: {last.name} waited {percent(waited)} of its time for them."
        if not last.items:
            return "No item has passed through the pipeline yet."
        if self.seconds < SHORTEST and sum(stage.busy for stage in self.stages) < SHORTEST:
            return TOO_SHORT
        if last.capacity and waited > 0.5:
            return f"The consumer is the bottleneck: {last.name} waited {percent(waited)} of its time for the consumer to take items."
        stage = max(self.stages, key=lambda s: s.share(s.busy))
        if stage.share(stage.busy) < 0.5:
            return "No stage limits the rate: the limit is outside the stages (a link, a disk, the consumer)."
        if stage.shape == "map":
            advice = more_cores([more_workers(stage, self.cores)], self.cores, max(self.cores_used, self.load))
        else:
            advice = one_thread(stage.shape)
        workers = f"its {stage.num_workers} workers were" if stage.num_workers > 1 else "it was"
        return f"{stage.name} is the bottleneck: {workers} busy {percent(stage.share(stage.busy))} of the time; {advice}."

    def __str__(self) -> str:
        return "\n".join([self.table(), *self.progress, *self.lost_workers, self.bottleneck])

    @property
    def progress(self) -> list[str]:
        """One line for each stage, such as a cache, that reports the progress of its first epoch."""
        return [f"{stage.name}: {stage.counters['first_epoch']}." for stage in self.stages if "first_epoch" in stage.counters]

    @property
    def lost_workers(self) -> list[str]:
        """One line for each stage that has lost threads or processes because of its ``timeout``."""
        return [
            f"{stage.name}: {count} {name.replace('_', ' ')}, because calls took longer than the stage's timeout."
            for stage in self.stages
            for name in _LOST_WORKERS
            if isinstance(count := stage.counters.get(name), int)
        ]

    def table(self) -> str:
        """Return the stages as a table. If possible, the table fits the terminal, or 80 columns without a terminal."""
        return fit(self._rows(), terminal_width(), _LESS).text()

    def _repr_html_(self) -> str:
        from highway.engine import notebook  # imported here, because only notebooks need it

        return notebook.table([[cell.full for cell in row] for row in self._rows()], self.bottleneck)

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        printer.text(str(self))

    def _rows(self) -> list[tuple[Cell, ...]]:
        return [tuple(map(Cell, _HEADINGS)), *map(self._row, self.stages)]

    def _row(self, stage: StageStats) -> tuple[Cell, ...]:
        rate = Rate.of(stage.items, stage.bytes, self.seconds)
        shares = (Cell(percent(stage.share(part))) for part in (stage.busy, stage.starved, stage.blocked))
        return (
            Cell(stage.name),
            number(stage.num_workers),
            number(stage.items),
            number(rate.items, 1),
            number(rate.megabytes, 1),
            *shares,
            Cell(f"{stage.queued}/{stage.capacity}" if stage.capacity else "-"),
            number(stage.memory / 1e6, 1),
            number(stage.errors),
        )


def one_thread(shape: Shape) -> str:
    """Return advice for a slow source, stream or sink. These shapes have only one thread."""
    batches = ", or, if the work for each item is small, yield batches" if shape == "source" else ""
    return f"a {shape} has only one thread: move part of its work into a map{batches}"


BEYOND_CORES = (
    "if it is Python code, run it in Processes, because only one thread at a time can run Python code; more workers than cores help only "
    "if it waits for files or a network"
)
"""Advice for a slow map that has a worker for each core. ``stats()`` and ``highway bench`` print it."""


def more_workers(stage: StageStats, cores: int, whom: str = "it", sign: str = "=") -> str:
    """Return advice on how a slow map can use more cores. ``cores`` is the number of cores available to its process; 0 if unknown."""
    more = f"give {whom} more workers ({stage.parameter}{sign}{stage.num_workers + 1})"
    if not cores or stage.num_workers < cores or stage.parameter != "num_workers":
        return more
    return BEYOND_CORES


def more_cores(ways: Sequence[str], cores: int, used: float, where: str = "") -> str:
    """Return advice for a slow stage: if cores are free, ``ways`` to use more cores.

    Args:
        ways: Texts that describe the ways.
        cores: Number of cores; 0 if unknown.
        used: Number of cores in use.
        where: The machine in the text, such as ``" of gpu1"``; empty for this machine.
    """
    if not cores:
        return f"{', or '.join(ways)}, as long as cores are free"
    if used > cores - FREE:
        what = f"all {cores} cores{where} are in use" if cores > 1 else f"the only core{where} is in use"
        return f"{what}, so more workers would not help: reduce its work, or move it to another machine"
    return f"{', or '.join(ways)}: {cores - used:.1f} of {cores} cores{where} are free"

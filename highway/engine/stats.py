"""How much each stage did, what it waited for, and the sentence that names the bottleneck."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from highway.columns import WIDTH, Cell, fit, number, percent
from highway.engine.component import Shape

T = TypeVar("T")

BUSY: Final = 0
STARVED: Final = 1
BLOCKED: Final = 2
IDLE: Final = 3

FREE = 0.5  # of a core, at least, that must be free for more workers to help
SHORTEST = 0.1  # seconds that a pipeline must have run to be judged


class Meter:
    """Counts of one worker, written by its thread alone, so without a lock; read by anybody."""

    __slots__ = ("bytes", "errors", "items", "seconds", "since", "state")

    def __init__(self) -> None:
        self.items = 0
        self.bytes = 0
        self.errors = 0
        self.seconds = [0.0, 0.0, 0.0, 0.0]
        self.state = IDLE
        self.since = time.perf_counter()

    def enter(self, state: int) -> None:
        """Begin to be ``BUSY``, ``STARVED`` (waiting for input), ``BLOCKED`` (waiting for room behind it) or ``IDLE``."""
        now = time.perf_counter()
        self.seconds[self.state] += now - self.since
        self.state = state
        self.since = now

    def read(self) -> tuple[float, float, float]:
        """Return the seconds busy, starved and blocked, with the state that lasts still."""
        seconds = list(self.seconds)
        seconds[self.state] += max(0.0, time.perf_counter() - self.since)
        return seconds[BUSY], seconds[STARVED], seconds[BLOCKED]


class HandOver:
    """Where a pipeline hands its items over.

    If the items are taken by the source of another pipeline, as ``to_device`` does on a thread of its own, the loop that trains waits
    there, and not here.

    Attributes:
        look: Called with each item on the thread that takes it; for somebody who wants to see one.
    """

    def __init__(self) -> None:
        self.look: Callable[[Any], None] | None = None
        self._meter = Meter()
        self._outer: HandOver | None = None
        self._earlier = 0.0  # seconds that were waited at the hand-overs of earlier loops

    @property
    def waited(self) -> float:
        """Seconds that were waited at the last hand-over, with the wait that lasts still."""
        return self._earlier + (self._meter.read()[1] if self._outer is None else self._outer.waited)

    def take(self, take: Callable[[], T], outer: HandOver | None) -> T:
        """Return an item that ``take`` waits for, for the source of another pipeline if ``outer`` is its hand-over."""
        if outer is not self._outer and outer is not None:
            self._earlier = self.waited if self._outer is not None else self._earlier
            self._outer = outer
        self._meter.enter(STARVED)
        try:
            item = take()
        finally:
            self._meter.enter(BUSY)
        if self.look is not None:
            self.look(item)
        return item


@dataclass(frozen=True)
class StageStats:
    """One stage since the start of its pipeline.

    Args:
        name: The stage's name.
        num_workers: Its worker threads.
        items: Items it has handed on; for a sink, items it has taken.
        bytes: Bytes of the arrays in them.
        errors: Errors left out under ``on_error="skip"``.
        busy: Seconds its workers worked, all together.
        starved: Seconds they waited for input.
        blocked: Seconds they waited for room in the next stage's queue.
        queued: Items that wait behind it or are being made.
        capacity: How many of these there can be.
        shape: ``"source"``, ``"map"``, ``"stream"`` or ``"sink"``.
        counters: What the component counts of its own (a link's gaps, the decoder in use).
        parameter: The parameter that says how many workers it has.
        error: The last error that was left out, in words.
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
        """Add up the meters of a stage's workers."""
        busy, starved, blocked = map(sum, zip(*(meter.read() for meter in meters), strict=True))
        counts = {key: sum(getattr(meter, key) for meter in meters) for key in ("items", "bytes", "errors")}
        return cls(name, len(meters), **counts, busy=busy, starved=starved, blocked=blocked, **rest)

    @property
    def memory(self) -> float:
        """Bytes that may wait behind it at most, by the mean size of its items; of a link, with its budget for one connection."""
        queue = self.capacity * self.bytes / self.items if self.items else 0.0
        return queue + 1e6 * float(self.counters.get("budget_mb", 0.0))

    def share(self, seconds: float) -> float:
        """Return the part, 0 to 1, of its workers' time that ``seconds`` is."""
        return seconds / max(self.busy + self.starved + self.blocked, 1e-9)


@dataclass(frozen=True)
class PipelineStats:
    """All stages of a pipeline since it started. ``str()`` is a table, and so is what a notebook shows.

    Args:
        stages: The stages, in order.
        seconds: Seconds since it started.
        cpu: Seconds of cores that its process has used since then, with the processes that it has started.
        cores: The cores that its process may use; 0 if that is not known.
        load: How many of these all processes of the machine have used, over the last minute.
        waited: Seconds that whoever takes its items has waited for them, at the last hand-over: of ``to_device(pipeline)``, in that loop.
        resident: Bytes of memory that its process has now; 0 if that is not known.
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
        """Items that came out at the end."""
        return self.stages[-1].items

    @property
    def rate(self) -> float:
        """Items per second that came out at the end, over the whole run."""
        return self.items / self.seconds if self.seconds > 0 else 0.0

    @property
    def memory(self) -> float:
        """Bytes that may wait in its queues and at its links at most; what the stages hold themselves comes on top."""
        return sum(stage.memory for stage in self.stages)

    @property
    def cores_used(self) -> float:
        """Cores that its process has used, on average."""
        return self.cpu / self.seconds if self.seconds > 0 else 0.0

    @property
    def bottleneck(self) -> str:
        """One sentence that names what limits the rate; see :meth:`limit`."""
        return self.limit()

    def limit(self, others: float = 0.0) -> str:
        """Return one sentence that names what limits the rate.

        It is the stage whose workers are busiest: what stands behind it starves, what stands before it is blocked.

        Args:
            others: Cores of this machine that other processes of the same run use.
        """
        last = self.stages[-1]
        waited = last.share(last.blocked)
        if last.shape == "sink" and waited > 0.5:
            return f"What receives from {last.name} is the bottleneck: it waited {percent(waited)} of its time for that."
        if not last.items:
            return "Nothing has passed through yet."
        if self.seconds < SHORTEST and sum(stage.busy for stage in self.stages) < SHORTEST:
            return f"It has run for less than {SHORTEST:g} s, which is too short to find the bottleneck."
        if last.capacity and waited > 0.5:
            return f"The consumer is the bottleneck: {last.name} waited {percent(waited)} of its time to hand on its items."
        stage = max(self.stages, key=lambda s: s.share(s.busy))
        if stage.share(stage.busy) < 0.5:
            return "None of the stages is short of time: the rate is set outside (a link, a disk, the consumer)."
        if stage.shape == "map":
            advice = more_cores([more_workers(stage, self.cores)], self.cores, max(self.cores_used + others, self.load))
        else:
            advice = one_thread(stage.shape)
        workers = f"its {stage.num_workers} workers were" if stage.num_workers > 1 else "it was"
        return f"{stage.name} is the bottleneck: {workers} busy {percent(stage.share(stage.busy))} of the time; {advice}."

    def __str__(self) -> str:
        return "\n".join([self.table(), *self.progress, self.bottleneck])

    @property
    def progress(self) -> list[str]:
        """A line for each stage that counts how far its first epoch is, as a cache does."""
        return [f"{stage.name}: {stage.counters['first_epoch']}." for stage in self.stages if "first_epoch" in stage.counters]

    def table(self) -> str:
        """Return the stages as a table."""
        return fit(self._rows(), WIDTH).text()

    def _repr_html_(self) -> str:
        from highway.engine import notebook  # here, since only notebooks need it

        return notebook.table([[cell.full for cell in row] for row in self._rows()], self.bottleneck)

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        printer.text(str(self))

    def _rows(self) -> list[tuple[Cell, ...]]:
        header = ("stage", "workers", "items", "items/s", "MB/s", "busy", "starved", "blocked", "queued", "max MB", "errors")
        return [tuple(map(Cell, header)), *map(self._row, self.stages)]

    def _row(self, stage: StageStats) -> tuple[Cell, ...]:
        seconds = max(self.seconds, 1e-9)
        shares = (Cell(percent(stage.share(part))) for part in (stage.busy, stage.starved, stage.blocked))
        return (
            Cell(stage.name),
            number(stage.num_workers),
            number(stage.items),
            number(stage.items / seconds, 1),
            number(stage.bytes / seconds / 1e6, 1),
            *shares,
            Cell(f"{stage.queued}/{stage.capacity}" if stage.capacity else "-"),
            number(stage.memory / 1e6, 1),
            number(stage.errors),
        )


def one_thread(shape: Shape) -> str:
    """Return what to do about a stage of this shape, which is no map, that is short of time."""
    batches = " or, if it does little for each item, have it yield batches" if shape == "source" else ""
    return f"a {shape} has one thread: move work from it into a map{batches}"


def more_workers(stage: StageStats, cores: int, whom: str = "it", sign: str = "=") -> str:
    """Return how a map that is short of time may use more cores, of which its process has so many (0 if that is not known)."""
    more = f"give {whom} more workers ({stage.parameter}{sign}{stage.num_workers + 1})"
    if not cores or stage.num_workers < cores or stage.parameter != "num_workers":
        return more
    return f"run it in Processes if it is Python code, of which one thread runs at a time, or {more} if it waits for files or a network"


def more_cores(ways: Sequence[str], cores: int, used: float, where: str = "") -> str:
    """Return what to do about a stage that is short of time: one of the ``ways`` to let it use more cores, if there are any.

    Args:
        ways: What would help, in words.
        cores: The cores that there are; 0 if that is not known.
        used: How many of them are used.
        where: The machine, as ``" of gpu1"``; by default it is this one.
    """
    if not cores:
        return f"{', or '.join(ways)}, while there are cores"
    if used > cores - FREE:
        what = f"all {cores} cores{where} are in use" if cores > 1 else f"the only core{where} is in use"
        return f"{what}, so more workers would not help: have it do less, or move it to another machine"
    return f"{', or '.join(ways)}: {cores - used:.1f} of {cores} cores{where} are free"

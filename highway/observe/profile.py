"""Measure the costs of stages and links.

The stages run one at a time. Each stage reads the results of the previous stage from memory. A link is measured within this process.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import re
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple, Self

from highway.engine import Pipeline
from highway.engine.batch import nbytes
from highway.engine.cancel import check_cancelled
from highway.engine.component import Shape
from highway.engine.stage import Items, Stage, Stamped
from highway.engine.stats import PipelineStats
from highway.errors import EndOfStream
from highway.observe.calibration import StageCost
from highway.process.cores import cpu_seconds
from highway.wire.receiver import LinkReceiver
from highway.wire.sender import LinkSender
from highway.wire.url import Link, parse, url_of

AT_ONCE = 50  # steps of plain Python between two checks of the flag that ends the thread


class Rival:
    """Measures how long the code in a ``with`` block holds the GIL, with a thread that runs plain Python beside the code.

    The thread works only while no other thread holds the GIL. In the remaining time, other threads hold the GIL. On a busy machine, the
    result is too small, because time in which the thread waits for a core is not counted.

    Attributes:
        kept_out: Seconds in which the thread could not work. Valid after the block.
    """

    def __init__(self) -> None:
        self.kept_out = 0.0
        self._over = False
        self._begun: Future[None] = Future()

    def __enter__(self) -> Self:
        self._pool = ThreadPoolExecutor(1, "highway-rival")
        self._worked: Future[float] = self._pool.submit(self._work)
        self._begun.result()  # otherwise, the time until the thread runs would not be measured
        return self

    def __exit__(self, *_: object) -> None:
        self._over = True
        self._pool.shutdown()
        self.kept_out = self._worked.result()

    def _work(self) -> float:
        began, could_have = time.perf_counter(), _working_or_waiting()
        self._begun.set_result(None)
        while not self._over:
            for _ in range(AT_ONCE):
                pass
        return max(0.0, time.perf_counter() - began - (_working_or_waiting() - could_have))


def _working_or_waiting() -> float:
    """Return the seconds in which this thread worked or waited for a core. Outside Linux, only the work counts."""
    try:
        worked, waited, _ = Path("/proc/thread-self/schedstat").read_text().split()
    except (OSError, ValueError):
        return time.thread_time()
    return (int(worked) + int(waited)) / 1e9


MOST_BYTES = 2_000_000_000  # maximum bytes of a stage's results to keep for the next stage
IDLE = 1.0  # after this many seconds without an item, a source is considered exhausted
PATIENCE = 1.0  # maximum seconds to wait for the remaining items after enough results were collected
_TICK = 0.05


@dataclass
class _Replay:
    """Yields items from memory, and frees each item."""

    items: list[Stamped]
    given: int = field(default=0, init=False)

    def __iter__(self) -> Iterator[Stamped]:
        self.items.reverse()
        while self.items:
            self.given += 1
            yield self.items.pop()


@dataclass
class _Collect:
    """Collects items, up to ``most`` items or about :data:`MOST_BYTES`."""

    most: int
    items: list[Stamped] = field(default_factory=list, init=False)
    first: float = field(default=0.0, init=False)
    last: float = field(default=0.0, init=False)

    def consume(self, items: Items) -> None:
        size = 0
        for item in items:
            check_cancelled()
            self.last = time.perf_counter()
            self.first = self.first or self.last
            self.items.append(Stamped(item, items.passport))
            size += nbytes(item)
            if len(self.items) >= self.most or size > MOST_BYTES:
                return


class Profile(NamedTuple):
    """The results for the stages of a pipeline.

    Args:
        stages: The cost of each stage per item at the end of the pipeline; 0 if no item passed the stage in time. ``held`` is measured only
            with ``rivalled``.
        items: The results of the last stage; empty if the last stage is a sink.
        taken: Number of items from the source for each item at the end of the pipeline; 0 if the source yielded no item in time.
        example: An item that the last stage yielded, or a sink received; ``None`` if there was no item.
    """

    stages: list[StageCost]
    items: list[Stamped]
    taken: float
    example: Stamped | None = None


def profile(
    stages: list[tuple[Stage, Shape]], seed: int, most: int, limit: float, given: Sequence[Stamped] | None = None, rivalled: bool = False
) -> Profile:
    """Run stages one after another.

    Args:
        stages: The stages of a pipeline, as :func:`highway.engine.stage.expand` returns them. The stages can be run only once.
        seed: The seed of the pipeline.
        most: Maximum number of items to read from the source.
        limit: Maximum seconds for each stage.
        given: Items to use as the items of the source. The source does not run.
        rivalled: Whether each stage runs beside a thread that constantly requests the GIL. Only ``held`` is then valid.
    """
    (source, _), *others = stages
    if given is None:
        passing, cost = _profile_source(source, seed, most, limit, rivalled)
    else:
        passing = list(given)
        cost = StageCost(source.label, "source", nbytes=sum(nbytes(each.item) for each in given) / max(1, len(given)))
    has_source, costs, made = bool(passing) or given is not None, [cost], 1.0  # costs and ``made`` are per item of the source
    for stage, shape in others:
        example = passing[0] if passing else None
        passing, cost, results = _profile_stage(stage, shape, passing, seed, limit, rivalled)
        costs.append(cost.times(made))
        made *= results or 1.0
    is_sink = bool(others) and others[-1][1] == "sink"
    last = example if is_sink else passing[0] if passing else None
    return Profile([cost.times(1 / made) for cost in costs], passing, has_source / made, last)


def _profile_source(stage: Stage, seed: int, most: int, limit: float, rivalled: bool) -> tuple[list[Stamped], StageCost]:
    """Return the items of a source, and the cost of the source per item."""
    collect = _Collect(most)
    began = time.perf_counter()

    def is_enough() -> bool:
        now = time.perf_counter()
        return now - began > limit or (bool(collect.items) and now - collect.last > IDLE)

    ran = _run([stage, collect], seed, is_enough, rivalled)
    count = len(collect.items)
    if not count:
        return [], StageCost(stage.label, "source")
    seconds = (collect.last - collect.first) / (count - 1) if count > 1 else collect.last - began
    size = sum(nbytes(each.item) for each in collect.items) / count
    return collect.items, StageCost(stage.label, "source", seconds, ran.stats.cpu / count, ran.held / count, ran.read / count, size)


def _profile_stage(
    stage: Stage, shape: Shape, given: list[Stamped], seed: int, limit: float, rivalled: bool
) -> tuple[list[Stamped], StageCost, float]:
    """Return the results of a stage, the cost of the stage per input item, and the number of results per input item."""
    nothing: tuple[list[Stamped], StageCost, float] = [], StageCost(stage.label, shape), 0.0
    if not given:
        return nothing
    replay, collect = _Replay(given), _Collect(2**63)
    began = time.perf_counter()
    single = replace(stage, num_workers=1) if shape == "map" else stage
    stages = [replay, single] if shape == "sink" else [replay, single, collect]
    ran = _run(stages, seed, lambda: time.perf_counter() - began > limit, rivalled)
    waiting, figures = 0 if ran.complete else ran.stats.stages[0].queued, ran.stats.stages[1]
    is_one_for_one = shape == "sink" or (shape == "map" and not ran.complete)  # an assumption for a map that did not finish
    taken = figures.items if is_one_for_one else replay.given - waiting
    if taken <= 0 or figures.items == 0:
        return nothing
    made = 1.0 if shape == "sink" else figures.items / taken
    size = 0.0 if shape == "sink" else figures.bytes / figures.items
    return collect.items, StageCost(stage.label, shape, figures.busy, ran.stats.cpu, ran.held, ran.read, size).times(1 / taken), made


class _Ran(NamedTuple):
    """The run of a pipeline.

    Args:
        stats: The statistics of the pipeline.
        complete: Whether all items of the source were processed.
        held: Seconds in which the pipeline held the GIL.
        read: Bytes that were read from files.
    """

    stats: PipelineStats
    complete: bool
    held: float
    read: int


def _run(stages: list[Any], seed: int, is_enough: Callable[[], bool], rivalled: bool = False) -> _Ran:
    """Run a pipeline that ends in a sink, until the source ends or ``is_enough()`` is true."""
    pipeline = Pipeline(stages, seed=seed)
    read, rival = bytes_read(), Rival() if rivalled else None
    with rival or contextlib.nullcontext(), ThreadPoolExecutor(1, "highway-bench") as pool:
        ended = pool.submit(pipeline.run)
        try:
            while not ended.done() and not is_enough():
                wait([ended], _TICK)
            pipeline.drain()  # so that all items of the source are processed and counted
            wait([ended], PATIENCE)
            complete = ended.done()
        finally:
            pipeline.stop()
        ended.result()
    return _Ran(pipeline.stats(), complete, rival.kept_out if rival else 0.0, bytes_read() - read)


LEAST = 8  # minimum number of messages to send
SECONDS = 0.4  # minimum seconds of sending
TIMEOUT = 10.0  # after this many seconds without a message, the measurement fails


def measure_link(link: Link, allow64: bool, items: Sequence[Stamped]) -> StageCost:
    """Send items repeatedly over a link within this process, and return the mean cost of a message at one end.

    Raises:
        ItemError: the items cannot be sent.
    """
    free, taken = _carry(link, allow64, items), _carry(link, allow64, items, rivalled=True)
    return replace(free, held=min(free.cpu, taken.held))


def _carry(link: Link, allow64: bool, items: Sequence[Stamped], rivalled: bool = False) -> StageCost:
    transport, options = link.transport, replace(link.options, receivers=1, senders=0, end=True, tap="")
    with tempfile.TemporaryDirectory(prefix="hw") as folder, ThreadPoolExecutor(1, "highway-bench") as pool:
        name = f"{transport.prefix}bench-{os.getpid()}"
        location = {"host:port": "127.0.0.1:0", "path": f"{folder}/link", "name": name}[transport.location]
        sending = parse(url_of("zrpush", transport, location), "send", defaults=options)
        with LinkSender(sending, allow64) as sender:
            address = sender.bound[0].partition("://")[2]
            receiving = parse(url_of("zrpull", transport, address), "receive", defaults=options)
            counted = pool.submit(_receive, receiving)
            sender.wait_for_receivers()
            rival = Rival()
            began, cpu = time.perf_counter(), cpu_seconds()
            with rival if rivalled else contextlib.nullcontext():
                sent = _send(sender, items)
            came = counted.result()
            seconds, cpu = time.perf_counter() - began, cpu_seconds() - cpu
    return StageCost(str(link), "sink", seconds / sent, cpu / sent / 2, rival.kept_out / sent / 2, nbytes=came / sent)


def _send(sender: LinkSender, items: Sequence[Stamped]) -> int:
    """Send items for some time, and then the end message. Return the number of messages with items."""
    until, sent = time.perf_counter() + SECONDS, 0
    for item, passport in itertools.cycle(items):
        sender.send(item, passport, timeout=TIMEOUT)
        sent += 1
        if sent >= LEAST and time.perf_counter() > until:
            break
    sender.finish()
    return sent


def _receive(link: Link) -> float:
    """Receive messages until the end message. Return the number of bytes."""
    counters: dict[str, float] = {}
    with LinkReceiver(link, counters) as receiver:
        while True:
            try:
                receiver.recv(TIMEOUT)
            except EndOfStream:
                return counters["bytes"]


def bytes_read() -> int:
    """Return the bytes that this process has read by system calls so far, mostly from files.

    Reads from the page cache count, but reads of mapped memory do not count. Outside Linux, the result is 0.
    """
    try:
        found = re.search(r"^rchar: (\d+)", Path("/proc/self/io").read_text(), re.M)
    except OSError:
        return 0
    return int(found[1]) if found else 0

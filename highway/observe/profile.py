"""The stage profiler: runs stages one at a time, each on what the one before it has made, from memory."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from highway.engine import Pipeline
from highway.engine.batch import nbytes
from highway.engine.cancel import check_cancelled
from highway.engine.component import Shape
from highway.engine.stage import Items, Stage, Stamped
from highway.engine.stats import PipelineStats

MOST_BYTES = 2_000_000_000  # of what a stage has made, kept for the next one
IDLE = 1.0  # seconds without an item after which a source has given what it has
_TICK = 0.05


@dataclass
class _Replay:
    """Yields items from memory, and forgets them."""

    items: list[Stamped]
    given: int = field(default=0, init=False)

    def __iter__(self) -> Iterator[Stamped]:
        self.items.reverse()
        while self.items:
            self.given += 1
            yield self.items.pop()


@dataclass
class _Collect:
    """Keeps what comes, until it is enough."""

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
    """What was found out about the stages of a pipeline.

    Args:
        seconds: For each stage the busy seconds of one worker for what becomes one item at the end; 0 where nothing passed in time.
        items: What the last stage has made; nothing if that is a sink.
    """

    seconds: list[float]
    items: list[Stamped]


def profile(stages: list[tuple[Stage, Shape]], seed: int, most: int, limit: float, given: Sequence[Stamped] | None = None) -> Profile:
    """Run stages one after the other.

    Args:
        stages: The stages of a pipeline, as :func:`highway.engine.stage.expand` returns them. They can be run only once.
        seed: The pipeline's.
        most: Items that the source is asked for.
        limit: Seconds that a stage may run.
        given: What stands in for the items of the source, which is then not run.
    """
    (source, _), *others = stages
    passing, seconds = _profile_source(source, seed, most, limit) if given is None else (list(given), 0.0)
    costs, made = [seconds], 1.0  # seconds, and items here, for each item of the source
    for stage, shape in others:
        seconds, per_input = 0.0, 1.0
        if passing:
            passing, seconds, per_input = _profile_stage(stage, shape, passing, seed, limit)
        costs.append(seconds * made)
        made *= per_input
    return Profile([cost / made for cost in costs], passing)


def _profile_source(stage: Stage, seed: int, most: int, limit: float) -> tuple[list[Stamped], float]:
    """Return what a source gives, and its seconds for each item."""
    collect = _Collect(most)
    began = time.perf_counter()

    def is_enough() -> bool:
        now = time.perf_counter()
        return now - began > limit or (bool(collect.items) and now - collect.last > IDLE)

    _run([stage, collect], seed, is_enough)
    count = len(collect.items)
    if count < 2:
        return collect.items, collect.last - began if count else 0.0
    return collect.items, (collect.last - collect.first) / (count - 1)


def _profile_stage(stage: Stage, shape: Shape, given: list[Stamped], seed: int, limit: float) -> tuple[list[Stamped], float, float]:
    """Return what a stage makes of its input, its busy seconds for each item of that, and how many it makes of one."""
    replay, collect = _Replay(given), _Collect(2**63)
    began = time.perf_counter()
    single = replace(stage, num_workers=1) if shape == "map" else stage
    stats = _run([replay, single] if shape == "sink" else [replay, single, collect], seed, lambda: time.perf_counter() - began > limit)
    waiting, figures = stats.stages[0].queued, stats.stages[1]
    taken = figures.items if shape == "sink" else replay.given - waiting
    if taken <= 0 or figures.items == 0:
        return [], 0.0, 1.0
    return collect.items, figures.busy / taken, 1.0 if shape == "sink" else figures.items / taken


def _run(stages: list[Any], seed: int, is_enough: Callable[[], bool]) -> PipelineStats:
    """Run a pipeline that ends in a sink to its end, or until it is enough."""
    pipeline = Pipeline(stages, seed=seed)
    with ThreadPoolExecutor(1, "highway-bench") as pool:
        ended = pool.submit(pipeline.run)
        try:
            while not ended.done() and not is_enough():
                wait([ended], _TICK)
        finally:
            pipeline.stop()
        ended.result()
    return pipeline.stats()

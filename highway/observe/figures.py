"""Statistics of a replica: totals (:class:`Totals`), and statistics of the last seconds (:class:`Recent`).

A *replica* is one process of a role. After a restart, the replica has a new process. The totals include the earlier processes.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

from highway.engine.stats import PipelineStats, StageStats
from highway.observe.state import ReplicaState
from highway.wire.counters import LINK_COUNTERS

WINDOW = 3.0  # seconds
LOAD_WINDOW = 30.0  # seconds for the load, which decides whether to add or remove replicas

Part = Literal["busy", "starved", "blocked"]

_COUNTS = ("items", "bytes", "errors", "busy", "starved", "blocked")


class Totals:
    """Sums the statistics of all processes of each replica. Pass every state to :meth:`count`, so that no process is missed."""

    def __init__(self) -> None:
        # by replica: the sum over its ended processes, the last statistics of the current process, and the number of restarts so far
        self._seen: dict[tuple[str, int], tuple[PipelineStats | None, PipelineStats | None, int]] = {}

    def count(self, states: Iterable[ReplicaState]) -> list[ReplicaState]:
        """Return the states, with the statistics of each replica's earlier processes added."""
        return list(map(self._count, states))

    def _count(self, state: ReplicaState) -> ReplicaState:
        earlier, seen, restarts = self._seen.get((state.role, state.replica), (None, None, 0))
        if state.restarts != restarts and state.stats != seen:  # a new process first shows the statistics of the previous process
            earlier, restarts = plus(earlier, seen), state.restarts
        self._seen[state.role, state.replica] = earlier, state.stats, restarts
        return replace(state, stats=plus(earlier, state.stats))


class Recent:
    """Remembers statistics for ``window`` seconds, to compute rates."""

    def __init__(self, window: float = WINDOW) -> None:
        self.window = window
        self._seen: dict[Hashable, deque[PipelineStats]] = {}

    def add(self, key: Hashable, stats: PipelineStats) -> PipelineStats:
        """Add the current totals of ``key``, and return the increase of the totals in the last seconds.

        At the first call for a key, return the totals. If the totals begin at 0 again, they belong to a new process. The result then covers
        only the new process.
        """
        seen = self._seen.setdefault(key, deque())
        if seen and (stats.seconds < seen[-1].seconds or len(stats.stages) != len(seen[-1].stages)):
            seen.clear()
        if not seen or stats.seconds > seen[-1].seconds:
            seen.append(stats)
        while len(seen) > 2 and seen[-1].seconds - seen[1].seconds >= self.window:
            seen.popleft()
        return seen[-1] if len(seen) == 1 else minus(seen[-1], seen[0])

    def keep(self, keys: Collection[Hashable]) -> None:
        """Delete the statistics of all keys that are not in ``keys``, to free memory."""
        self._seen = {key: seen for key, seen in self._seen.items() if key in keys}


def plus(first: PipelineStats | None, second: PipelineStats | None) -> PipelineStats | None:
    """Return the sum of two processes' statistics.

    Values that cannot be added, such as the level of a queue, come from ``second``. If one argument is ``None``, return the other.
    """
    if first is None or second is None:
        return second or first
    return _combined(second, first, 1)


def minus(last: PipelineStats, first: PipelineStats) -> PipelineStats:
    """Return the difference of a replica's statistics between two moments."""
    return _combined(last, first, -1)


def share(stages: Sequence[StageStats], part: Part) -> float:
    """Return the fraction of time, 0 to 1, in which the workers of a stage were in a state, over all replicas.

    ``part`` is the state: ``busy``, ``starved`` (waiting for input) or ``blocked`` (waiting for room).
    """
    total = sum(one.busy + one.starved + one.blocked for one in stages)
    found: float = sum(getattr(one, part) for one in stages) / max(total, 1e-9)
    return found


def waited(stats: PipelineStats) -> float:
    """Return the seconds in which the consumer waited for data: the sink, or the loop over a pipeline without a sink."""
    last = stats.stages[-1]
    return last.starved if last.shape == "sink" else stats.waited


def load(stats: PipelineStats) -> float:
    """Return the fraction of time, 0 to 1, in which a role had work, and did not wait for its input or its receivers."""
    return max(0.0, 1.0 - share(stats.stages[:1], "starved") - share(stats.stages[-1:], "blocked"))


def _combined(stats: PipelineStats, other: PipelineStats, sign: int) -> PipelineStats:
    others = {stage.name: stage for stage in other.stages}
    stages = [_add(stage, others[stage.name], sign) if stage.name in others else stage for stage in stats.stages]
    sums = {name: getattr(stats, name) + sign * getattr(other, name) for name in ("seconds", "cpu", "waited")}
    return replace(stats, stages=stages, **sums)


def _add(stage: StageStats, other: StageStats, sign: int) -> StageStats:
    counts: dict[str, Any] = {name: getattr(stage, name) + sign * getattr(other, name) for name in _COUNTS}
    links = {name: stage.counters[name] + sign * other.counters.get(name, 0) for name in LINK_COUNTERS if name in stage.counters}
    counters: Mapping[str, Any] = {**stage.counters, **links}
    return replace(stage, counters=counters, **counts)

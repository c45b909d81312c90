"""The figures of replicas under the names that Prometheus reads, and whether all is well with them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from highway.engine.stats import StageStats
from highway.observe.snapshot import Ends, Snapshot
from highway.observe.state import ReplicaState
from highway.wire.counters import LINK_COUNTERS
from highway.wire.tally import Counts

REPLICA = ("role", "replica")
STAGE = (*REPLICA, "stage")
LINK = (*STAGE, "link")

STAGES: Mapping[str, tuple[type[Any], str, str]] = {
    "items": (CounterMetricFamily, "highway_stage_items", "Items handed on; for a sink, items taken."),
    "bytes": (CounterMetricFamily, "highway_stage_bytes", "Bytes of the arrays in them."),
    "errors": (CounterMetricFamily, "highway_stage_errors", "Errors left out under on_error: skip."),
    "busy": (CounterMetricFamily, "highway_stage_busy_seconds", "Seconds its workers worked, all together."),
    "starved": (CounterMetricFamily, "highway_stage_starved_seconds", "Seconds they waited for input."),
    "blocked": (CounterMetricFamily, "highway_stage_blocked_seconds", "Seconds they waited for room behind them."),
    "queued": (GaugeMetricFamily, "highway_stage_queued", "Items that wait behind it or are being made."),
    "capacity": (GaugeMetricFamily, "highway_stage_capacity", "How many of these there can be."),
}
"""Field of :class:`StageStats` -> its metric."""


def registry(snapshot: Callable[[], Snapshot]) -> CollectorRegistry:
    """Return what ``prometheus_client`` renders: the figures of ``snapshot()`` at each time it is asked."""
    found = CollectorRegistry(auto_describe=False)
    found.register(_Figures(snapshot))
    return found


def health(snapshot: Snapshot) -> list[str]:
    """Return what is wrong, in words: which replicas have failed, and which wait to be started again."""
    words = {"failed": "failed", "waiting": "waits to be started again"}
    return [" ".join(filter(None, (one.name, words[one.phase], one.error))) for one in snapshot.states if one.phase in words]


def link_counts(stage: StageStats, counts: Counts) -> Mapping[str, float]:
    """Return what the stage at the end of a link counts.

    Args:
        stage: The stage: a source, which has counters of its own, or a sink.
        counts: The messages of its replica.
    """
    if stage.shape == "sink":
        return {"messages": counts.sent, "bytes": stage.bytes}
    return {**{name: stage.counters[name] for name in LINK_COUNTERS if name in stage.counters}, "messages": counts.received}


def ends_of(state: ReplicaState, ends: Ends) -> Iterator[tuple[StageStats, str]]:
    """Yield the stages of a replica that stand at the end of a link, each with the link's name."""
    if state.stats is not None:
        if ends.receives:
            yield state.stats.stages[0], ends.receives
        if ends.sends:
            yield state.stats.stages[-1], ends.sends


class _Figures(Collector):
    def __init__(self, snapshot: Callable[[], Snapshot]) -> None:
        self._snapshot = snapshot

    def collect(self) -> Iterator[Metric]:
        snapshot = self._snapshot()
        up = GaugeMetricFamily("highway_role_up", "Whether the replica works: 1 or 0.", labels=REPLICA)
        restarts = CounterMetricFamily("highway_role_restarts", "How many times it was started again.", labels=REPLICA)
        for state in snapshot.states:
            up.add_metric(_replica(state), float(state.phase in ("running", "draining")))
            restarts.add_metric(_replica(state), state.restarts)
        yield from (up, restarts)
        yield from _stages(snapshot)
        yield from _links(snapshot)
        yield from _losses(snapshot)


def _stages(snapshot: Snapshot) -> Iterator[Metric]:
    for field, (kind, name, about) in STAGES.items():
        family = kind(name, about, labels=STAGE)
        for state in snapshot.states:
            for stage in state.stats.stages if state.stats else ():
                family.add_metric([*_replica(state), stage.name], getattr(stage, field))
        yield family


def _links(snapshot: Snapshot) -> Iterator[Metric]:
    for count, counter in LINK_COUNTERS.items():
        family = CounterMetricFamily(f"highway_link_{count}", counter.about, labels=LINK)
        for state in snapshot.states:
            for stage, link in ends_of(state, snapshot.ends.get(state.name, Ends())):
                if (value := link_counts(stage, state.counts).get(count)) is not None:
                    family.add_metric([*_replica(state), stage.name, link], value)
        yield family


def _losses(snapshot: Snapshot) -> Iterator[Metric]:
    missing = GaugeMetricFamily("highway_link_missing", "Messages sent and not received: under way, or lost.", labels=("link",))
    lost = CounterMetricFamily("highway_link_lost", "Messages lost since a process at an end of the link has ended.", labels=("link",))
    for link, loss in snapshot.losses.items():
        missing.add_metric([link], loss.missing)
        lost.add_metric([link], loss.lost)
    yield from (missing, lost)


def _replica(state: ReplicaState) -> list[str]:
    return [state.role, str(state.replica)]

"""The statistics of replicas (processes of roles) as metrics for Prometheus, and the health of the replicas."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from highway.observe.figures import waited
from highway.observe.snapshot import Ends, Snapshot
from highway.observe.state import ReplicaState
from highway.wire.counters import LINK_COUNTERS

REPLICA = ("role", "replica")
STAGE = (*REPLICA, "stage")
LINK = (*STAGE, "link")

STAGES: Mapping[str, tuple[type[Any], str, str]] = {
    "items": (CounterMetricFamily, "highway_stage_items", "Items that the stage passed on; for a sink, items that it received."),
    "bytes": (CounterMetricFamily, "highway_stage_bytes", "Bytes of the arrays in these items."),
    "errors": (CounterMetricFamily, "highway_stage_errors", "Errors skipped because of on_error: skip."),
    "busy": (CounterMetricFamily, "highway_stage_busy_seconds", "Seconds in which the workers were busy, summed over all workers."),
    "starved": (
        CounterMetricFamily,
        "highway_stage_starved_seconds",
        "Seconds in which the workers waited for input, summed over all workers.",
    ),
    "blocked": (
        CounterMetricFamily,
        "highway_stage_blocked_seconds",
        "Seconds in which the workers waited for room after the stage, summed over all workers.",
    ),
    "queued": (GaugeMetricFamily, "highway_stage_queued", "Items that wait after the stage or that its workers are making."),
    "capacity": (GaugeMetricFamily, "highway_stage_capacity", "Maximum of highway_stage_queued."),
}
"""Maps each field of ``StageStats`` to its metric."""


def registry(snapshot: Callable[[], Snapshot]) -> CollectorRegistry:
    """Return a registry for ``prometheus_client``. Each scrape reads the statistics of ``snapshot()``."""
    found = CollectorRegistry(auto_describe=False)
    found.register(_Figures(snapshot))
    return found


def health(snapshot: Snapshot) -> list[str]:
    """Return a sentence for each replica that has failed or waits for a restart."""
    words = {"failed": "failed", "waiting": "waits for its restart"}
    return [" ".join(filter(None, (one.name, words[one.phase], one.error))) for one in snapshot.states if one.phase in words]


class _Figures(Collector):
    def __init__(self, snapshot: Callable[[], Snapshot]) -> None:
        self._snapshot = snapshot

    def collect(self) -> Iterator[Metric]:
        snapshot = self._snapshot()
        up = GaugeMetricFamily("highway_role_up", "Whether the replica works: 1 or 0.", labels=REPLICA)
        restarts = CounterMetricFamily("highway_role_restarts", "Number of restarts of the replica.", labels=REPLICA)
        load = GaugeMetricFamily(
            "highway_role_load", "Fraction of the last 30 seconds, 0 to 1, in which the replica had work to do.", labels=REPLICA
        )
        waits = CounterMetricFamily("highway_trainer_waited_seconds", "Seconds that the trainer waited for data.", labels=REPLICA)
        for state in snapshot.states:
            if state.stats and not snapshot.ends.get(state.name, Ends()).sends:
                waits.add_metric(_replica(state), waited(state.stats))
            if state.name in snapshot.loads:
                load.add_metric(_replica(state), snapshot.loads[state.name])
            up.add_metric(_replica(state), float(state.phase in ("running", "draining")))
            restarts.add_metric(_replica(state), state.restarts)
        yield from (up, restarts, load, waits)
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
    ends = [end for state in snapshot.states for end in _ends(state, snapshot.ends.get(state.name, Ends()))]
    for name, counter in LINK_COUNTERS.items():
        family = CounterMetricFamily(f"highway_link_{name}", counter.about, labels=LINK)
        for labels, counts in ends:
            if name in counts:
                family.add_metric(labels, counts[name])
        yield family


def _ends(state: ReplicaState, ends: Ends) -> Iterator[tuple[list[str], Mapping[str, float]]]:
    """Yield the labels and counters of each end of a link at a replica. Only the receiving end has gaps, duplicates and similar counts."""
    if state.stats and ends.receives:
        source = state.stats.stages[0]
        yield [*_replica(state), source.name, ends.receives], {**source.counters, "messages": state.counts.received}
    if state.stats and ends.sends:
        sink = state.stats.stages[-1]
        yield [*_replica(state), sink.name, ends.sends], {"messages": state.counts.sent, "bytes": sink.bytes}


def _losses(snapshot: Snapshot) -> Iterator[Metric]:
    missing = GaugeMetricFamily(
        "highway_link_missing", "Messages that were sent but not received. They are still in transit, or lost.", labels=("link",)
    )
    lost = CounterMetricFamily(
        "highway_link_lost", "Messages that were lost when processes at the ends of the link ended.", labels=("link",)
    )
    for link, loss in snapshot.losses.items():
        missing.add_metric([link], loss.missing)
        lost.add_metric([link], loss.lost)
    yield from (missing, lost)


def _replica(state: ReplicaState) -> list[str]:
    return [state.role, str(state.replica)]

"""Export the metrics of a run to Ray's own metrics.

Ray shows the metrics of ``--metrics`` with the prefix ``ray_``, and with the name of the run as a label.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any

from highway.observe.latest import Latest
from highway.observe.metrics import registry
from highway.observe.state import ReplicaState
from highway.topology.wiring import Wiring

PAUSE = 2.0  # seconds between two updates; Ray exports metrics every 10 s, unless RAY_metrics_report_interval_ms is set

Point = tuple[str, tuple[tuple[str, str], ...]]  # the name and the labels of a metric


class RayMetrics:
    """Exports metrics to ``ray.util.metrics``: a :class:`~highway.run.supervise.Watcher`.

    Args:
        wiring: The processes of the run.
        run: The name of the run.
    """

    def __init__(self, wiring: Wiring, run: str) -> None:
        self._latest, self._run = Latest(wiring), run
        self._registry = registry(self._latest.snapshot)
        self._metrics: dict[str, Any] = {}
        self._last: dict[Point, float] = {}
        self._due = float("-inf")

    def update(self, states: Iterable[ReplicaState]) -> None:
        """Record the states of the replicas, and export metrics every ``PAUSE`` seconds."""
        self._latest.update(states)
        if time.monotonic() >= self._due:
            self.flush()

    def flush(self) -> None:
        """Export the current values."""
        self._due = time.monotonic() + PAUSE
        gone = {point for point in self._last if hasattr(self._metrics[point[0]], "set")}
        for family in self._registry.collect():
            for sample in family.samples:
                point = family.name, tuple(sample.labels.items())
                gone.discard(point)
                self._pass_on(point, sample.value, family.type == "counter", family.documentation)
        for point in gone:  # such as the load of an ended replica; otherwise, Ray would keep the last value
            self._pass_on(point, 0.0, False, "")

    def _pass_on(self, point: Point, value: float, counts: bool, about: str) -> None:
        from ray.util.metrics import Counter, Gauge

        (name, labels), last = point, self._last.get(point, 0.0)
        if name not in self._metrics:
            keys = ("run", *dict(labels))
            self._metrics[name] = Counter(name, about, keys) if counts else Gauge(name, about, keys)
        tags = {"run": self._run, **dict(labels)}
        if not counts:
            self._metrics[name].set(value, tags)
        elif value > last:
            self._metrics[name].inc(value - last, tags)
        self._last[point] = value

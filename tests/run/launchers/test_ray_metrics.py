"""What Ray is told of figures, by a record of its calls; test_ray_launcher.py reads them from Ray itself."""

import sys
import types

import pytest

from highway.engine.stats import PipelineStats, StageStats
from highway.observe.state import ReplicaState
from highway.run.launchers import ray_metrics
from highway.run.launchers.ray_metrics import RayMetrics
from highway.topology import load_checked
from highway.topology.wiring import Wiring


@pytest.fixture
def told(monkeypatch):
    """The values that Ray has: those of counters added up."""
    values = {}

    class Metric:
        def __init__(self, name, about, keys):
            self.name, self.keys = name, keys

        def point(self, tags):
            assert set(tags) == set(self.keys) and tags["run"] == "feed"
            return self.name, *(tags[key] for key in self.keys if key != "run")

    class Counter(Metric):
        def inc(self, value, tags):
            assert value > 0  # as Ray asks
            values[self.point(tags)] = values.get(self.point(tags), 0) + value

    class Gauge(Metric):
        def set(self, value, tags):
            values[self.point(tags)] = value

    monkeypatch.setitem(sys.modules, "ray.util.metrics", types.SimpleNamespace(Counter=Counter, Gauge=Gauge))
    return values


@pytest.fixture
def metrics(write, monkeypatch):
    monkeypatch.setattr(ray_metrics, "PAUSE", 0.0)
    topology = load_checked(write("roles: {a: [Noise: [2], Benchmark]}"))
    return RayMetrics(Wiring(topology, topology.processes()), "feed")


def state(items, phase="running", restarts=0):
    stats = PipelineStats([StageStats("Noise", 1, items, 8 * items, queued=3, capacity=4)], seconds=float(items))
    return ReplicaState("a", phase=phase, stats=stats, restarts=restarts)


def test_counters_grow_by_what_came_also_over_a_restart(metrics, told):
    for each in (state(5), state(7), state(2, restarts=1)):
        metrics.update([each])
    assert told["highway_stage_items", "a", "0", "Noise"] == 9
    assert told["highway_role_restarts", "a", "0"] == 1
    assert told["highway_stage_queued", "a", "0", "Noise"] == 3
    assert ("highway_stage_errors", "a", "0", "Noise") not in told  # Ray takes no 0


def test_a_replica_that_works_no_more_has_no_load(metrics, told):
    metrics.update([state(5)])
    assert told["highway_role_load", "a", "0"] > 0 and told["highway_role_up", "a", "0"] == 1
    metrics.update([state(5, "ended")])
    assert told["highway_role_load", "a", "0"] == 0 and told["highway_role_up", "a", "0"] == 0


def test_figures_are_passed_on_now_and_then_and_at_the_end(metrics, told, monkeypatch):
    monkeypatch.setattr(ray_metrics, "PAUSE", 1000.0)
    metrics.update([state(5)])
    metrics.update([state(9)])
    assert told["highway_stage_items", "a", "0", "Noise"] == 5
    metrics.flush()
    assert told["highway_stage_items", "a", "0", "Noise"] == 9

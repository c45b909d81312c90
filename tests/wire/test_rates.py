"""Rates of messages."""

from types import SimpleNamespace

import pytest

from highway.wire import rates
from highway.wire.rates import Statistics


@pytest.fixture
def clock(monkeypatch):
    now = [100.0]
    monkeypatch.setattr(rates, "time", SimpleNamespace(monotonic=lambda: now[0]))
    return now


def test_rates_over_all_time_and_of_late(clock):
    stats = Statistics(horizon=3)
    for seconds, size in ((10, 100), (20, 300), (1, 50), (1, 70)):
        clock[0] += seconds
        stats.add(size)
    assert (stats.count, stats.total) == (4, 520)
    assert stats.rate() == pytest.approx(4 / 32)
    assert stats.throughput() == pytest.approx(520 / 32)
    assert stats.recent_rate() == pytest.approx(2 / 2)
    assert stats.recent_throughput() == pytest.approx((50 + 70) / 2)
    assert stats.summary() == "rate 1.0 msg/s throughput 6.00e+01 bytes/s"


def test_there_is_no_rate_before_there_is_time(clock):
    stats = Statistics()
    assert (stats.rate(), stats.throughput(), stats.recent_rate(), stats.recent_throughput()) == (0, 0, 0, 0)
    stats.add(5)
    assert (stats.rate(), stats.throughput(), stats.recent_rate(), stats.recent_throughput()) == (0, 0, 0, 0)


def test_reset_starts_again(clock):
    stats = Statistics()
    stats.add(5)
    clock[0] += 10
    stats.reset()
    clock[0] += 2
    stats.add(6)
    assert (stats.count, stats.rate(), stats.throughput()) == (1, 0.5, 3)

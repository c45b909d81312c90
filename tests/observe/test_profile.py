import ctypes
import sys
import time
from types import SimpleNamespace

import numpy as np
import pytest
from waiting import wait_until

from highway.engine.cancel import wait
from highway.engine.stage import DROP, Passport, Stamped, expand
from highway.modules import ZMQSink
from highway.observe.profile import Rival, measure_link, profile
from highway.process.cores import cpu_seconds


@pytest.fixture
def patient():
    """Let who waits for the GIL wait for it and nothing else, so that it is not also one that waits for a core."""
    interval = sys.getswitchinterval()
    sys.setswitchinterval(0.5)
    yield
    sys.setswitchinterval(interval)


def hold_the_gil(seconds):
    """Keep the GIL for so long, at most a second, without a core that another thread may be waiting for."""
    ctypes.PyDLL(None).usleep(int(1e6 * seconds))


def kept_out(function, seconds):
    """Return how long a rival could not work while a function ran."""
    with Rival() as rival:
        function(seconds)
    return rival.kept_out


# What a rival finds is too little where it waits for a core, and too much where all of this process is stopped for a moment: then another
# measurement is right.


@pytest.mark.usefixtures("patient")
def test_who_holds_the_gil_keeps_a_rival_out():
    wait_until(lambda: kept_out(hold_the_gil, 0.1) > 0.05)


def test_who_sleeps_keeps_no_rival_out():
    wait_until(lambda: kept_out(time.sleep, 0.3) < 0.2)


class Read:
    """A map that reads a file, and works and sleeps for so long; it keeps count of its items and of its seconds of work."""

    def __init__(self, path):
        self.path, self.count, self.worked = path, 0, 0.0

    def __call__(self, item):
        began = time.thread_time()
        sum(range(200_000))
        time.sleep(0.012)
        read = np.frombuffer(self.path.read_bytes(), np.uint8)
        self.count, self.worked = self.count + 1, self.worked + time.thread_time() - began
        return read


@pytest.fixture
def read(tmp_path):
    """A map that makes items of 30 kB, read from a file."""
    (tmp_path / "file").write_bytes(bytes(30_000))
    return Read(tmp_path / "file")


def test_a_stage_takes_threads_for_all_its_time_and_cores_for_what_it_works(read):
    began = cpu_seconds()
    figures = profile(expand([list(range(20)), read]), 0, 20, 30.0).stages[1]
    used = cpu_seconds() - began  # with what others in this process have worked meanwhile
    worked = read.worked / read.count
    assert figures.seconds >= 0.99 * (0.012 + worked)  # two clocks may differ a little
    assert 0.99 * worked <= figures.cpu <= 1.01 * used / read.count
    assert 30_000 <= figures.read < 33_000
    assert figures.nbytes == 30_000


@pytest.mark.slow
@pytest.mark.usefixtures("patient")
def test_how_long_a_stage_holds_the_gil_is_measured_beside_a_rival():
    def hold(item):
        hold_the_gil(0.05)
        return item

    def held(rivalled):
        return profile(expand([list(range(5)), hold]), 0, 5, 30.0, rivalled=rivalled).stages[1].held

    assert held(False) == 0.0
    wait_until(lambda: held(True) > 0.0)


@pytest.fixture
def sure_source(monkeypatch):
    """Have no source taken for one that has given what it has because its next item is late."""
    monkeypatch.setattr("highway.observe.profile.IDLE", 100.0)


@pytest.mark.usefixtures("sure_source")
def test_what_a_stage_makes_is_told_for_each_item_at_the_end():
    class Half:
        def stream(self, items):
            for number, item in enumerate(items):
                if number % 2:
                    yield item

    found = profile(expand([list(range(20)), lambda n: np.zeros(n), Half()]), 0, 20, 30.0)
    assert found.taken == 2.0
    assert found.example.item.shape == (1,)


@pytest.fixture
def clock(monkeypatch):
    """The profiler's clock: it shows what a test sets it to."""
    clock = SimpleNamespace(now=0.0, perf_counter=lambda: clock.now)
    monkeypatch.setattr("highway.observe.profile.time", clock)
    return clock


@pytest.mark.parametrize("seconds", [0.01, 1000.0], ids=["does what it has taken", "does not"])
def test_a_map_that_is_cut_short_has_made_of_all_that_it_has_taken(clock, seconds):
    def slow(item):
        clock.now += 0.01
        if clock.now > 1.5:
            wait(seconds)
        return item

    assert profile(expand([list(range(1000)), slow]), 0, 1000, 1.5).taken == 1.0
    assert clock.now < 9, "it was not cut short"


def test_what_a_map_leaves_out_is_told_though_it_is_cut_short(clock, monkeypatch):
    monkeypatch.setattr("highway.observe.profile.PATIENCE", 100.0)  # a busy machine takes longer to do what was taken

    def every_other(number):
        clock.now += 0.01
        if clock.now > 1.5:
            wait(0.01)
        return number if number % 2 else DROP

    assert profile(expand([list(range(1000)), every_other]), 0, 1000, 1.5).taken == pytest.approx(2, rel=0.02)
    assert clock.now < 9, "it was not cut short"


def test_the_example_of_a_sink_is_what_it_takes():
    class Drain:
        def consume(self, items):
            for _ in items:
                pass

    assert profile(expand([["a", "b"], Drain()]), 0, 2, 30.0).example.item == "a"


@pytest.mark.parametrize("url", ["zpush://127.0.0.1:1", "zpush+ipc:///tmp/nowhere", "zpush+shm://nowhere"])
def test_a_link_is_measured_by_another_of_its_kind(url, monkeypatch):
    monkeypatch.setattr("highway.observe.profile.TIMEOUT", 100.0)
    batch = (np.zeros((4, 1000), np.uint8), np.zeros(4, np.int32))
    cost = measure_link(ZMQSink(url).link, False, [Stamped(batch, Passport())])
    assert 4016 <= cost.nbytes < 5000
    assert 0 <= cost.held <= cost.cpu and 0 < cost.cpu < cost.seconds * 2  # held is 0 where the rival always waited for a core

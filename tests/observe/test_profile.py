import sys
import time

import numpy as np
import pytest

from highway.engine.stage import DROP, Passport, Stamped, expand
from highway.modules import ZMQSink
from highway.observe.link_cost import measure_link
from highway.observe.profile import profile
from highway.observe.rival import Rival


@pytest.fixture
def patient():
    """Let who waits for the GIL wait for it and nothing else, so that it is not also one that waits for a core."""
    interval = sys.getswitchinterval()
    sys.setswitchinterval(0.5)
    yield
    sys.setswitchinterval(interval)


@pytest.mark.usefixtures("patient")
def test_who_holds_the_gil_keeps_a_rival_out():
    with Rival() as rival:
        time.sleep(0.01)
        began = time.thread_time()
        sum(range(5_000_000))  # in C, without letting go of it
        held = time.thread_time() - began
        time.sleep(0.01)
    assert rival.kept_out > 0.5 * held


def test_who_sleeps_keeps_no_rival_out():
    with Rival() as rival:
        time.sleep(0.3)
    assert rival.kept_out < 0.2


class Read:
    """A map that reads a file, and works and sleeps for so long."""

    def __init__(self, path):
        self.path = path

    def __call__(self, item):
        sum(range(200_000))  # in C, without letting go of the GIL
        time.sleep(0.012)
        return np.frombuffer(self.path.read_bytes(), np.uint8)


@pytest.fixture
def source(tmp_path):
    """A source and a map that make 20 items of 30 kB, read from a file."""
    (tmp_path / "file").write_bytes(bytes(30_000))
    return [list(range(20)), Read(tmp_path / "file")]


def test_a_stage_takes_threads_for_all_its_time_and_cores_and_the_gil_for_what_it_works(source):
    figures = profile(expand(source), 0, 20, 30.0).stages[1]
    assert figures.seconds >= 0.012 + 0.5 * figures.cpu
    assert figures.cpu > 0.001
    assert 30_000 <= figures.read < 33_000
    assert figures.nbytes == 30_000


@pytest.mark.usefixtures("patient")
def test_how_long_a_stage_holds_the_gil_is_measured_beside_a_rival():
    stages = [list(range(5)), lambda _: sum(range(1_000_000))]
    assert profile(expand(stages), 0, 5, 30.0).stages[1].held == 0.0
    assert profile(expand(stages), 0, 5, 30.0, rivalled=True).stages[1].held > 0.0


def test_what_a_stage_makes_is_told_for_each_item_at_the_end():
    class Half:
        def stream(self, items):
            for number, item in enumerate(items):
                if number % 2:
                    yield item

    found = profile(expand([list(range(20)), lambda n: np.zeros(n), Half()]), 0, 20, 30.0)
    assert [figures.made for figures in found.stages] == [2.0, 2.0, 1.0]
    assert found.example.item.shape == (1,)


@pytest.mark.parametrize("seconds", [0.01, 0.2])
def test_a_map_that_is_cut_short_has_made_of_all_that_it_has_taken(seconds):
    def slow(item):
        time.sleep(seconds)
        return item

    assert profile(expand([list(range(1000)), slow]), 0, 1000, 1.5).stages[0].made == 1.0


def test_what_a_map_leaves_out_is_told_though_it_is_cut_short(monkeypatch):
    monkeypatch.setattr("highway.observe.profile.PATIENCE", 30.0)  # a busy machine takes longer to do what was taken

    def every_other(number):
        time.sleep(0.005)
        return number if number % 2 else DROP

    made = profile(expand([list(range(1000)), every_other]), 0, 1000, 1.5).stages[0].made
    assert 1.5 < made < 3


def test_the_example_of_a_sink_is_what_it_takes():
    class Drain:
        def consume(self, items):
            for _ in items:
                pass

    assert profile(expand([["a", "b"], Drain()]), 0, 2, 30.0).example.item == "a"


@pytest.mark.parametrize("url", ["zpush://127.0.0.1:1", "zpush+ipc:///tmp/nowhere", "zpush+shm://nowhere"])
def test_a_link_is_measured_by_another_of_its_kind(url):
    batch = (np.zeros((4, 1000), np.uint8), np.zeros(4, np.int32))
    cost = measure_link(ZMQSink(url).link, False, [Stamped(batch, Passport())])
    assert 4016 <= cost.nbytes < 5000
    assert 0 <= cost.held <= cost.cpu and 0 < cost.cpu < cost.seconds * 2  # held is 0 where the rival always waited for a core

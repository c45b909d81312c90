"""Replicas that are started while their role is loaded, and drained while fewer would do: the decision, made-up processes, real ones."""

import json
import os
import re
import signal
import time
from collections import Counter
from pathlib import Path

import pytest

from highway.engine.stats import PipelineStats, StageStats
from highway.run import replica, scaling, supervise
from highway.run.launchers.table import ENGINES
from highway.run.report import RoleReport
from highway.run.scaling import Look, wanted
from highway.run.supervise import launch
from highway.topology import load_checked
from highway.topology.spec import AutoscaleSpec
from highway.wire.tally import Counts

# --- the decision ---

SCALE = AutoscaleSpec(min=1, max=4, grow_s=5, shrink_s=60)


def looks(replicas, seconds, *loads, waiting=1):
    """Return looks of the last so many seconds, two a second; each load lasts as long as the others."""
    count = 2 * seconds + 1
    return [Look(100 + number / 2, replicas, loads[number * len(loads) // count], waiting) for number in range(count)]


@pytest.mark.parametrize(
    ("replicas", "found", "number"),
    [
        (1, looks(1, 5, 0.9), 2),
        (1, looks(1, 5, 0.8), 1),  # as much as it is to work
        (1, looks(1, 4, 1.0), 1),  # not for long enough
        (4, looks(4, 5, 1.0), 4),  # there are no more
        (2, looks(2, 5, 1.0), 3),  # one at a time
        (1, looks(1, 5, 1.0, waiting=0), 1),  # nothing would be left for another one
        (1, looks(1, 5, 1.0, waiting=None), 2),  # it is not seen what waits
        (1, [*looks(1, 5, 1.0, waiting=0)[:-1], Look(105, 1, 1.0, 3)], 2),
        (1, [Look(99, 1, 1.0, 3), *looks(1, 5, 1.0, waiting=0)], 1),  # what has waited before
        (1, [Look(0, 1, 0.0), Look(100, 1, 0.9)], 2),  # the last load is that of the last seconds
        (2, looks(2, 60, 0.29), 1),  # the other one would work 58% of its time
        (2, looks(2, 60, 0.31), 2),
        (2, looks(2, 59, 0.0), 2),  # not for long enough
        (2, looks(2, 60, 0.0, 0.5, 0.0), 2),  # it was needed meanwhile
        (2, [Look(0, 2, 0.9), *looks(2, 60, 0.0)], 1),  # but not of late
        (1, looks(1, 60, 0.0), 1),  # there are no fewer
        (4, looks(4, 60, 0.44), 3),
        (4, looks(4, 60, 0.46), 4),
        (3, looks(3, 60, 0.81, waiting=0), 3),  # neither nor
    ],
)
def test_one_more_while_there_is_too_much_work_and_one_fewer_while_fewer_would_do(replicas, found, number):
    assert found[-1].replicas == replicas
    assert wanted(found, SCALE) == number


@pytest.mark.parametrize("work", [0.3, 0.5, 0.79, 0.81, 1.3, 1.59, 1.61, 2.0, 2.4, 2.41, 3.3, 9.0])
def test_a_load_that_stays_as_it_is_brings_a_number_that_stays(work):
    """``work`` is what so many replicas would do if they never waited."""
    for start in range(1, 5):
        steps = [start]
        while (number := wanted(looks(steps[-1], 60, min(1.0, work / steps[-1])), SCALE)) != steps[-1]:
            steps.append(number)
            assert len(steps) <= 4, steps
        assert work / steps[-1] <= 1 or steps[-1] == 4


# --- made-up processes ---

FILE = """
links:
  raw: {from: reader, to: worker, port: 7801}
  done: {from: worker, to: trainer, port: 7802, bind: to}
roles:
  reader: {stages: [Noise: {shape: [2]}, ZMQSink: {link: raw}]}
  worker:
    autoscale: {min: 1, max: 3, grow_s: 0.1, shrink_s: 0.2}
    restart: {when: on-failure, delay_s: 0.01}
    stages: [ZMQSource: {link: raw}, Identity, ZMQSink: {link: done}]
  trainer: {stages: [ZMQSource: {link: done}, Benchmark]}
"""


class Played:
    """A process of a role that works as much of its time as the cluster says, until it is asked to end or has come to its end."""

    is_lost = False

    address = "elsewhere"

    def __init__(self, cluster, spec):
        self.cluster, self.name, self.arguments = cluster, spec.name, spec.arguments
        self.signals, self.code, self.begun, self.said = [], None, True, []
        self.seconds, self.starved, self.last = 0.0, 0.0, cluster.clock.monotonic()

    def poll(self):
        return self.code

    def signal(self, number):
        self.signals.append(number)
        if number != signal.SIGTERM or not self.cluster.drains_slowly:
            self.code = 128 + number

    def end(self, code=0, error=""):
        self.code = code
        self.said.append(RoleReport(error=error) if error else RoleReport(done=True))

    def reports(self):
        said, self.said = self.said, []
        if not self.begun:
            return said
        now = self.cluster.clock.monotonic()
        self.seconds, self.starved = self.seconds + now - self.last, self.starved + (now - self.last) * (1 - self.cluster.load)
        self.last = now
        source = StageStats("source", 1, busy=self.seconds - self.starved, starved=self.starved)
        return [RoleReport(stats=PipelineStats([source, StageStats("sink", 1)], self.seconds)), *said]

    def counts(self):
        return Counts(sent=2) if self.name == "reader" else Counts()


class Clock:
    """Has time pass only while the launcher waits, so that what happens when does not depend on the machine."""

    def __init__(self):
        self.now = time.monotonic()

    def monotonic(self):
        return self.now


class PlayedLauncher:
    """Starts what is played, and goes through a script between two looks: a generator that yields what it waits for."""

    def __init__(self, clock, script):
        self.clock = clock
        self.load, self.drains_slowly, self.refusal, self.begins = 0.0, False, "", True
        self.started, self.script, self.awaited = [], script(self), None

    def start(self, spec):
        process = Played(self, spec)
        if "worker" in spec.name and self.all("worker["):
            if self.refusal == "here":
                raise OSError("no more processes")
            if self.refusal:
                process.begun = False
                process.end(1, self.refusal)
            process.begun &= self.begins
        self.started.append(process)
        return process

    def all(self, name=""):
        """Return the processes that run of those whose names begin so."""
        return [process for process in self.started if process.name.startswith(name) and process.code is None]

    def names(self, name="worker["):
        return [process.name for process in self.all(name)]

    def end_all(self):
        for process in self.all():
            process.end()

    def wait(self, seconds):
        if self.awaited is None or self.awaited():
            self.awaited = next(self.script, lambda: False)
        self.clock.now += min(seconds, 0.005)
        return False

    def lasting(self, seconds):
        """Return what holds from so many seconds on."""
        until = self.clock.now + seconds
        return lambda: self.clock.now >= until

    def close(self):
        pass


class Lines:
    def __init__(self):
        self.said, self.states = [], []

    def line(self, name, text, is_error):
        self.said.append(text)

    def update(self, states):
        self.states = states


@pytest.fixture
def play(write, monkeypatch):
    """Launch the file, with changes, and play a script."""
    clock = Clock()
    for module in (replica, scaling, supervise):
        monkeypatch.setattr(module, "time", clock)
    monkeypatch.setattr(scaling, "PAUSE", 0.01)

    def play(script, *changes):
        text = FILE
        for old, new in changes:
            assert old in text
            text = text.replace(old, new)
        launcher, lines = PlayedLauncher(clock, script), Lines()
        wiring = ENGINES["local"].placed(load_checked(write(text)))
        return launch(wiring, launcher, [], lines), launcher, lines

    return play


def test_replicas_come_and_go_with_the_load(play):
    seen = []

    def script(cluster):
        yield cluster.lasting(0.3)
        seen.append(cluster.names())
        cluster.load = 1.0
        yield lambda: len(cluster.all("worker[")) == 3
        seen.append(cluster.names())
        yield cluster.lasting(0.3)
        seen.append(cluster.names())
        cluster.load = 0.1
        yield lambda: len(cluster.all("worker[")) == 1
        yield cluster.lasting(0.3)
        seen.append(cluster.names())
        cluster.end_all()

    result, launcher, lines = play(script)
    three = ["worker[0]", "worker[1]", "worker[2]"]
    assert (result.code, seen) == (0, [three[:1], three, three, three[:1]])
    changes = [re.sub(r"\d+%", "N%", line) for line in lines.said]
    added = "is added: the running replicas were busy for N% of the last 0.1 s"
    drained = "is drained: without it, the other replicas would be busy for N% of the time"
    assert changes == [f"worker[1] {added}", f"worker[2] {added}", f"worker[2] {drained}", f"worker[1] {drained}"]
    assert [process.signals for process in launcher.started if process.name == "worker[2]"] == [[signal.SIGTERM]]
    assert [(state.name, state.phase, state.restarts) for state in result.states] == [
        ("reader", "ended", 0),
        *((name, "ended", 0) for name in three),
        ("trainer", "ended", 0),
    ]
    assert [process.arguments[-1] for process in launcher.all() if "worker" in process.name] == []


def test_only_replicas_that_were_started_are_shown(play):
    def script(cluster):
        yield cluster.lasting(0.3)
        cluster.end_all()

    result, _, lines = play(script)
    assert [state.name for state in lines.states] == ["reader", "worker[0]", "trainer"]
    assert lines.states == result.states


def test_a_drained_replica_is_started_again_when_there_is_work_again(play):
    def script(cluster):
        cluster.load = 1.0
        yield lambda: len(cluster.all("worker[")) == 3
        cluster.load = 0.0
        yield lambda: len(cluster.all("worker[")) == 1
        cluster.load = 1.0
        yield lambda: len(cluster.all("worker[")) == 3
        cluster.end_all()

    result, launcher, _ = play(script)
    assert result.code == 0
    assert [process.name for process in launcher.started].count("worker[2]") == 2


def test_one_that_hands_on_what_it_has_is_not_asked_twice_and_its_number_is_not_free(play):
    """A second SIGTERM would end it at once."""

    def script(cluster):
        cluster.load, cluster.drains_slowly = 1.0, True
        yield lambda: len(cluster.all("worker[")) == 3
        cluster.load = 0.0
        yield lambda: sum(len(process.signals) for process in cluster.all("worker[")) == 2
        cluster.load = 1.0
        yield cluster.lasting(0.3)
        assert len(cluster.started) == 5
        cluster.end_all()

    result, launcher, _ = play(script)
    assert result.code == 0
    assert [process.signals for process in launcher.started if "worker" in process.name] == [[], [signal.SIGTERM], [signal.SIGTERM]]


def test_who_is_drained_may_take_its_time_and_is_stopped_at_once_with_the_run(play):
    def script(cluster):
        cluster.load, cluster.drains_slowly = 1.0, True
        yield lambda: len(cluster.all("worker[")) == 2
        cluster.all("trainer")[0].end(1, "ValueError: no")

    result, launcher, _ = play(script)
    workers = [process for process in launcher.started if "worker" in process.name]
    assert result.code == 1
    assert [process.signals for process in workers] == [[signal.SIGINT]] * 2
    assert {process.arguments[-1] for process in workers} == {"--drain-timeout=86400"}


def test_one_that_fails_is_started_again_as_ever(play):
    def script(cluster):
        cluster.load = 1.0
        yield lambda: len(cluster.all("worker[")) == 3
        yield cluster.lasting(0.1)
        cluster.all("worker[1]")[0].end(-9, "no")
        yield lambda: len(cluster.all("worker[")) == 3
        cluster.end_all()

    result, _, lines = play(script)
    assert result.code == 0
    assert "worker[1] failed (killed by SIGKILL): no; restarts in 0.01 s (restart 1 of 10)" in lines.said
    assert [state.restarts for state in result.states] == [0, 0, 1, 0, 0]


@pytest.mark.parametrize(("when", "code"), [("on-failure", 0), ("never", 1)])
def test_one_that_is_lost_while_it_is_drained_is_as_bad_as_its_role_says(play, when, code):
    def script(cluster):
        cluster.load, cluster.drains_slowly = 1.0, True
        yield lambda: len(cluster.all("worker[")) == 3
        cluster.load = 0.0
        yield lambda: cluster.started[-1].signals
        cluster.drains_slowly = False
        cluster.started[-1].end(-9, "gone")
        yield cluster.lasting(0.1)
        cluster.end_all()

    result, _, lines = play(script, ("on-failure", when))
    assert result.code == code
    assert ("worker[2] failed while it was drained (killed by SIGKILL): gone" in lines.said) == (code == 0)
    assert ("worker[2] failed (killed by SIGKILL): gone" in result.message) == (code == 1)


@pytest.mark.parametrize(
    ("refusal", "why"), [("ConfigError: no GPU", "(exit code 1): ConfigError: no GPU"), ("here", "(no more processes)")]
)
def test_one_that_cannot_be_added_is_told_once_and_fails_nothing(play, monkeypatch, refusal, why):
    monkeypatch.setattr(scaling, "AGAIN", 0.05)

    def script(cluster):
        cluster.load, cluster.refusal = 1.0, refusal
        yield cluster.lasting(0.5)
        cluster.refusal = ""
        yield lambda: len(cluster.all("worker[")) == 3
        cluster.end_all()

    result, launcher, lines = play(script, ("on-failure", "never"))
    assert result.code == 0
    assert [line for line in lines.said if "cannot" in line] == [
        f"worker[1] cannot be added {why}; highway tries again every 0.05 s while the replica is needed"
    ]
    assert len([process for process in launcher.started if process.name == "worker[1]"]) > (1 if refusal != "here" else 0)


@pytest.mark.parametrize("least", [1, 5])
def test_one_that_waits_for_a_place_is_alone_in_that_and_is_taken_back_when_there_is_no_work_for_it(play, least):
    seen = []

    def script(cluster):
        cluster.load, cluster.begins = 1.0, False
        yield lambda: len(cluster.all("worker[")) == least + 1
        yield cluster.lasting(0.3)
        seen.append(cluster.names())
        cluster.load = 0.1
        yield lambda: len(cluster.all("worker[")) == least
        cluster.end_all()

    result, _, lines = play(script, ("min: 1, max: 3", f"min: {least}, max: {least + 2}"))
    assert (result.code, seen) == (0, [[f"worker[{number}]" for number in range(least + 1)]])
    assert [line.split(":")[0] for line in lines.said] == [f"worker[{least}] is added", f"worker[{least}] is drained"]


@pytest.mark.parametrize("code", [0, 143])
def test_one_that_waits_for_a_place_holds_up_neither_the_end_nor_a_drain(play, code):
    def script(cluster):
        cluster.load, cluster.begins = 1.0, False
        yield lambda: len(cluster.all("worker[")) == 2
        if code:
            os.kill(os.getpid(), signal.SIGTERM)
        else:
            cluster.all("reader")[0].end()
            cluster.all("worker[0]")[0].end()
        yield lambda: not cluster.all("worker[1]")
        cluster.end_all()

    result, launcher, _ = play(script)
    assert (result.code, launcher.started[-1].signals) == (code, [signal.SIGTERM])


def test_none_is_added_once_one_has_come_to_the_end_of_the_stream(play):
    def script(cluster):
        cluster.load = 1.0
        yield lambda: len(cluster.all("worker[")) == 2
        yield cluster.lasting(0.1)
        cluster.all("worker[0]")[0].end()
        yield cluster.lasting(0.3)
        cluster.end_all()

    result, launcher, _ = play(script)
    assert result.code == 0
    assert [process.name for process in launcher.started if "worker" in process.name] == ["worker[0]", "worker[1]"]


@pytest.mark.parametrize("number", [1, 2])
def test_whom_somebody_else_has_drained_stays_away(play, number):
    def script(cluster):
        cluster.load = 1.0
        yield lambda: len(cluster.all("worker[")) == 3
        yield cluster.lasting(0.1)
        process = cluster.all(f"worker[{number}]")[0]
        process.said.append(RoleReport(draining=True))
        process.code = 143
        yield cluster.lasting(0.3)
        cluster.end_all()

    result, launcher, _ = play(script, ("    autoscale", "    replicas: 2\n    autoscale"))
    assert result.code == 0
    assert [process.name for process in launcher.started].count(f"worker[{number}]") == 1


# --- real ones ---

WAVES = """
links:
  raw: {from: reader, to: worker, port: 1, transport: ipc}
  done: {from: worker, to: trainer, port: 2, transport: ipc, bind: to}
roles:
  reader: {stages: [$Waves: {high: 0.003, low: 0.1}, ZMQSink: {link: raw}]}
  worker:
    autoscale: {min: 1, max: 4, grow_s: 0.6, shrink_s: 1}
    restart: {when: on-failure, delay_s: 0.1}
    stages: [ZMQSource: {link: raw}, $Pass: {every: 0.02}, ZMQSink: {link: done}]
  trainer: {stages: [ZMQSource: {link: done}, $Say]}
"""


@pytest.mark.slow
@pytest.mark.parametrize("transport", ["ipc", "shm"])
def test_one_grows_to_four_and_shrinks_to_one_and_nothing_is_lost(write, start, numbers, transport):
    run = start("launch", write(WAVES.replace("ipc", transport)), "--on", "local", "--plugin", "mine", "--json")
    for number in (1, 2, 3):
        run.error.until(rf"worker\[{number}\] is added: ")
    run.error.until(r"worker\[3\] \| pid")
    Path("calm").touch()
    for number in (3, 2, 1):
        run.error.until(rf"worker\[{number}\] is drained: ")
    Path("stop").touch()
    code, out, error = run.end()
    assert code == 0, error
    got, summary = numbers(error), json.loads(out)
    assert sorted(got) == list(range(len(got)))
    assert [(link["sent"], link["received"]) for link in summary["links"]] == [(len(got), len(got))] * 2
    assert summary["losses"] == []
    added = Counter(re.findall(r"(worker\[\d\]) is added: ", error))  # on a machine that is busy perhaps again, in between
    assert [(replica["name"], replica["restarts"]) for replica in summary["replicas"]] == [
        ("reader", 0),
        ("worker[0]", 0),
        *((f"worker[{number}]", added[f"worker[{number}]"] - 1) for number in (1, 2, 3)),
        ("trainer", 0),
    ]


@pytest.mark.slow
def test_a_run_that_is_drained_while_a_replica_is_added_loses_nothing(write, start, numbers):
    run = start("launch", write(WAVES), "--on", "local", "--plugin", "mine", "--json")
    run.error.until(r"worker\[1\] is added: ")
    run.process.send_signal(signal.SIGTERM)
    code, out, error = run.end()
    assert code == 143, error
    got = numbers(error)
    assert sorted(got) == list(range(len(got)))
    assert json.loads(out)["losses"] == []


@pytest.mark.slow
def test_a_receiver_goes_on_when_the_one_that_is_left_is_killed_after_others_have_left(write, start, numbers):
    """Their ends must not count: only the last one tells of the end of the stream."""
    run = start("launch", write(WAVES.replace("max: 4", "max: 2")), "--on", "local", "--plugin", "mine", "--json")
    first = int(run.error.until(r"worker\[0\] \| pid (\d+)")[1])
    run.error.until(r"worker\[1\] \| pid")
    Path("calm").touch()
    run.error.until(r"worker\[1\] is drained: ")
    run.error.until(r"got")
    os.kill(first, signal.SIGKILL)
    run.error.until(r"worker\[0\] \| pid")
    last = int(run.error.until(r"got (\d+)")[1])
    Path("stop").touch()
    code, _, error = run.end()
    assert code == 0, error
    assert max(numbers(error)) >= last
    assert len(set(numbers(error))) == len(numbers(error))

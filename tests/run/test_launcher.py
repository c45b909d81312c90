"""What is above the seam knows a launcher and its handles only: here, processes that are made up."""

import json
import os
import re
import signal

import pytest

from highway import Pipeline
from highway.errors import ConfigError
from highway.run.report import RoleReport
from highway.run.supervise import launch
from highway.topology import load_checked
from highway.topology.process_spec import ProcessSpec
from highway.topology.wiring import Wiring
from highway.wire.tally import Counts

STATS = Pipeline([range(7), str]).stats()


class Played:
    """A process that does what is written for it: it ends with a code, or runs until it is asked to end."""

    is_lost = False

    address = "elsewhere"

    def __init__(self, code):
        self.code, self.signals = code, []
        self.said = [RoleReport(stats=STATS)] + ([RoleReport(done=True)] if code == 0 else [RoleReport(error="ValueError: no")])

    def poll(self):
        return self.code

    def signal(self, number):
        self.signals.append(number)
        self.code = 128 + number

    def reports(self):
        said, self.said = self.said, []
        return said

    def counts(self):
        return Counts()


class PlayedLauncher:
    """Starts what is played, in order of the codes given for each replica."""

    def __init__(self, **codes):
        self.codes, self.specs, self.started, self.closed = codes, [], [], False

    def start(self, spec):
        self.specs.append(spec)
        self.started.append(Played(self.codes[spec.process.key.role].pop(0)))
        return self.started[-1]

    def wait(self, seconds):
        return False

    def close(self):
        self.closed = True


class Lines:
    def __init__(self):
        self.said, self.states = [], []

    def line(self, name, text, is_error):
        self.said.append(text)

    def update(self, states):
        self.states = states


def supervised(path, **codes):
    launcher, lines = PlayedLauncher(**codes), Lines()
    result = launch(Wiring(load_checked(path), load_checked(path).processes()), launcher, ["file.yaml"], lines)
    assert launcher.closed
    return result, launcher, lines


def test_processes_elsewhere_are_supervised_and_started_again(write):
    path = write("roles: {a: {replicas: 2, restart: {delay_s: 0.01}, stages: [Noise]}}")
    result, launcher, lines = supervised(path, a=[0, 1, 0])
    assert (result.code, result.message) == (0, "")
    assert [(state.name, state.phase, state.restarts, state.stats) for state in result.states] == [
        ("a[0]", "ended", 0, STATS),
        ("a[1]", "ended", 1, STATS),
    ]
    assert [spec.arguments for spec in launcher.specs] == [["file.yaml", "--role", "a", "--replica", number] for number in "011"]
    assert lines.said == ["a[1] failed (exit code 1): ValueError: no; restarts in 0.01 s (restart 1 of 10)"]
    assert lines.states == result.states


def test_who_still_runs_elsewhere_is_stopped_by_a_signal_when_another_fails(write):
    result, launcher, _ = supervised(write("roles: {a: [Noise], b: [Noise]}"), a=[None], b=[3])
    assert (result.code, result.message) == (1, "b failed (exit code 3): ValueError: no")
    assert launcher.started[0].signals == [signal.SIGINT]
    assert [state.phase for state in result.states] == ["ended", "failed"]


class Slow(Played):
    """A process that takes a while to be drained."""

    def signal(self, number):
        self.signals.append(number)
        if number != signal.SIGTERM:
            self.code = -number


class Called(PlayedLauncher):
    """Calls a function at each wait, while processes run."""

    def __init__(self, called, played, roles):
        super().__init__(**{role: [None] for role in roles})
        self.called, self.played = called, played

    def start(self, spec):
        self.started.append(self.played(None))
        return self.started[-1]

    def wait(self, seconds):
        if any(process.code is None for process in self.started):
            self.called(self)
        return False


@pytest.mark.parametrize("second", [signal.SIGTERM, signal.SIGINT])
def test_a_sigterm_that_comes_again_at_once_is_the_same_one_and_another_signal_kills(write, second):
    def called(launcher):
        (process,) = launcher.started
        if not process.signals:
            os.kill(os.getpid(), signal.SIGTERM)
        elif process.signals == [signal.SIGTERM] and not launcher.closed:
            os.kill(os.getpid(), second)
            launcher.closed = True
        else:
            process.code = process.code or 143

    launcher = Called(called, Slow, ["a"])
    topology = load_checked(write("roles: {a: [Noise]}"))
    result = launch(Wiring(topology, topology.processes()), launcher, [], Lines())
    killed = second == signal.SIGINT
    assert (result.code, launcher.started[0].signals) == (143, [signal.SIGTERM, *[signal.SIGKILL] * killed])


def test_a_run_whose_engine_has_no_room_for_all_stops_in_order_and_accounts_for_what_it_did(write):
    def called(launcher):
        if not any(process.said for process in launcher.started):  # both have begun
            raise ConfigError("b can have no node")

    launcher, lines = Called(called, Played, "ab"), Lines()
    topology = load_checked(write("roles: {a: [Noise], b: [Noise]}"))
    result = launch(Wiring(topology, topology.processes()), launcher, [], lines)
    assert (result.code, result.message, launcher.closed) == (1, "b can have no node", True)
    assert [process.signals for process in launcher.started] == [[signal.SIGINT]] * 2
    assert [(state.name, state.phase) for state in result.states] == [("a", "ended"), ("b", "ended")]
    assert [departure.how for departure in result.departures] == ["was stopped"] * 2


def test_a_run_that_its_engine_refuses_before_anything_has_begun_ends_with_that_error_alone(write):
    def called(launcher):
        raise ConfigError("no such partition")

    launcher, lines = Called(called, Played, "ab"), Lines()
    topology = load_checked(write("roles: {a: [Noise], b: [Noise]}"))
    with pytest.raises(ConfigError, match=r"^no such partition$"):
        launch(Wiring(topology, topology.processes()), launcher, [], lines)
    assert launcher.closed and not lines.said


# --- what a process is handed ---

THREE = """
seed: 5
vars: {size: 4}
links: {raw: {from: reader, to: worker, port: 7801}}
roles:
  reader:
    - Noise: {shape: ["${size}", "${replica}"], seed: 1}
    - ZMQSink: {link: raw}
  worker:
    replicas: 3
    env: {CUDA_VISIBLE_DEVICES: "${replica}", WHO: "${role}-${replica}", SIZE: "of ${size}"}
    stages: [ZMQSource: {link: raw}, Peek: {n: "${env:CUDA_VISIBLE_DEVICES}"}]
"""


def test_a_process_is_handed_its_role_with_all_filled_in(write):
    topology = load_checked(write(THREE))
    spec = topology.process_spec("worker", 2)
    assert (spec.key, spec.replica, spec.seed) == ((topology.plan.path, "worker", 3), 2, 5)
    assert spec.env == {"CUDA_VISIBLE_DEVICES": "2", "WHO": "worker-2", "SIZE": "of 4"}
    assert spec.stages[1] == {"Peek": {"n": 2}}
    assert spec.stages[0]["ZMQSource"]["url"] == "zrpull://127.0.0.1:7801"


@pytest.mark.parametrize("role", ["reader", "worker"])
def test_what_is_handed_over_arrives_as_it_was(write, role):
    spec = load_checked(write(THREE)).process_spec(role)
    read = ProcessSpec.from_json(spec.to_json())
    assert (read.key, read.stages, read.env, read.address) == (spec.key, spec.stages, spec.env, spec.address)
    assert [str(read.location / index) for index in range(2)] == [str(spec.location / index) for index in range(2)]


def test_plain_values_of_every_kind_survive(write):
    values = {1: None, 2.5: float("inf"), False: 2**70, "": [{"": "ü"}, -0.0]}
    spec = ProcessSpec(load_checked(write("roles: {a: [Noise]}")).key("a"), 0, "", "", [values])
    assert ProcessSpec.from_json(spec.to_json()).stages == [values]
    json.loads(spec.to_json())


@pytest.mark.slow
def test_each_replica_has_an_environment_of_its_own(write, call):
    env = "{OMP_NUM_THREADS: '${replica}', MKL_NUM_THREADS: 'x${role}'}"
    say = "$SayEnvironment: {names: [OMP_NUM_THREADS, OPENBLAS_NUM_THREADS, MKL_NUM_THREADS]}"
    path = write(f"roles: {{a: {{replicas: 2, env: {env}, stages: [$Numbers: {{count: 1}}, {say}]}}}}")
    _, out, error = call("run", path, "--plugin", "mine")
    assert sorted(re.findall(r"^a\[\d\] \| (.*)$", out, re.M)) == ["0 1 xa", "1 1 xa"], error
    _, out, _ = call("run", path, "--plugin", "mine", "--role", "a", "--replica", "1")
    assert re.search(r"^1 1 xa$", out, re.M)


@pytest.mark.parametrize(
    ("env", "message"),
    [
        ("{A: '${replicas}'}", "roles.a.env.A: unknown variable 'replicas'; did you mean replica?"),
        ("{A: 3}", "roles.a.env.A: expected str, got int 3; put it in quotes to make it text"),
        (
            "{A: '${env:NOWHERE_SET}'}",
            "roles.a.env.A: the environment has no NOWHERE_SET; set it, or write a default: ${env:NOWHERE_SET:default}",
        ),
    ],
)
def test_a_wrong_environment_is_named_with_its_place(write, call, env, message):
    path = write(f"roles: {{a: {{env: {env}, stages: [Noise]}}}}")
    code, _, error = call("check", path)
    assert (code, error.strip().endswith(message)) == (2, True), error


@pytest.mark.slow
def test_a_launched_process_imports_nothing_that_shows_a_run(write, call):
    _, out, error = call("run", write("roles: {a: [$Numbers: {count: 1}, $SayImports]}"), "--plugin", "mine", "--metrics", "0")
    assert "a | imported: nothing of these" in out, error


def test_two_hundred_replicas_have_a_specification_each(write):
    path = write(THREE.replace("replicas: 3", "replicas: 200"))
    topology = load_checked(path)
    wiring = Wiring(topology, topology.processes())
    assert len(wiring.ends) == 201
    assert len({topology.process_spec("worker", replica).env["WHO"] for replica in range(200)}) == 200

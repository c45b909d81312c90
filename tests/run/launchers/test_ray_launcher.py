"""Topologies on a Ray cluster of four nodes, each a host with an address of its own; with Ray itself run by ``tox -e launchers-ray``."""

import os
import re
import signal
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from namespaces import missing, network
from waiting import wait_until

import highway

NO_RAY = "" if find_spec("ray") else "ray is not installed: this is run by tox -e launchers-ray"
NAMES = ("head", "first", "second", "third")
PATIENCE = 60

FILE = """
vars: {count: 1000000, hold: -1, place: "!head"}
links:
  raw: {from: reader, to: worker, port: 5555}
  done: {from: worker, to: trainer, port: 5556, bind: to}
roles:
  reader:
    resources: {labels: {place: head}}
    restart: {when: on-failure, delay_s: 0.1}
    stages: [$Numbers: {count: "${count}", hold: "${hold}"}, ZMQSink: {link: raw}]
  worker:
    replicas: 2
    resources: {cpus: 0.5, labels: {place: "${place}"}}
    restart: {when: on-failure, delay_s: 0.1}
    stages: [ZMQSource: {link: raw}, $Pass, ZMQSink: {link: done}]
  trainer: {resources: {labels: {place: head}}, stages: [ZMQSource: {link: done}, $Say]}
"""


def children(pid):
    """Return the processes that one has started."""
    try:
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except FileNotFoundError:
        return []


def name_of(pid):
    try:
        return Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ")
    except FileNotFoundError:
        return ""


class Cluster:
    """A head and two more nodes; what is launched is launched on the head, with the token of the cluster."""

    def __init__(self, hosts, folder):
        self.hosts, self.folder, self.nodes = hosts, folder, {}
        (folder / "token").write_text("0123456789abcdef" * 4)
        self.environment = {
            "RAY_AUTH_MODE": "token",
            "RAY_AUTH_TOKEN_PATH": str(folder / "token"),
            "RAY_ADDRESS": None,
            "PYTHONWARNINGS": None,
        }
        self.address = f"{hosts.addresses['head']}:6379"

    def start(self, *names):
        """Start the nodes of some hosts, and wait until they have joined."""
        for name in names:
            where = (
                ["--head", "--port=6379", "--include-dashboard=false", f"--temp-dir={self.folder}"]
                if name == "head"
                else [f"--address={self.address}"]
            )
            fast = {f"RAY_health_check_{key}": "1000" for key in ("period_ms", "timeout_ms", "initial_delay_ms")}
            environment = {name: value for name, value in {**os.environ, **self.environment}.items() if value is not None}
            common = [
                f"--node-ip-address={self.hosts.addresses[name]}",
                "--block",
                "--num-cpus=4",
                "--disable-usage-stats",
                "--object-store-memory=80000000",
            ]
            with open(self.folder / f"{name}.log", "w") as log:
                self.nodes[name] = self.hosts.popen(
                    name,
                    [sys.executable, "-m", "ray.scripts.scripts", "start", *where, *common, f"--labels=place={name}"],
                    stdout=log,
                    stderr=log,
                    env=environment | fast | {"RAY_health_check_failure_threshold": "3"},
                )
            log = self.folder / f"{name}.log"  # one after the other: two that start at once take the same socket
            wait_until(lambda log=log, node=self.nodes[name]: "Ray runtime started" in log.read_text() or node.poll(), PATIENCE, 0.1)
            assert self.nodes[name].poll() is None, log.read_text()

    def raylet(self, name):
        """Return the process of a node's raylet, 0 if it has ended."""
        return next((pid for pid in children(self.nodes[name].pid) if "/raylet/raylet " in name_of(pid)), 0)

    def processes(self, what):
        """Return the processes of all hosts that have this in their command."""
        pids = [int(path.name) for path in Path("/proc").iterdir() if path.name.isdecimal() and what in name_of(path.name)]
        return [pid for pid in pids if self.hosts.host_of(pid) in NAMES]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    if NO_RAY or missing():
        pytest.skip(NO_RAY or missing())
    with network(NAMES) as hosts:
        cluster = Cluster(hosts, tmp_path_factory.mktemp("ray"))
        try:
            cluster.start(*NAMES)
            yield cluster
        finally:
            for node in cluster.nodes.values():
                node.terminate()
            for node in cluster.nodes.values():
                node.wait()


@pytest.fixture
def launch(cluster, start):
    """Launch a topology on the cluster."""

    def launch(*arguments, **environment):
        where = [*cluster.hosts.on("head")]
        own = cluster.environment | environment
        return start("launch", "--plugin=mine", "--on=ray", f"--cluster={cluster.address}", *arguments, on=where, **own)

    return launch


pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


def agents(pids):
    """Return the actors' processes of some roles' processes."""
    return [int(re.search(r"^PPid:\t(\d+)$", Path(f"/proc/{pid}/status").read_text(), re.M)[1]) for pid in pids]


def got_more(run, items=100):
    """Wait until so many more items have come."""
    for _ in range(items):
        run.until(r"got \d+$")


def test_roles_run_where_their_labels_say_and_all_arrives(cluster, launch, write, numbers):
    run = launch(write(FILE), "--set", "count=500", "--set", "hold=400")
    pids = run.pids(2).values()
    assert {cluster.hosts.host_of(pid) for pid in pids} <= {"first", "second", "third"}
    assert all("ray::Runner" in name_of(agent) for agent in agents(pids))
    Path("go").touch()
    code, out, error = run.end()
    assert code == 0, error
    assert sorted(numbers(out)) == list(range(500))
    assert re.search(r"^raw +500 +500 +0$", out, re.M), out
    assert not cluster.processes("highway run")


@pytest.mark.parametrize("what", ["role", "actor"])
def test_a_worker_that_is_killed_is_started_again(cluster, launch, write, numbers, what):
    run = launch(write(FILE))
    pids = run.pids(2)
    got_more(run)
    killed = pids["worker[0]"] if what == "role" else agents([pids["worker[0]"]])[0]
    os.kill(killed, signal.SIGKILL)
    run.until(r"worker\[0\] \| pid \d+")
    got_more(run)
    run.process.send_signal(signal.SIGTERM)
    code, out, error = run.end()
    assert code == 143, error
    assert "worker[0] failed (killed by SIGKILL)" in error
    assert ("Ray has lost it on 10.77.0." in error) == (what == "actor"), error
    got = numbers(out)
    sent = int(re.search(r"^raw +([\d,]+)", out, re.M)[1].replace(",", ""))
    assert len(set(got)) == len(got)
    assert len(got) >= sent - 64 * 2, out  # what was in its queues, and under way to it
    assert not cluster.processes("highway run")


def test_a_source_whose_actor_is_killed_does_not_tell_the_others_that_the_stream_has_ended(cluster, launch, write):
    run = launch(write(FILE))
    run.pids(2)
    got_more(run)
    (source,) = cluster.processes("--role reader")
    os.kill(agents([source])[0], signal.SIGKILL)
    run.until(r"got 0$")  # it begins again
    got_more(run)
    run.process.send_signal(signal.SIGTERM)
    code, _, error = run.end()
    assert code == 143, error
    assert "worker[0] failed" not in error and "worker[1] failed" not in error


def test_a_registry_that_is_lost_begins_anew_and_is_told_all(cluster, launch, write):
    run = launch(write(FILE))
    pids = run.pids(2)
    got_more(run)
    (registry,) = cluster.processes("ray::AddressBook")
    os.kill(registry, signal.SIGKILL)
    wait_until(lambda: set(cluster.processes("ray::AddressBook")) - {registry}, PATIENCE)
    os.kill(pids["worker[0]"], signal.SIGKILL)  # it is to find the others
    run.until(r"worker\[0\] \| pid \d+")
    os.kill(pids["worker[1]"], signal.SIGKILL)
    got_more(run)
    run.process.send_signal(signal.SIGINT)
    assert run.end()[0] == 130


def test_a_drain_loses_nothing(cluster, launch, write, numbers):
    run = launch(write(FILE))
    run.pids(2)
    got_more(run)
    run.process.send_signal(signal.SIGTERM)
    code, out, error = run.end()
    assert code == 143, error
    got = numbers(out)
    assert sorted(got) == list(range(len(got)))
    assert re.search(rf"^done +{len(got):,} +{len(got):,} +0$", out, re.M), out


def test_a_launcher_that_is_killed_leaves_nothing_behind(cluster, launch, write):
    run = launch(write(FILE))
    run.pids(2)
    run.process.kill()
    run.end()
    wait_until(lambda: not cluster.processes("highway run") and not cluster.processes("ray::AddressBook"), PATIENCE)


def test_a_second_run_of_a_name_is_refused_while_the_first_goes_on(cluster, launch, write):
    path = write(FILE)
    run = launch(path)
    run.pids(2)
    code, _, error = launch(path).end()
    assert code == 2, error
    name = path.removesuffix(".yaml")
    assert error.strip() == f"highway: a run called {name} is on this cluster already; end that one first, or give this one another --name"
    got_more(run)
    assert launch(path, "--name", "other", "--set", "count=10").end()[0] == 0
    run.process.send_signal(signal.SIGINT)
    assert run.end()[0] == 130


def test_a_script_finds_the_run_by_its_file(cluster, launch, write, start):
    path = write(FILE.replace("trainer: {", "trainer: {external: true, "))
    run = launch(path, "--set", "count=500")
    script = f"""
import ray
from highway import Pipeline
ray.init("{cluster.address}", log_to_driver=False)
with Pipeline.from_yaml("{path}", role="trainer", on="ray", plugins=["mine"]) as pipeline:
    pipeline.run()
"""
    environment = {name: value for name, value in {**os.environ, **cluster.environment}.items() if value is not None}
    command = [*cluster.hosts.on("head"), sys.executable, "-c", script]
    trainer = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, env=environment)
    assert trainer.returncode == 0, trainer.stderr
    assert sorted(int(number) for number in re.findall(r"got (\d+)", trainer.stdout)) == list(range(500))
    code, _, error = run.end()
    assert code == 0, error


WRONG = {
    "another token": ({"RAY_AUTH_TOKEN_PATH": "bad"}, [], r"--cluster 10\.77\.0\.1:6379: .*RAY_AUTH_TOKEN_PATH=FILE with its token"),
    "no token": ({"RAY_AUTH_TOKEN_PATH": "none"}, [], r"--cluster 10\.77\.0\.1:6379: RAY_AUTH_TOKEN_PATH is set but file cannot be opened"),
    "no such node": (
        {},
        ["--set", "head=nowhere"],
        r"t\w+\.yaml:\d+: roles\.reader\.resources: no node of the cluster has CPU 1, place=nowhere: ",
    ),
    "too many GPUs": (
        {},
        ["--set", "gpus=3"],
        r"t\w+\.yaml:\d+: roles\.reader\.resources: no node of the cluster has CPU 1, GPU 3, place=head: ",
    ),
    "nobody there": ({}, ["--cluster", "10.77.0.99:6379"], r"--cluster 10\.77\.0\.99:6379: .*; `ray start --head` begins a cluster"),
    "another version": (
        {"OTHER_VERSION": "1"},
        [],
        r"\S+ failed \(exit code 1\): highway is 0.+ on the node 10\.77\.0\.\d, and 99 where it was launched; install one version$",
    ),
}


@pytest.mark.parametrize("which", WRONG)
def test_what_cannot_be_launched_is_said_in_a_sentence_and_leaves_nothing(cluster, launch, write, which):
    environment, arguments, message = WRONG[which]
    Path("bad").write_text("fedcba9876543210" * 4)
    Path("sitecustomize.py").write_text(
        "import os\nif os.environ.get('OTHER_VERSION'):\n    import highway\n    highway.__version__ = '99'\n"
    )
    text = FILE.replace("hold: -1", "hold: -1, head: head, gpus: 0").replace("place: head}}", 'place: "${head}"}, gpus: "${gpus}"}')
    text = text.replace("restart: {when: on-failure, delay_s: 0.1}", "restart: never")
    environment |= {"PYTHONPATH": f"{Path(highway.__file__).parents[1]}{os.pathsep}."} if "OTHER_VERSION" in environment else {}
    code, _, error = launch(write(text), *arguments, **environment).end()
    assert code in (1, 2), error
    assert re.search(rf"^highway: {message}", error, re.M), error
    assert "Traceback" not in error
    assert not cluster.processes("highway run")


@pytest.fixture
def run(launch, write):
    """A topology that runs."""
    return launch(write(FILE))


def test_a_node_that_is_lost_has_its_roles_started_on_another(cluster, run):
    lost = cluster.hosts.host_of(run.pids(2)["worker[0]"])
    got_more(run)
    os.kill(cluster.raylet(lost), signal.SIGKILL)
    again = int(run.until(r"worker\[0\] \| pid (\d+)")[1])
    assert cluster.hosts.host_of(again) not in (lost, "")
    got_more(run)
    run.process.send_signal(signal.SIGTERM)
    code, _, error = run.end()
    assert code == 143, error
    assert f"worker[0] failed (killed by SIGKILL): Ray has lost it on {cluster.hosts.addresses[lost]}: " in error
    wait_until(lambda: not cluster.processes("highway run"), PATIENCE)


def test_a_node_that_is_cut_off_is_replaced_and_when_it_is_back_it_is_over_with_its_processes(cluster, run, wait_until_gone):
    pid = run.pids(2)["worker[0]"]
    lost = cluster.hosts.host_of(pid)
    got_more(run)
    cluster.hosts.cut(lost)
    again = int(run.until(r"worker\[0\] \| pid (\d+)")[1])
    assert cluster.hosts.host_of(again) not in (lost, "")
    assert name_of(pid), "it does not know that it was cut off"
    cluster.hosts.heal(lost)
    wait_until_gone(pid)
    got_more(run)
    run.process.send_signal(signal.SIGTERM)
    code, _, error = run.end()
    assert code == 143, error
    assert f"worker[0] failed (killed by SIGKILL): Ray has lost it on {cluster.hosts.addresses[lost]}: " in error
    assert not cluster.processes("highway run")

"""Topologies on a Ray cluster of four nodes, each a host with an address of its own; with Ray itself run by ``tox -e launchers-ray``."""

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from namespaces import missing, network
from prometheus_client.parser import text_string_to_metric_families
from topologies import RAY_IN_TESTS, all_lost, lost_within
from waiting import wait_until

import highway
from highway.images.software import software

NO_RAY = "" if find_spec("ray") and find_spec("opencensus") else "ray[default] is not installed: this is run by tox -e launchers-ray"
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
    except (FileNotFoundError, ProcessLookupError):
        return []


def name_of(pid):
    try:
        return Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ")
    except (FileNotFoundError, ProcessLookupError):  # it ended before the file was opened, or before it was read
        return ""


SITE = """
import importlib.metadata, os, sys
own = importlib.metadata.version

def is_marked(word):
    return os.path.exists(f"FOLDER/{word}-{os.environ.get('PLACE')}")

def version(name):
    return "9.9" if name in ("pillow", "opencv-python-headless") and is_marked("other") else own(name)

class Absent:
    def find_spec(self, name, *_):
        if name == "highway" and is_marked("absent"):
            raise ModuleNotFoundError("No module named 'highway'")

importlib.metadata.version = version
sys.meta_path.insert(0, Absent())
"""
METRICS, DASHBOARD = 8090, 8265


class Cluster:
    """A head and three more nodes; what is launched is launched on the head, with the token of the cluster.

    A node for which there is a file ``other-NAME`` has another version of what makes pixels, one with ``absent-NAME`` has no highway.
    """

    def __init__(self, hosts, folder):
        self.hosts, self.folder, self.nodes = hosts, folder, {}
        (folder / "token").write_text("0123456789abcdef" * 4)
        self.environment = {
            "RAY_AUTH_MODE": "token",
            "RAY_AUTH_TOKEN_PATH": str(folder / "token"),
            "RAY_ADDRESS": None,
            "PYTHONWARNINGS": None,
        }
        (folder / "site").mkdir()
        (folder / "site" / "sitecustomize.py").write_text(SITE.replace("FOLDER", str(folder)))
        self.address = f"{hosts.addresses['head']}:6379"

    @property
    def variables(self):
        """The environment of what speaks with it."""
        return {name: value for name, value in {**os.environ, **self.environment}.items() if value is not None}

    def ask(self, *arguments):
        """Return what Python on the head has printed."""
        command = [*self.hosts.on("head"), sys.executable, *arguments]
        done = subprocess.run(command, capture_output=True, text=True, timeout=2 * PATIENCE, env=self.variables)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    @contextlib.contextmanager
    def somebody_else(self):
        """Have somebody listen on the head who is no Ray."""
        command = [sys.executable, "-u", "-m", "http.server", "9999"]
        with self.hosts.popen("head", command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as other:
            try:
                assert "Serving" in other.stdout.readline()
                yield
            finally:
                other.kill()

    @contextlib.contextmanager
    def marked(self, *names):
        """Have nodes with something else installed."""
        try:
            for name in names:
                (self.folder / name).touch()
            yield
        finally:
            for name in names:
                (self.folder / name).unlink()

    def start(self, *names):
        """Start the nodes of some hosts, and wait until they have joined."""
        for name in names:
            where = (
                ["--head", "--port=6379", "--include-dashboard=true", f"--metrics-export-port={METRICS}"]
                if name == "head"
                else [f"--address={self.address}"]
            )
            fast = {f"RAY_health_check_{key}": "1000" for key in ("period_ms", "timeout_ms", "initial_delay_ms")}
            own = {
                "PLACE": name,
                "PYTHONPATH": f"{self.folder}/site",
                "RAY_metrics_report_interval_ms": "1000",
                "RAY_JOB_STOP_WAIT_TIME_S": "60",
                **RAY_IN_TESTS,
            }
            common = [
                f"--node-ip-address={self.hosts.addresses[name]}",
                f"--temp-dir={self.folder}/{name}",  # of its own, as hosts have: one throws away what jobs have left there
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
                    env=self.variables | fast | own | {"RAY_health_check_failure_threshold": "3"},
                )
            log = self.folder / f"{name}.log"  # one after the other, because each keeps a core busy until it has joined
            wait_until(lambda log=log, node=self.nodes[name]: "Ray runtime started" in log.read_text() or node.poll(), 2 * PATIENCE, 0.1)
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
    assert all("ray::RayAgent" in name_of(agent) for agent in agents(pids))
    Path("go").touch()
    code, out, error = run.end()
    assert code == 0, error
    assert sorted(numbers(out)) == list(range(500))
    assert re.search(r"^raw +500 +500 +0$", out, re.M), out
    assert not cluster.processes("highway run")
    logs = [path.read_text() for path in cluster.folder.glob("*/session_latest/logs/worker-*.out")]
    assert any(":actor_name:worker[0]\n" in log and "pid" in log for log in logs)


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
    assert ("Ray has lost the process on 10.77.0." in error) == (what == "actor"), error
    got = numbers(out)
    raw, done = ([int(n) for n in re.search(rf"^{name} +(.*)", out, re.M)[1].replace(",", "").split()] for name in ("raw", "done"))
    assert len(set(got)) == len(got) == done[1]
    # How much was on its way is a matter of speed: up to 1,000 messages so small wait at an end. What counts is that all of it is reported.
    assert raw[2] == raw[0] - raw[1] and done[2] == done[0] - done[1], out
    assert raw[1] - done[0] <= 9, out  # inside the killed worker: an item in each of three stages, and three in each of two queues
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


@pytest.mark.parametrize("what", ["the run", "a worker"])
def test_what_a_drain_that_runs_out_of_time_loses_is_counted(cluster, launch, write, call, numbers, what):
    text = FILE.replace('hold: "${hold}"}', 'hold: "${hold}", until: stop}, $SayAndPass')
    path = write(text.replace("$Pass", "$Pass, $Wait: {until: go}"))
    run = launch(path, "--json", "--drain-timeout=1")
    pids = {}
    while len(pids) < 2:
        name, pid = run.error.until(r"^(worker\[\d\]) \| pid (\d+)").groups()
        pids[name] = int(pid)
    run.error.until(r"^reader \| item 500$")  # workers hold what they can
    if what == "the run":
        run.process.send_signal(signal.SIGTERM)
    else:
        where = cluster.hosts.on(cluster.hosts.host_of(pids["worker[1]"]))
        code, out, error = call("drain", path, "--role", "worker", "--replica", "1", on=where)
        assert code == 1, out + error
        Path("go").touch()
        run.error.until(r"^trainer \| got \d+$")
        Path("stop").touch()
    code, out, error = run.end()
    found = json.loads(out)
    assert code == (143 if what == "the run" else 0), error
    assert lost_within(found) > 0
    assert found["links"][0]["sent"] == len(numbers(error)) + all_lost(found), error
    assert re.search(r"^highway: worker\[1\] was stopped: .* that it had received .* lost$", error, re.M), error


SCALES = (
    FILE.replace("replicas: 2", "autoscale: {min: 1, max: 4, grow_s: 1, shrink_s: 2}")
    .replace('$Numbers: {count: "${count}", hold: "${hold}"}', "$Waves: {high: 0.005, low: 0.1}")
    .replace("$Pass", "$Pass: {every: 0.02}")
)


def test_one_grows_to_four_and_shrinks_to_one_and_nothing_is_lost(cluster, launch, write, numbers):
    run = launch(write(SCALES))
    pids = run.pids(4)
    assert {cluster.hosts.host_of(pid) for pid in pids.values()} <= {"first", "second", "third"}
    Path("calm").touch()
    for number in (3, 2, 1):
        run.error.until(rf"worker\[{number}\] is drained: ")
    wait_until(lambda: cluster.processes("--role worker") == [pids["worker[0]"]], PATIENCE)
    got_more(run, 10)
    Path("stop").touch()
    code, out, error = run.end()
    assert code == 0, error
    got = numbers(out)
    assert sorted(got) == list(range(len(got)))
    assert re.search(rf"^raw +{len(got):,} +{len(got):,} +0$", out, re.M), out
    assert not cluster.processes("highway run")


def test_one_more_for_which_no_node_is_free_waits_and_is_taken_back(cluster, launch, write, numbers):
    run = launch(write(SCALES.replace("cpus: 0.5", "cpus: 3")))
    run.pids(3)
    run.error.until(r"worker\[3\] is added: ")
    got_more(run)
    Path("calm").touch()
    run.error.until(r"worker\[3\] is drained: ")
    Path("stop").touch()
    code, out, error = run.end()
    assert code == 0, error
    got = numbers(out)
    assert sorted(got) == list(range(len(got)))
    assert "worker[3] |" not in out


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
    assert error.strip() == f"highway: a run called {name} already exists on this cluster; end that run first, or pass another --name"
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
    out = cluster.ask("-c", script)
    assert sorted(int(number) for number in re.findall(r"got (\d+)", out)) == list(range(500))
    code, _, error = run.end()
    assert code == 0, error


WRONG = {
    "another token": (
        {"RAY_AUTH_TOKEN_PATH": "bad"},
        [],
        r"--cluster 10\.77\.0\.1:6379: .*RAY_AUTH_TOKEN_PATH=FILE, a file with the token",
    ),
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
    "nobody there": (
        {},
        ["--cluster", "10.77.0.99:6379"],
        r"--cluster 10\.77\.0\.99:6379: .*; start a cluster with `ray start --head`, or pass",
    ),
    "somebody else there": (
        {},
        ["--cluster", "10.77.0.1:9999"],
        r"--cluster 10\.77\.0\.1:9999: the program at this address is not a Ray cluster; ",
    ),
    "another version": (
        {"OTHER_VERSION": "1"},
        [],
        r"the node 10\.77\.0\.\d has highway 0\S+, but this process has highway 99 \(.+\); install the same version on all nodes and "
        r"here$",
    ),
    "another Ray": ({"OTHER_RAY": "1"}, [], r"--cluster 10\.77\.0\.1:6379: Version mismatch: .* Ray: 2\.\S+ .* Ray: 9\.9 "),
}


@pytest.mark.parametrize("which", WRONG)
def test_what_cannot_be_launched_is_said_in_a_sentence_and_leaves_nothing(cluster, launch, write, which):
    environment, arguments, message = WRONG[which]
    Path("bad").write_text("fedcba9876543210" * 4)
    Path("sitecustomize.py").write_text(
        "import os\nif os.environ.get('OTHER_VERSION'):\n    import highway\n    highway.__version__ = '99'\n"
        "if os.environ.get('OTHER_RAY'):\n    import ray\n    ray.__version__ = '9.9'\n"
    )
    text = FILE.replace("hold: -1", "hold: -1, head: head, gpus: 0").replace("place: head}}", 'place: "${head}"}, gpus: "${gpus}"}')
    text = text.replace("restart: {when: on-failure, delay_s: 0.1}", "restart: never")
    own = {"PYTHONPATH": f"{Path(highway.__file__).parents[1]}{os.pathsep}."}
    with cluster.somebody_else():
        code, _, error = launch(write(text), *arguments, **environment, **own).end()
    assert code == 2, error
    assert re.search(rf"^highway: {message}", error, re.M), error
    assert "Traceback" not in error
    assert not cluster.processes("highway run")


def test_a_decoder_that_differs_between_nodes_is_said_before_anything_starts(cluster, launch, write):
    path = write(FILE)
    with cluster.marked("other-second"):
        code, _, error = launch(path).end()
        alike = launch(path, "--set", "count=10", "--set", "place=in(first, third)").end()
    assert (code, error.count("\n")) == (2, 1), error
    mine = software()
    has = r"10\.77\.0\.\d, which has (.*)"
    sentence = (
        rf"{path}:\d+: roles\.worker\.resources: this role can run on the node {has}, and on the node {has}: the same seed would "
        rf"give different batches on the two nodes; "
    )
    found = set(re.search(rf"^highway: {sentence}install the same software on both", error).groups())
    assert found == {mine, re.sub(r"(OpenCV|Pillow) \S+$", r"\1 9.9", mine)}
    assert "select the nodes with labels" in error
    assert alike[0] == 0, alike


def test_a_node_without_highway_is_said_before_anything_starts(cluster, launch, write):
    with cluster.marked("absent-third"):
        code, _, error = launch(write(FILE)).end()
    assert (code, error.count("\n")) == (2, 1), error
    said = "highway: the node 10.77.0.4 has no highway that can be imported (No module named 'highway'), but this process has highway 0."
    assert error.startswith(said) and error.endswith("; install the same version on all nodes and here\n"), error


def test_a_node_whose_decoder_has_changed_since_the_launch_is_said(cluster, launch, write):
    run = launch(write(FILE))
    pids = run.pids(2)
    with cluster.marked("other-first", "other-second", "other-third"):
        os.kill(pids["worker[0]"], signal.SIGKILL)
        said = run.error.until(
            r"worker\[0\] failed \(exit code 1\): the node (\S+) has (.*), but other nodes of this role have (.*); install"
        )
        assert said[3] == software() != said[2]
    run.until(r"worker\[0\] \| pid \d+")  # the file has it started again
    got_more(run)
    run.process.send_signal(signal.SIGINT)
    assert run.end()[0] == 130


FETCH = "import sys, urllib.request as r; print(r.build_opener(r.ProxyHandler({})).open(sys.argv[1]).read().decode())"
LABELS = ("role", "replica", "stage", "link")


def points(text, run=""):
    """Return the figures of highway: their names, types and labels, and their values; on Ray those of a run."""
    found = {}
    for family in text_string_to_metric_families(text):
        name = family.name.removeprefix("ray_")
        for sample in family.samples:
            if name.startswith("highway_") and sample.labels.get("run", "") == run:
                found[name, family.type, tuple(sample.labels.get(label, "") for label in LABELS)] = sample.value
    return found


def test_ray_has_the_figures_that_metrics_has_by_the_same_names(cluster, launch, write):
    def figures():
        return points(cluster.ask("-c", FETCH, f"http://127.0.0.1:{METRICS}/metrics"), "watched")

    run = launch(write(FILE), "--name=watched", "--metrics=0")
    url = run.error.until(r"metrics at (\S+)")[1]
    run.pids(2)
    own = points(cluster.ask("-c", FETCH, url))
    items = ("highway_stage_items", "counter", ("worker", "0", "Pass", ""))
    before = wait_until(lambda: (found := figures()).get(items) and found, PATIENCE, 0.5)
    wait_until(lambda: figures()[items] > before[items], PATIENCE, 0.5)
    found = {}
    wanted = {point[:2] for point, value in own.items() if value}

    def is_complete():  # in several looks, because Ray leaves out a gauge that has no new value since the look before
        found.update(figures())
        loads = [point for point in found if point[0] == "highway_role_load"]
        return wanted <= {point[:2] for point in found} and len(loads) == 4

    wait_until(is_complete, PATIENCE, 0.5)
    assert [found["highway_role_up", "gauge", (*role, "", "")] for role in (("reader", "0"), ("worker", "0"), ("worker", "1"))] == [1, 1, 1]
    assert all(0 <= found["highway_role_load", "gauge", (role, "0", "", "")] <= 1 for role in ("reader", "worker", "trainer"))
    assert found["highway_stage_capacity", "gauge", ("worker", "1", "Pass", "")] > 0
    assert found["highway_link_messages", "counter", ("trainer", "0", "ZMQSource", "done")] > 0
    run.process.send_signal(signal.SIGINT)
    assert run.end()[0] == 130


def test_a_link_that_breaks_while_ray_is_well_heals_and_what_was_lost_is_counted(cluster, launch, write, numbers):
    run = launch(write(FILE))
    pid = run.pids(2)["worker[0]"]
    host = cluster.hosts.host_of(pid)
    got_more(run)
    peers = wait_until(lambda: len(found := cluster.hosts.peers(host, pid)) == 2 and found, PATIENCE)  # reader and trainer
    with cluster.hosts.refusing(host, peers):
        wait_until(lambda: not cluster.hosts.peers(host, pid), PATIENCE)
        got_more(run)  # by the other worker
    wait_until(lambda: cluster.hosts.peers(host, pid) == peers, PATIENCE)
    got_more(run)
    run.process.send_signal(signal.SIGTERM)
    code, out, error = run.end()
    assert code == 143, error
    assert "failed" not in error and "Ray has lost the process" not in error
    got = numbers(out)
    assert len(set(got)) == len(got)
    rows = re.findall(r"^(?:raw|done) +([\d,]+) +[\d,]+ +([\d,]+)", out, re.M)
    sent, missing = int(rows[0][0].replace(",", "")), sum(int(row[1].replace(",", "")) for row in rows)
    assert sent == len(got) + missing, out


JOBS = ["-m", "ray.scripts.scripts", "job"]
WHERE = f"--address=http://127.0.0.1:{DASHBOARD}"


def submit(cluster, path, *arguments, options=()):
    """Submit a job that launches a topology, and return what `ray job submit` says."""
    command = [sys.executable, "-m", "highway", "launch", path, "--on=ray", "--plugin=mine", *arguments]
    return cluster.ask(*JOBS, "submit", WHERE, "--working-dir=.", *options, "--", *command)


def test_a_submitted_job_runs_in_its_own_folder_and_ends_as_the_stream_does(cluster, write, numbers):
    out = submit(cluster, write(FILE.replace("$Pass", "$Pass, $SayWhere")), "--set=count=200")
    assert sorted(numbers(out)) == list(range(200)), out
    assert re.search(r"^raw +200 +200 +0$", out, re.M), out
    assert re.search(r"worker\[0\] \| in \S+/working_dir_files/", out), out
    assert "succeeded" in out


def test_a_job_that_is_stopped_drains(cluster, write, numbers):
    submit(cluster, write(FILE), options=["--no-wait", "--submission-id=stopped"])
    wait_until(lambda: len(numbers(cluster.ask(*JOBS, "logs", WHERE, "stopped"))) > 100, PATIENCE, 1)
    assert "stopped" in cluster.ask(*JOBS, "stop", WHERE, "stopped").lower()
    out = cluster.ask(*JOBS, "logs", WHERE, "stopped")
    got = numbers(out)
    assert sorted(got) == list(range(len(got))), out
    assert re.search(rf"^done +{len(got):,} +{len(got):,} +0$", out, re.M), out
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
    assert f"worker[0] failed (killed by SIGKILL): Ray has lost the process on {cluster.hosts.addresses[lost]}: " in error
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
    assert f"worker[0] failed (killed by SIGKILL): Ray has lost the process on {cluster.hosts.addresses[lost]}: " in error
    assert not cluster.processes("highway run")

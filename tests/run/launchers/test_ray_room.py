"""What a run on Ray says when its processes cannot all have nodes; and a run with fewer cores than processes."""

import contextlib
import json
import os
import re
import signal
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

import pytest
from namespaces import Hosts, missing, network
from topologies import RAY_IN_TESTS
from waiting import wait_until

from highway.run.launchers.ray import Needs, no_room

ONE, TWO = {"10.0.0.1": {"CPU": 2.0, "memory": 2e9}}, {"10.0.0.1": {"CPU": 2.0}, "10.0.0.2": {"CPU": 2.0, "GPU": 1.0}}
BARE = {address: {} for address in TWO}  # nodes without labels
RACKS = {"10.0.0.1": {"place": "head"}, "10.0.0.2": {"place": "rack7", "disk": "nvme"}}


def test_a_process_for_which_the_run_itself_leaves_no_core_can_have_no_node():
    running = [("10.0.0.1", Needs(1.5, 0)), ("10.0.0.1", Needs(None, 0))]
    waiting = {"worker[1]": Needs(1.0, 0), "trainer": Needs(None, 0, 3e9)}
    assert no_room(ONE, BARE, {"CPU": 0.5, "memory": 2e9}, running, waiting) == (
        "no node has enough resources for worker[1] (1 cores, 0 MB of memory) and trainer (1 cores, 3000 MB of memory): "
        "10.0.0.1 has 0.5 of 2 cores, 2000 of 2000 MB of memory free; no other program uses the cluster; "
        "reduce `resources` of the roles, or start more or larger nodes"
    )


@pytest.mark.parametrize(
    ("needs", "words"),
    [
        (Needs(2, 0), "(2 cores): 10.0.0.1 has 1 of 2 cores free; 10.0.0.2 has 1 of 2 cores free; no other"),
        (Needs(None, 2), "(1 cores, 2 GPUs): 10.0.0.1 has 1 of 2 cores, 0 of 0 GPUs free; 10.0.0.2 has 1 of"),
        (Needs(1.5, 1), "(1.5 cores, 1 GPUs)"),
    ],
)
def test_a_process_that_fits_only_on_several_nodes_together_can_have_none(needs, words):
    running = [("10.0.0.1", Needs(1, 0)), ("10.0.0.2", Needs(1, 0))]
    assert f"a {words}" in no_room(TWO, BARE, {"CPU": 2.0, "GPU": 1.0}, running, {"a": needs})


def test_a_process_that_is_larger_than_any_node_can_have_none_whatever_else_runs_there():
    said = no_room(ONE, BARE, {"CPU": 0.0, "memory": 2e9}, [], {"a": Needs(0, 0, 3e9), "b": Needs(1, 0)})
    assert said.startswith("no node has enough resources for a (3000 MB of memory): 10.0.0.1 has 2000 of 2000 MB of memory free; reduce")


def test_a_process_waits_while_others_hold_cores_or_some_are_free():
    waiting = {"worker[1]": Needs(1.0, 0)}
    assert no_room(ONE, BARE, {"CPU": 0.2, "memory": 2e9}, [("10.0.0.1", Needs(1.5, 0))], waiting) == ""  # 0.3 are held by others
    assert no_room(ONE, BARE, {"CPU": 1.5, "memory": 2e9}, [("10.0.0.1", Needs(0.5, 0))], waiting) == ""
    assert no_room(TWO, BARE, {"CPU": 2.0, "GPU": 1.0}, [("10.0.0.1", Needs(2, 0))], {"a": Needs(2, 0), "b": Needs(1, 0)}) == ""


def test_an_additional_replica_waits_although_only_the_run_itself_holds_the_cores():
    running = [("10.0.0.1", Needs(2, 0))]
    additional = Needs(1.0, 0, is_additional=True)
    assert no_room(ONE, BARE, {"CPU": 0.0, "memory": 2e9}, running, {"worker[3]": additional}) == ""
    said = no_room(ONE, BARE, {"CPU": 0.0, "memory": 2e9}, running, {"worker[0]": Needs(1.0, 0), "worker[3]": additional})
    assert said.startswith("no node has enough resources for worker[0] (1 cores): ")


def test_a_process_whose_label_no_node_has_can_have_none_whatever_else_runs_there():
    waiting = {"worker[1]": Needs(1, 0, labels={"place": "rack8"}), "trainer": Needs(0, 0, labels={"disk": "in(hdd, ssd)", "place": "!x"})}
    assert no_room(TWO, RACKS, {"CPU": 3.0, "GPU": 1.0}, [], waiting) == (
        "no node has the labels and enough resources for "
        "worker[1] (1 cores, place=rack8) and trainer (0 cores, disk=in(hdd, ssd), place=!x): "
        "10.0.0.1 has 2 of 2 cores free, place=head, no label disk; 10.0.0.2 has 2 of 2 cores free, place=rack7, disk=nvme; "
        "reduce the resources or labels of the roles, or start nodes with them (`ray start` with --labels and resources)"
    )
    said = no_room(TWO, RACKS, {"CPU": 4.0, "GPU": 1.0}, [], {"trainer": Needs(0, 0, labels={"disk": "hdd"})})
    assert "for trainer (disk=hdd): 10.0.0.1 has no label disk; 10.0.0.2 has disk=nvme; no other" in said


def test_a_process_whose_label_only_nodes_have_that_the_run_itself_fills_can_have_none():
    running, waiting = [("10.0.0.2", Needs(2, 0))], {"worker[1]": Needs(1, 0, labels={"disk": "nvme"})}
    assert "10.0.0.2 has 0 of 2 cores free, disk=nvme; no other program" in no_room(TWO, RACKS, {"CPU": 2.0, "GPU": 1.0}, running, waiting)
    assert no_room(TWO, RACKS, {"CPU": 2.0, "GPU": 1.0}, [("10.0.0.1", Needs(2, 0))], waiting) == ""


def test_a_process_waits_while_others_fill_the_nodes_with_its_label():
    assert no_room(TWO, RACKS, {"CPU": 2.0, "GPU": 0.0}, [], {"worker[1]": Needs(1, 0, labels={"place": "rack7"})}) == ""


TEXT = """
links: {raw: {from: reader, to: worker, port: 5555}, done: {from: worker, to: trainer, port: 5556, bind: to}}
roles:
  reader: [$Numbers: {every: 0.005, until: stop}, ZMQSink: {link: raw}]
  worker: {replicas: 2, restart: {delay_s: 0.1}, stages: [ZMQSource: {link: raw}, $Pass, ZMQSink: {link: done}]}
  trainer: [ZMQSource: {link: done}, $Say]
"""


class Cluster(NamedTuple):
    """A cluster of one node with two cores, and the folder for temporary files of what runs on it."""

    hosts: Hosts
    temporary: Path


@contextlib.contextmanager
def one_node(tmp_path_factory):
    if find_spec("ray") is None or missing():
        pytest.skip("ray is not installed: this is run by tox -e launchers-ray" if find_spec("ray") is None else missing())
    folder, temporary = tmp_path_factory.mktemp("ray"), tmp_path_factory.mktemp("ray")  # short paths, for Ray's sockets
    with network(("head",)) as hosts:
        command = [sys.executable, "-m", "ray.scripts.scripts", "start", "--head", "--port=6379", "--num-cpus=2", "--block"]
        command += [f"--node-ip-address={hosts.addresses['head']}", f"--temp-dir={folder}/r", "--include-dashboard=false"]
        command += ["--disable-usage-stats"]
        own = {"TMPDIR": str(temporary), **RAY_IN_TESTS}
        log = folder / "log"
        with (
            log.open("w") as output,
            hosts.popen("head", command, stdout=output, stderr=output, env=os.environ | own) as node,
        ):
            try:
                wait_until(lambda: "Ray runtime started" in log.read_text() or node.poll(), 120, 0.1)
                assert node.poll() is None, log.read_text()
                yield Cluster(hosts, temporary)
            finally:
                node.send_signal(signal.SIGTERM)
                node.wait(60)
    assert list(temporary.iterdir()) == []


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    """A cluster for all tests that leave it as it was."""
    with one_node(tmp_path_factory) as cluster:
        yield cluster


@pytest.fixture
def cluster(tmp_path_factory):
    """A cluster for one test."""
    with one_node(tmp_path_factory) as cluster:
        yield cluster


@pytest.fixture
def launch(write, start):
    """Launch a topology on a cluster."""

    def launch(cluster, text, **also):
        where = ["--plugin=mine", "--on=ray", f"--cluster={cluster.hosts.addresses['head']}:6379", "--json"]
        own = {"RAY_ADDRESS": None, "PYTHONWARNINGS": None, "TMPDIR": str(cluster.temporary)}
        return start("launch", write(text), *where, on=cluster.hosts.on("head"), **own, **also)

    return launch


pytestmark = pytest.mark.timeout(300)


@pytest.mark.slow
def test_more_processes_than_cores_run_all_the_same(shared, launch, numbers):
    code, out, error = launch(shared, TEXT.replace("{every: 0.005, until: stop}", "300")).end()
    assert code == 0, error
    assert sorted(numbers(error)) == list(range(300))
    assert out.startswith("{") and out.endswith("}\n"), out


@pytest.mark.slow
def test_a_role_for_which_the_run_leaves_no_core_ends_it_with_what_is_asked_for_and_what_there_is(shared, launch):
    text = TEXT.replace("  trainer: [ZMQSource", "  trainer: {resources: {cpus: 1.5}, stages: [ZMQSource").replace("$Say]", "$Say]}")
    text = text.replace("  reader: [", "  reader: {resources: {cpus: 1.5}, stages: [").replace("{link: raw}]\n", "{link: raw}]}\n", 1)
    code, out, error = launch(shared, text).end()
    assert code == 1
    assert re.search(r"(trainer|reader) \(1.5 cores\).*: [\d.]+ has 0.5 of 2 cores free; no other program uses", out + error)


@pytest.mark.slow
def test_what_is_lost_with_roles_and_actors_that_are_killed_is_counted_exactly(shared, launch, numbers):
    def processes():
        """Wait until both workers have begun; return the processes of each: that of its role and that of its actor."""
        found = {}
        while len(found) < 2:
            worker, *pids = run.error.until(r"worker\[(\d)\] \| pid (\d+) of (\d+)").groups()
            found[worker] = [int(pid) for pid in pids]
        run.error.until(r"got \d+$")
        return found

    run = launch(shared, TEXT)
    for killed in ({"0": 1, "1": 0}, {"0": 0, "1": 1}):
        pids = processes()
        for worker, which in killed.items():
            os.kill(pids[worker][which], signal.SIGKILL)
    processes()
    Path("stop").touch()
    code, out, error = run.end()
    found, got = json.loads(out), numbers(error)
    assert (code, found["message"], len(set(got))) == (0, "", len(got)), error
    raw, done = found["links"]
    assert [(link["lost"], link["doubts"]) for link in (raw, done)] == [([], [])] * 2
    workers = [replica for replica in found["replicas"] if replica["role"] == "worker"]
    within = sum(one["received"] - one["sent"] for one in workers)
    assert raw["missing"] + within + done["missing"] == raw["sent"] - len(got)
    assert done["received"] == len(got)
    for link in (raw, done):
        assert any(f" messages on the link {link['link']} did not arrive: " in loss for loss in found["losses"]) == bool(link["missing"])
    assert "Ray has lost the process" in error


@pytest.mark.slow
def test_a_worker_that_waits_for_its_receivers_is_drained_at_once(shared, launch):
    run = launch(shared, TEXT.replace("trainer: [ZMQSource: {link: done}, $Say]", "trainer: {external: true}"))
    run.error.until(r"worker\[\d\] \| .*waiting for receivers; 0 of 1 are connected")
    run.process.send_signal(signal.SIGTERM)
    code, out, error = run.end()
    assert (code, json.loads(out)["message"]) == (143, "terminated"), error
    assert "drained before a receiver connected" in error
    assert "SIGKILL" not in error and "is killed" not in error


@pytest.mark.slow
@pytest.mark.parametrize("daemon", ["gcs/gcs_server", "raylet/raylet"])
def test_standard_output_is_a_document_even_if_a_daemon_of_ray_is_killed(cluster, launch, daemon):
    run = launch(cluster, TEXT, RAY_gcs_rpc_server_reconnect_timeout_s="5")  # else it takes a minute
    run.error.until(r"got \d+$")
    commands = {}
    for pid in cluster.hosts.processes("head"):
        with contextlib.suppress(OSError):  # it has ended
            commands[pid] = Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ")
    (killed,) = (pid for pid, command in commands.items() if f"/{daemon} " in command)
    os.kill(killed, signal.SIGKILL)
    code, out, error = run.end()
    found = json.loads(out)
    assert code == found["code"] != 0, error
    assert found["message"] and found["losses"], error

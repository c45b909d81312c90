"""What a run on Ray says when its processes cannot all have nodes; and a run with fewer cores than processes."""

import os
import signal
import sys
from importlib.util import find_spec

import pytest
from namespaces import missing, network
from waiting import wait_until

from highway.run.launchers.ray import Needs, no_room


def test_a_process_for_which_the_run_itself_leaves_no_core_can_have_no_node():
    running = [Needs(1.5, 0), Needs(None, 0)]
    said = no_room({"CPU": 2}, {"CPU": 0.5}, running, {"worker[1]": Needs(1.0, 0)})
    assert said == (
        "worker[1] can have no node: the roles ask for 2.5 cores, the cluster has 2, and nothing else runs there; "
        "give roles fewer by `resources: cpus`, or start more nodes"
    )
    assert "ask for 3 GPUs, the cluster has 2" in no_room({"CPU": 9, "GPU": 2}, {"CPU": 9}, [Needs(0, 2)], {"a": Needs(None, 1)})


def test_a_process_waits_while_others_hold_cores_or_some_are_free():
    waiting = {"worker[1]": Needs(1.0, 0)}
    assert no_room({"CPU": 4}, {"CPU": 0.5}, [Needs(1.5, 0)], waiting) == ""
    assert no_room({"CPU": 4}, {"CPU": 2.5}, [Needs(1.5, 0)], waiting) == ""


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_more_processes_than_cores_run_all_the_same(write, start, numbers, tmp_path_factory):
    if find_spec("ray") is None or missing():
        pytest.skip("ray is not installed: this is run by tox -e launchers-ray" if find_spec("ray") is None else missing())
    folder = tmp_path_factory.mktemp("ray")  # a short path, for Ray's sockets
    text = """
links: {raw: {from: reader, to: worker, port: 5555}, done: {from: worker, to: trainer, port: 5556, bind: to}}
roles:
  reader: [$Numbers: 300, ZMQSink: {link: raw}]
  worker: {replicas: 2, stages: [ZMQSource: {link: raw}, ZMQSink: {link: done}]}
  trainer: [ZMQSource: {link: done}, $Say]
"""
    with network(("head",)) as hosts:
        address = hosts.addresses["head"]
        command = [sys.executable, "-m", "ray.scripts.scripts", "start", "--head", "--port=6379", "--num-cpus=2", "--block"]
        command += [f"--node-ip-address={address}", f"--temp-dir={folder}/r", "--include-dashboard=false", "--disable-usage-stats"]
        log = folder / "log"
        with log.open("w") as output, hosts.popen("head", command, stdout=output, stderr=output, env=dict(os.environ)) as node:
            try:
                wait_until(lambda: "Ray runtime started" in log.read_text() or node.poll(), 120, 0.1)
                assert node.poll() is None, log.read_text()
                where = ["launch", write(text), "--plugin=mine", "--on=ray", f"--cluster={address}:6379", "--json"]
                run = start(*where, on=hosts.on("head"), RAY_ADDRESS=None, PYTHONWARNINGS=None)
                code, out, error = run.end()
                assert code == 0, error
                assert sorted(numbers(error)) == list(range(300))
                assert out.startswith("{") and out.endswith("}\n"), out
            finally:
                node.send_signal(signal.SIGTERM)
                node.wait(60)

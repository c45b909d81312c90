"""The commands of rendered pods, each in a network namespace that has the pod's address; names appear when their pods do, as in a cluster.

No cluster is here, so this is what can be run of it: that pods find each other by the names of the service, in any order, that nothing is
lost or comes twice, and that each ends as its kind of object needs it to.
"""

import os
import re
import shutil
import signal
import sys
from pathlib import Path

import pytest
import yaml
from namespaces import missing, network
from topologies import HOME
from waiting import wait_until

from highway.cli import main

pytestmark = [pytest.mark.slow, pytest.mark.skipif(bool(missing()), reason=missing()), pytest.mark.timeout(400)]

FILE = """
links:
  raw: {from: reader, to: worker, port: 5555-5556}
  done: {from: worker, to: trainer, port: 5557, bind: to}
roles:
  reader: {replicas: 2, restart: on-failure, stages: [$Numbers: {count: 300}, ZMQSink: {link: raw}]}
  worker: {restart: on-failure, autoscale: {min: 2, max: 4}, replicas: 3, stages: [ZMQSource: {link: raw}, Identity, ZMQSink: {link: done}]}
  trainer: [ZMQSource: {link: done}, $Say]
"""
PODS = {
    "w0": "feed-worker-x",
    "w1": "feed-worker-y",
    "w2": "feed-worker-z",
    "tr": "feed-trainer-0",
    "r0": "feed-reader-0",
    "r1": "feed-reader-1",
}  # as they start


class Pods:
    """A cluster for the poor."""

    def __init__(self, hosts, folder):
        self.hosts, self.folder, self.running = hosts, folder, {}
        for name, text in yaml.safe_load(Path("out/config-map.yaml").read_text())["data"].items():
            (folder / name).write_text(text)
        self.spaces = {short: Path(f"/etc/netns/{hosts.namespace(short)}") for short in PODS}
        for space in self.spaces.values():  # `ip netns exec` puts what is there over what is in /etc
            space.mkdir(parents=True)
            (space / "hosts").write_text("127.0.0.1 localhost\n")

    def start(self, short):
        """Start a pod, and give it its name."""
        role, number = re.fullmatch(r"feed-(\w+)-(\w)", PODS[short]).groups()
        workload = next(yaml.safe_load_all(Path(f"out/role-{role}.yaml").read_text()))
        args = workload["spec"]["template"]["spec"]["containers"][0]["args"]
        args = [word.replace("$(REPLICA)", number).replace("$$", "$").replace("/etc/highway", str(self.folder)) for word in args]
        environment = {**os.environ, "PYTHONPATH": f"{HOME}{os.pathsep}{self.folder}", "PYTHONWARNINGS": "error"}
        for space in self.spaces.values():
            with open(space / "hosts", "a") as file:
                file.write(f"{self.hosts.addresses[short]} {PODS[short]}.feed\n")
        with open(self.folder / f"{short}.out", "w") as out, open(self.folder / f"{short}.log", "w") as log:
            command = [sys.executable, "-m", "highway", *args]
            self.running[short] = self.hosts.popen(short, command, cwd=self.folder, env=environment, stdout=out, stderr=log)

    def log(self, short):
        return (self.folder / f"{short}.log").read_text()

    def close(self):
        for process in self.running.values():
            process.kill()
            process.wait()
        for space in self.spaces.values():
            shutil.rmtree(space)


@pytest.fixture
def pods(folder, write, monkeypatch):
    monkeypatch.syspath_prepend(folder)
    assert main(["launch", write(FILE, "feed.yaml"), "--on", "kubernetes", "--render", "out", "--plugin", "mine"]) == 0
    with network(list(PODS)) as hosts:
        pods = Pods(hosts, folder)
        yield pods
        pods.close()


def test_pods_find_each_other_in_any_order_and_nothing_is_lost(pods, numbers):
    for short in PODS:
        pods.start(short)
        said = {"w0": "'feed-trainer-0.feed' has no address yet", "tr": "metrics at"}.get(short, "")
        wait_until(lambda short=short, said=said: said in pods.log(short), 100)
    codes = {short: pods.running[short].wait(timeout=200) for short in ("r0", "r1", "tr")}
    assert codes == {"r0": 0, "r1": 0, "tr": 0}, "".join(map(pods.log, PODS))
    assert sorted(numbers((pods.folder / "tr.out").read_text())) == sorted([*range(300)] * 2)
    for short in ("w0", "w1", "w2"):
        out = pods.folder / f"{short}.out"
        wait_until(lambda out=out: "worker[0]: " in out.read_text(), 100)
        assert pods.running[short].poll() is None, "Kubernetes would start it again"
        pods.running[short].send_signal(signal.SIGTERM)
        assert pods.running[short].wait(timeout=100) == 0

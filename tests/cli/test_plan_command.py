"""``highway plan``, and what ``highway bench --json`` writes for it."""

import copy
import json
import math
import re
import subprocess
import sys
from pathlib import Path

import pytest

from highway.cli.measure.plan import fastest_here
from highway.observe.sizing import FULL

STAGES = """
import time
from dataclasses import dataclass

import numpy as np


@dataclass
class Batches:
    '''Yield batches of 16 samples.'''

    count: int

    def __iter__(self):
        for number in range(self.count):
            yield np.full((16, 64), number, np.int32), np.arange(16, dtype=np.int32)


@dataclass
class Sleep:
    '''Wait outside the GIL in place of work.'''

    seconds: float

    def __call__(self, item):
        time.sleep(self.seconds)
        return item


@dataclass
class Clock:
    '''Write when each item came.'''

    path: str

    def consume(self, items):
        print("this is not JSON")
        with open(self.path, "w") as file:
            for _ in items:
                print(time.monotonic(), file=file)
"""
TOPOLOGY = """
vars: {count: 30, workers: 2, threads: 3}
links:
  work: {from: reader, to: worker, transport: ipc}
  done: {from: worker, to: trainer, transport: ipc, bind: to}
roles:
  reader: ["asleep:Batches": "${count}", ZMQSink: {link: work}]
  worker:
    replicas: ${workers}
    stages: [ZMQSource: {link: work}, {"asleep:Sleep": 0.04, num_workers: "${threads}"}, ZMQSink: {link: done}]
  trainer: [ZMQSource: {link: done}, "asleep:Clock": times]
"""
PLUGIN = ("--plugin", "asleep")
HOST = ("--cores", "4", "--memory-gb", "8", "--gbit", "10")


@pytest.fixture
def sleepy(folder, write):
    """A topology whose workers sleep 0.04 s for each batch of 16."""
    (folder / "asleep.py").write_text(STAGES)
    return write(TOPOLOGY)


@pytest.fixture(scope="module")
def measured_here(tmp_path_factory):
    """What was measured of it on this machine, which may be busy."""
    folder = tmp_path_factory.mktemp("measured")
    (folder / "asleep.py").write_text(STAGES)
    (folder / "t.yaml").write_text(TOPOLOGY)
    command = [sys.executable, "-m", "highway", "bench", "t.yaml", *PLUGIN, "--items", "20", "--seconds", "100", "--json"]
    return json.loads(subprocess.run(command, cwd=folder, check=True, stdout=subprocess.PIPE, timeout=200).stdout)


@pytest.fixture
def figures(sleepy, measured_here, folder):
    """The same, as if on a machine that did nothing else: its own figures would say what else it did."""
    found = copy.deepcopy(measured_here)
    for role in found["roles"].values():
        for stage in role["stages"]:
            stage.update(seconds=0.04 if stage["name"] == "Sleep" else 0.0002, cpu=0.0001, held=0.00005)
    found["process_mb"] = 150
    (folder / "figures.json").write_text(json.dumps(found))
    return sleepy


@pytest.mark.slow
def test_bench_writes_what_each_stage_takes(measured_here):
    found = measured_here
    worker = found["roles"]["worker"]
    assert (worker["samples"], worker["taken"]) == (16, 1)
    assert [stage["name"] for stage in worker["stages"]] == ["ZMQSource", "Sleep", "ZMQSink"]
    assert 16 * 65 * 4 < worker["message"] < 16 * 65 * 4 + 1000
    sleep = worker["stages"][1]
    assert sleep["seconds"] >= 0.04 and sleep["held"] <= sleep["cpu"] < sleep["seconds"] / 2


def test_a_plan_says_what_a_rate_takes_and_what_is_short_first(figures, ask):
    code, out, _ = ask("plan", figures, *PLUGIN, "--images-per-second", "4000", "--from", "figures.json", *HOST)
    threads = math.ceil(4000 / 16 * 0.04 / FULL)
    assert code == 0
    assert out.startswith("On hosts with 4 cores, 8.0 GB, 10 Gbit/s; ")
    for role in ("reader", "worker", "trainer"):
        assert re.search(rf"^{role} +4,000\.0 +1 +1 ", out, re.M)
    assert f"\nworker: 1 x ZMQSource, {threads} x Sleep, 1 x ZMQSink in each process\n" in out
    assert re.search(r"^If the rate grows, the first shortage is at [\d,]+ samples/s: ", out, re.M)
    assert re.search(r"^With the replicas and workers in the file .* samples/s, limited by worker: the 3 threads of Sleep\.$", out, re.M)
    assert "this is not JSON" not in out


def test_a_plan_in_json_has_the_same(figures, ask):
    code, out, _ = ask("plan", figures, *PLUGIN, "--images-per-second", "4000", "--from", "figures.json", *HOST, "--json")
    plan = json.loads(out)
    assert code == 0 and plan["host"] == {"cores": 4, "memory_mb": 8000, "gbit": 10, "nics": 1, "disk_mb": None, "gpus": None}
    threads = math.ceil(4000 / 16 * 0.04 / FULL)
    assert plan["roles"]["worker"]["replicas"] == 1 and plan["roles"]["worker"]["threads"]["Sleep"] == threads
    assert plan["as_it_is"]["first_short"] == "worker: the 3 threads of Sleep"
    assert plan["as_it_is"]["samples_per_second"] == pytest.approx(2 * 3 * 16 / 0.04)
    assert plan["notes"] == []


def test_memory_that_is_short_is_said_with_the_way_out(figures, ask):
    out = ask("plan", figures, *PLUGIN, "--images-per-second", "4000", "--from", "figures.json", "--cores", "4", "--memory-gb", "0.1")[1]
    short = r"^Shortage for reader and worker and trainer: memory: \d+% of the available amount is needed\. Lower budget_mb of the links"
    assert re.search(short, out, re.M)
    assert "If the rate grows, the first shortage" not in out
    assert (
        out.endswith("The speed of the network is unknown, so the plan ignores the network; pass --gbit.\n") or fastest_here() is not None
    )


def test_stages_that_were_not_measured_are_not_planned_with_the_figures_of_others(figures, ask):
    Path(figures).write_text(Path(figures).read_text().replace("[ZMQSource: {link: work}, ", "[ZMQSource: {link: work}, Identity, "))
    code, _, error = ask("plan", figures, *PLUGIN, "--images-per-second", "1", "--from", "figures.json")
    assert code == 2
    assert (
        "its stages are ZMQSource, Identity, Sleep, ZMQSink, but the measured stages are ZMQSource, Sleep, ZMQSink; measure again" in error
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "the following arguments are required: --images-per-second"),
        (["--images-per-second", "0"], "0; expected a number above 0"),
        (
            ["--images-per-second", "1", "--from", "none.json"],
            "--from none.json: No such file or directory; create the file with `highway bench",
        ),
        (
            ["--images-per-second", "1", "--from", "asleep.py"],
            "--from asleep.py: the file is not the output of highway bench --json (JSON is malformed",
        ),
        (
            ["--images-per-second", "1", "--from", "old.json"],
            "--from old.json: the file has format 0, but this highway reads format 1; create the file with",
        ),
    ],
)
def test_wrong_usage_of_a_plan_is_one_message(arguments, message, sleepy, ask, folder):
    (folder / "old.json").write_text('{"roles": {}, "cores": 1, "process_mb": 1, "format": 0}')
    code, out, error = ask("plan", sleepy, *PLUGIN, *arguments)
    assert (code, out) == (2, "") and message in error and "Traceback" not in error


@pytest.mark.slow
def test_samples_of_batches_of_encoded_images_are_those_that_their_passports_name(write, ask):
    decoding = write(
        "links: {files: {from: reader, to: trainer, transport: ipc}}\nroles:\n"
        "  reader: [EncodedImageReader: {data_dir: 'highway:photos/val', batch_size: 4, epochs: 2}, ZMQSink: {link: files}]\n"
        "  trainer: [ZMQSource: {link: files}, DecodeBatch: {shape: [16, 16]}]\n"
    )
    code, out, _ = ask("bench", decoding, "--seconds", "100", "--json")
    roles = json.loads(out)["roles"]
    assert code == 0 and [(roles[name]["samples"], roles[name]["taken"]) for name in ("reader", "trainer")] == [(4, 1), (4, 1)]


def test_the_fastest_interface_that_says_its_speed_is_taken(tmp_path):
    for name, text in (("eth0", "1000\n"), ("eth1", "25000\n"), ("down", "-1\n"), ("lo", "")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "speed").write_text(text)
    assert fastest_here(tmp_path) == 25
    assert fastest_here(tmp_path / "lo") is None


def measured(call, topology, **variables):
    """Run a topology; return the samples per second that came in its middle half."""
    settings = [word for name, value in variables.items() for word in ("--set", f"{name}={value}")]
    code, _, error = call("run", topology, *PLUGIN, *settings, PYTHONPATH=".")
    assert code == 0, error
    times = list(map(float, Path("times").read_text().split()))
    first, last = len(times) // 4, 3 * len(times) // 4
    return 16 * (last - first) / (times[last] - times[first])


@pytest.mark.slow
def test_a_topology_goes_as_fast_as_a_plan_says(sleepy, ask, call):
    """As it is, and with the workers that a rate takes. A batch takes 0.4 s, beside which the delays of a busy machine are small."""
    Path(sleepy).write_text(Path(sleepy).read_text().replace("0.04", "0.4"))
    plan = json.loads(ask("plan", sleepy, *PLUGIN, "--images-per-second", "400", "--items", "12", *HOST, "--json")[1])
    now = measured(call, sleepy, count=96)
    assert 0.5 < now / plan["as_it_is"]["samples_per_second"] < 1.6
    worker = plan["roles"]["worker"]
    assert worker["threads"]["Sleep"] > 10
    assert measured(call, sleepy, count=120, workers=worker["replicas"], threads=worker["threads"]["Sleep"]) > 0.5 * 400

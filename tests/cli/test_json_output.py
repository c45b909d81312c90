"""``--json``: standard output is one JSON document, whatever the libraries of an engine print there."""

import argparse
import json
from pathlib import Path

import pytest

from highway.cli.output import kept_for_json
from highway.cli.run_here import run_processes
from highway.engine import Pipeline
from highway.run.report import RoleReport
from highway.topology import load_checked
from highway.topology.wiring import Wiring
from highway.wire.tally import Counts

STATS = Pipeline([range(7), str]).stats()


class Played:
    """A process that has ended, and a launcher whose engine prints what it likes."""

    is_lost = False
    address = "elsewhere"

    def start(self, spec):
        print("(raylet) a worker died")
        return self

    def wait(self, seconds):
        return False

    def poll(self):
        return 0

    def reports(self):
        return [RoleReport(stats=STATS), RoleReport(done=True)]

    def counts(self):
        return Counts()

    def close(self):
        print("(raylet) and so did another one")


def test_standard_output_is_json_whatever_an_engine_prints(write, capsys):
    topology = load_checked(write("roles: {a: [Noise: [2]]}"))
    options = argparse.Namespace(
        files=["t.yaml"], set=[], plugin=[], traceback=False, drain_timeout=1.0, json=True, metrics=None, dashboard=None
    )
    with kept_for_json():
        assert run_processes(Wiring(topology, topology.processes()), options, lambda *_: Played()) == 0
    out, error = capsys.readouterr()
    assert json.loads(out)["code"] == 0
    assert error.count("(raylet)") == 2


LOUD = """
print("imported")

class Loud:
    def __init__(self):
        print("built")

    def __call__(self, item):
        return item
"""


@pytest.mark.parametrize("command", ["run", "run --role a", "bench --seconds=9", "plan --seconds=9 --images-per-second=1"])
def test_standard_output_is_json_whatever_a_module_of_the_users_prints(write, call, command):
    Path("loud.py").write_text(LOUD)
    path = write('roles: {a: [{$Numbers: {count: 3, every: 0.0}}, {"loud:Loud": {}}, $Say]}')
    code, out, error = call(*command.split(), path, "--json", "--plugin=mine", "--plugin=loud")
    assert code == 0, error
    assert isinstance(json.loads(out), dict)
    assert "imported" in error


WRONG = {
    "the file": ("run t.yaml --set=count=x", "expected int"),
    "no such role": ("run t.yaml --role=b", "role"),
    "the endpoint of a run": ("run t.yaml --metrics=192.0.2.1:9", "192.0.2.1"),
    "the endpoint of a role": ("run t.yaml --role=a --metrics=192.0.2.1:9", "192.0.2.1"),
    "no cluster": ("launch t.yaml --on=ray --cluster=127.0.0.1:1", "ray"),
}


@pytest.mark.parametrize("which", WRONG)
def test_what_is_wrong_before_a_run_begins_is_in_a_document(write, call, which):
    write('{vars: {count: 1}, roles: {a: [Noise: {shape: [2], count: "${count}"}]}}', "t.yaml")
    command, said = WRONG[which]
    code, out, error = call(*command.split(), "--json")
    found = json.loads(out)
    assert code == 2, error
    assert (found["code"], found["links"], found["losses"]) == (2, [], [])
    assert error == f"highway: {found['message']}\n"
    assert said in found["message"]

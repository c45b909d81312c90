"""A run whose output cannot be written goes on, and says so once."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import highway

TEXT = """
roles:
  a: [tell:Numbers, tell:Say, {'tell:Collect': {path: out.txt}}]
  b: [tell:Numbers, tell:Say, {'tell:Collect': {path: out2.txt}}]
"""
STAGES = """
from dataclasses import dataclass
class Numbers:
    def __iter__(self):
        yield from range(2000)
class Say:
    def __call__(self, item):
        print("item", item, flush=True)
        return item
@dataclass
class Collect:
    path: str
    def consume(self, items):
        with open(self.path, "w") as file:
            file.write(str(sum(items)))
"""


@pytest.fixture
def run(tmp_path):
    """Run the topology with other streams in place of standard output and error; return the process."""
    (tmp_path / "tell.py").write_text(STAGES)
    (tmp_path / "t.yaml").write_text(TEXT)

    def run(stdout=subprocess.PIPE, stderr=subprocess.PIPE, options=()):
        command = [sys.executable, "-m", "highway", "run", "t.yaml", "--plugin", "tell", *options]
        paths = {"PYTHONPATH": str(Path(highway.__file__).parents[1])}
        return subprocess.run(command, stdout=stdout, stderr=stderr, cwd=tmp_path, text=True, timeout=100, env={**os.environ, **paths})

    yield run
    for name in ("out.txt", "out2.txt"):
        assert (tmp_path / name).read_text() == str(sum(range(2000)))


FULL = pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
SAID = r"highway: standard (output|error) cannot be written: ([^;]*); the run goes on, and what was to be printed there is left out"


@FULL
def test_a_full_disk_under_standard_output_does_not_end_a_run(run):
    with open("/dev/full", "w") as full:
        done = run(stdout=full)
    assert done.returncode == 0, done.stderr
    assert re.findall(SAID, done.stderr) == [("output", "No space left on device")]
    assert "Traceback" not in done.stderr
    assert "Exception ignored" not in done.stderr


@FULL
def test_a_full_disk_under_the_log_does_not_end_a_run(run):
    with open("/dev/full", "w") as full:
        done = run(stderr=full, options=["--metrics", "0"])
    assert done.returncode == 0
    assert re.findall(SAID, done.stdout) == [("error", "No space left on device")]
    assert "a | item 1999\n" in done.stdout
    assert "b: 2,000 items in" in done.stdout


@FULL
def test_a_full_disk_under_both_ends_nothing(run):
    with open("/dev/full", "w") as full:
        assert run(full, full).returncode == 0


def test_a_run_goes_on_when_nobody_reads_what_it_prints(run):
    reading, writing = os.pipe()
    os.close(reading)
    with open(writing, "w") as pipe:
        done = run(stdout=pipe)
    assert done.returncode == 0, done.stderr
    assert re.findall(SAID, done.stderr) == [("output", "nobody reads it any more")]

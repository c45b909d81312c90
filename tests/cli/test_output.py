"""A run whose output cannot be written goes on, and says so once."""

import os
import re
import subprocess
import sys

import pytest
from topologies import HOME

TEXT = """
roles:
  a: [$Numbers: {count: 2000, every: 0}, $SayAndPass, $Record: out.txt]
  b: [$Numbers: {count: 2000, every: 0}, $SayAndPass, $Record: out2.txt]
"""


@pytest.fixture
def run(folder, write):
    """Run the topology with other streams in place of standard output and error; return the process."""
    write(TEXT, "t.yaml")

    def run(stdout=subprocess.PIPE, stderr=subprocess.PIPE, options=()):
        command = [sys.executable, "-m", "highway", "run", "t.yaml", "--plugin", "mine", *options]
        return subprocess.run(command, stdout=stdout, stderr=stderr, text=True, timeout=200, env={**os.environ, "PYTHONPATH": str(HOME)})

    yield run
    for name in ("out.txt", "out2.txt"):
        assert (folder / name).read_text().split() == [str(number) for number in range(2000)]


FULL = pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
SAID = r"highway: cannot write to standard (output|error): ([^;]*); the run continues without this output"


@pytest.mark.slow
@FULL
def test_a_full_disk_under_standard_output_does_not_end_a_run(run):
    with open("/dev/full", "w") as full:
        done = run(stdout=full)
    assert done.returncode == 0, done.stderr
    assert re.findall(SAID, done.stderr) == [("output", "No space left on device")]
    assert "Traceback" not in done.stderr
    assert "Exception ignored" not in done.stderr


@pytest.mark.slow
@FULL
def test_a_full_disk_under_the_log_does_not_end_a_run(run):
    with open("/dev/full", "w") as full:
        done = run(stderr=full, options=["--metrics", "0"])
    assert done.returncode == 0
    assert re.findall(SAID, done.stdout) == [("error", "No space left on device")]
    assert "a | item 1999\n" in done.stdout
    assert "b: 2,000 items in" in done.stdout


@pytest.mark.slow
@FULL
def test_a_full_disk_under_both_ends_nothing(run):
    with open("/dev/full", "w") as full:
        assert run(full, full).returncode == 0


@pytest.mark.slow
def test_a_run_goes_on_when_nobody_reads_what_it_prints(run):
    reading, writing = os.pipe()
    os.close(reading)
    with open(writing, "w") as pipe:
        done = run(stdout=pipe)
    assert done.returncode == 0, done.stderr
    assert re.findall(SAID, done.stderr) == [("output", "its reader has closed it")]

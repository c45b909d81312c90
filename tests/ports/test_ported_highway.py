"""Highway's own programs (2017), ported: they run in processes of their own and print what they did."""

import re
import signal
import sys
from pathlib import Path

import pytest
from waiting import without_waits

from highway.data import photos

PROGRAMS = Path(__file__).parent / "highway_2017"


@pytest.fixture
def start(tmp_path, popen):
    """Start a program of the folder."""
    return lambda program, *arguments: popen([sys.executable, str(PROGRAMS / program), *map(str, arguments)], cwd=tmp_path)


def figures(process):
    """Wait for a benchmark, and return the megabytes and the items per second that it printed."""
    out, err = process.communicate(timeout=200)
    assert (process.returncode, without_waits(err)) == (0, "")
    found = re.fullmatch(r"Running benchmark\.\.\.\nMBytes/s:  ([\d.e+]+)\nIters/s ([\d.e+]+)\n", out)
    assert found is not None, out
    return map(float, found.groups())


@pytest.mark.slow
@pytest.mark.parametrize(
    ("program", "items", "size"),
    [("noise.py", 500, 3 * 320 * 240 * 3 * 4), ("generic.py", 5, 32 * 255 * 255 * 3 * 4), ("ipc.py", 100, 3 * 320 * 240 * 3 * 4)],
)
def test_the_benchmarks_print_their_rates(start, program, items, size):
    megabytes, rate = figures(start(program, items))
    assert megabytes == pytest.approx(rate * size / 1e6, rel=1e-6)
    assert rate > 0


def test_the_tcp_benchmark_prints_its_rates(start, own_address):
    megabytes, rate = figures(start("tcp.py", 100, own_address))
    assert megabytes == pytest.approx(rate * 3 * 320 * 240 * 3 * 4 / 1e6, rel=1e-6)


def test_the_readmes_local_example(start):
    out, err = start("readme.py", "local", f"{photos()}/train", "-").communicate(timeout=200)
    assert (out, err) == ("(16, 240, 320, 3) uint8 (16,) int32\n", "")


def test_the_readmes_three_kinds_of_machines(start, own_address):
    others = [start("readme.py", machine, f"{photos()}/train", own_address) for machine in ("data source", "worker")]
    trainer = start("readme.py", "training", "-", own_address)
    out, err = trainer.communicate(timeout=200)
    assert (trainer.returncode, out, without_waits(err)) == (0, "(16, 240, 320, 3) uint8 (16,) int32\n" * 5, "")
    for process in others:
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=200)
        assert (process.returncode, out, without_waits(err)) == (130, "", "")

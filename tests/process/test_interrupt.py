"""Ctrl-C while ``highway run`` starts: exit code 130, nothing printed but what is meant for people, nothing left running."""

import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import highway
from highway.cli import main
from highway.process import interrupt

HOME = Path(highway.__file__).parents[1]
TEXT = """
roles:
  a: ["slow:Numbers", "slow:Sum"]
  b: ["slow:Numbers", "slow:Sum"]
"""
SLOW = """
import os, time
from pathlib import Path
Path("importing").touch()
while Path("wait").exists():
    time.sleep(0.01)
class Numbers:
    def __iter__(self):
        while True:
            yield 1
            time.sleep(0.01)
class Sum:
    def consume(self, items):
        for item in items:
            print("got", item, flush=True)
"""


@pytest.fixture
def start(tmp_path, popen):
    """Start ``highway run`` in a session of its own, with a module that is slow to import while there is a file ``wait``."""
    (tmp_path / "slow.py").write_text(SLOW)
    (tmp_path / "t.yaml").write_text(TEXT)

    def start(*options, **environment):
        command = [sys.executable, "-m", "highway", "run", "t.yaml", "--plugin", "slow", *options]
        env = {**os.environ, "PYTHONPATH": str(HOME), **environment}
        with interrupt.Withheld():  # from Python's own start, which is not ours
            return popen(command, cwd=tmp_path, env=env, start_new_session=True)

    return start


def interrupted(process):
    """Press Ctrl-C: every process of the terminal's foreground group gets the signal. Return the code, and what was printed."""
    os.killpg(process.pid, signal.SIGINT)
    out, error = process.communicate(timeout=200)
    return process.returncode, out + error


@pytest.mark.parametrize("options", [[], ["--role", "a"]])
def test_ctrl_c_while_the_launcher_imports(start, tmp_path, options):
    (tmp_path / "wait").touch()
    process = start(*options)
    while not (tmp_path / "importing").exists():
        assert process.poll() is None
    assert interrupted(process) == (130, "")


@pytest.mark.slow
def test_ctrl_c_while_the_roles_import(start, tmp_path):
    slow = (
        (tmp_path / "slow.py")
        .read_text()
        .replace('Path("wait").exists()', 'Path("wait").exists() and "--report-to" in str(__import__("sys").argv)')
    )
    (tmp_path / "slow.py").write_text(
        slow.replace('Path("importing").touch()', '"--report-to" in str(__import__("sys").argv) and Path("importing").touch()')
    )
    (tmp_path / "wait").touch()
    process = start()
    while not (tmp_path / "importing").exists():
        assert process.poll() is None
    code, printed = interrupted(process)
    assert code == 130
    assert "Traceback" not in printed
    assert "KeyboardInterrupt" not in printed
    assert printed.endswith("highway: interrupted\n")


@pytest.mark.slow
@pytest.mark.parametrize("after", range(6))
def test_ctrl_c_at_any_moment(start, after):
    process = start("--json", PYTHONUNBUFFERED="1")
    seconds = 0.15 + 0.5 * after  # what is tried is any moment, so there is nothing to wait for
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(seconds)
    code, printed = interrupted(process)
    assert code == 130, printed
    assert "Traceback" not in printed
    assert "Exception ignored" not in printed


def test_a_library_leaves_ctrl_c_to_its_program():
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    code = "import highway, signal; assert signal.getsignal(signal.SIGINT) is signal.default_int_handler"
    subprocess.run([sys.executable, "-c", code], check=True, env={**os.environ, "PYTHONPATH": str(HOME)})


def test_who_calls_a_command_keeps_ctrl_c(capsys):
    assert main(["run", "nowhere.yaml"]) == 2
    assert "nowhere.yaml" in capsys.readouterr().err
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_what_was_started_without_ctrl_c_keeps_it_so():
    code = (
        "import signal, highway.process.interrupt as i; signal.signal(2, signal.SIG_IGN); i.begin_program(); i.raise_again(); "
        "assert signal.getsignal(2) is signal.SIG_IGN"
    )
    subprocess.run([sys.executable, "-c", code], check=True, env={**os.environ, "PYTHONPATH": str(HOME)})

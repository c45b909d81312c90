"""The end of a child process."""

import os
import signal
import subprocess
import sys
import time

import pytest

from highway import Pipeline
from highway.children.process import end
from highway.modules import Processes


@pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="only Linux tells of the end of a process")
def test_the_end_of_a_child_is_waited_for_without_looking_again_and_again(monkeypatch):
    monkeypatch.setattr(time, "sleep", lambda seconds: pytest.fail(f"it sleeps {seconds} s"))
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, stderr=subprocess.DEVNULL)
    process.stdin.close()
    assert not end(process, timeout=60)
    assert process.returncode == 1
    assert not end(process)


def test_a_child_imports_the_same_highway_whatever_else_is_called_so(tmp_path, monkeypatch):
    """Other pixels came out of a process that had found a checkout in which the C extension was not built."""
    (tmp_path / "highway").mkdir()
    (tmp_path / "highway" / "__init__.py").write_text("raise ImportError('another one')")
    monkeypatch.syspath_prepend(tmp_path)
    with Pipeline([range(3), Processes([abs])]) as pipeline:
        assert list(pipeline) == [0, 1, 2]


@pytest.mark.parametrize("isolated", [False, True])
def test_ctrl_c_while_a_child_starts_is_for_its_parent(tmp_path, monkeypatch, capfd, isolated):
    """It reaches all processes of a terminal; the child would end in the middle of its imports, and say where."""
    (tmp_path / "sitecustomize.py").write_text("""
import os, signal, sys
class Interrupts:
    def find_spec(self, name, path=None, target=None):
        if name == "highway.engine":
            print("interrupted", flush=True)
            os.kill(os.getpid(), signal.SIGINT)
sys.meta_path.insert(0, Interrupts())
""")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    with Pipeline([range(3), abs if isolated else Processes([abs], 1)], isolated=isolated) as pipeline:
        assert list(pipeline) == [0, 1, 2]
    assert capfd.readouterr() == ("interrupted\n", "")


def test_a_child_that_does_not_end_is_killed():
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(3600)"])
    assert end(process, timeout=0.1)
    assert process.returncode == -signal.SIGKILL

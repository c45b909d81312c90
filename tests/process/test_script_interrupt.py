"""Ctrl-C at any moment after the package was imported: 130 and no traceback, in real interpreters."""

import os
import random
import signal
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

INTERRUPT = """
import os, signal, sys, threading, time
def interrupt(): os.kill(os.getpid(), signal.SIGINT)
class At:
    '''Interrupts this process when it is about to import a module.'''
    def __init__(self, name): self.name = name
    def find_spec(self, name, path=None, target=None):
        if name == self.name:
            interrupt()
"""
PIPELINE = """
from highway import Pipeline, check_cancelled
def forever():
    while True:
        yield 0
        check_cancelled()
class Sink:
    def consume(self, items):
        print("runs", flush=True)
        for item in items: pass
"""


def finish(text, tmp_path, *options):
    path = tmp_path / "script.py"
    path.write_text(INTERRUPT + textwrap.dedent(text))
    done = subprocess.run([sys.executable, *options, str(path)], capture_output=True, text=True, timeout=200, cwd=tmp_path)
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize(
    "then",
    [
        "interrupt(); time.sleep(30)",
        "threading._register_atexit(interrupt)",  # runs before the pipeline does, when the script has ended
        "class D:\n    def __del__(self): interrupt(); time.sleep(0)\nd = D(); del d",  # where Python drops exceptions
    ],
)
def test_between_construction_and_run(tmp_path, then):
    assert finish(f"{PIPELINE}\np = Pipeline([forever, Sink()])\n{then}\n", tmp_path) == (130, "", "")


def test_a_handler_of_the_scripts_own_stays(tmp_path):
    text = "signal.signal(signal.SIGINT, lambda *_: print('mine'))" + PIPELINE + "p = Pipeline([range(2), Sink()])\ninterrupt()\n"
    assert finish(text, tmp_path) == (0, "mine\nruns\n", "")


@pytest.mark.parametrize("handler", ["signal.SIG_IGN", "lambda *_: print('mine', flush=True)"])
def test_what_a_script_has_instead_stays_while_its_pipeline_runs(tmp_path, handler):
    text = f"signal.signal(signal.SIGINT, {handler}){PIPELINE}" + textwrap.dedent("""
        class Interrupts:
            def consume(self, items):
                for item in items:
                    interrupt()
                print("end", flush=True)
        p = Pipeline([range(1), Interrupts()])
    """)
    code, out, error = finish(text, tmp_path)
    said = [word for word in ("end", "mine") if word in out]  # two threads print, and may do so in one line
    assert (code, said, error) == (0, ["end", "mine"] if "mine" in handler else ["end"], "")


def test_a_script_without_a_pipeline_is_interrupted_as_ever(tmp_path):
    code, _, error = finish("import highway\ninterrupt()\ntime.sleep(30)", tmp_path)
    assert code == -signal.SIGINT and error.startswith("Traceback")


@pytest.mark.parametrize("module", ["highway.cli", "highway.cli.list", "highway.topology.components"])
@pytest.mark.parametrize("name", ["highway", "tensormon"])
def test_a_command_while_it_is_imported(tmp_path, module, name):
    text = f"sys.argv = [{name!r}, 'list']\nsys.meta_path.insert(0, At({module!r}))\nfrom highway.__main__ import main\nsys.exit(main())"
    assert finish(text, tmp_path) == (130, "", "")


def test_a_program_while_it_reads_its_options(tmp_path):
    text = """
        class Interrupts:
            def write(self, text): interrupt()
            def flush(self): pass
        from highway.cli.streams.mon import main
        sys.argv, sys.stdout = ["tensormon", "--help"], Interrupts()
        sys.exit(main())
    """
    assert finish(text, tmp_path) == (130, "", "")


def test_a_command_while_it_executes_a_string(tmp_path):
    """As ``dataclasses`` do; ``python -m`` would end by the signal for it, though it was caught."""
    (tmp_path / "executes.py").write_text(
        INTERRUPT + "from highway.process import interrupt as of\n"
        "def main():\n    of.raise_again()\n    exec('interrupt()\\ntime.sleep(30)')\n"
        "of.leave_quietly()\nsys.exit(of.run_command(main))\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-m", "executes"], capture_output=True, text=True, timeout=200, cwd=tmp_path, env=environment)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


DESTRUCTOR = "class D:\n        def __del__(self): interrupt(); time.sleep(0)\n    d = D()\n    del d"
CALLBACK = "import weakref\n    class D: pass\n    d = D()\n    r = weakref.ref(d, lambda _: (interrupt(), time.sleep(0)))\n    del d"


@pytest.mark.parametrize("where", [DESTRUCTOR, CALLBACK])
def test_a_command_where_python_drops_exceptions(tmp_path, where):
    text = (
        "from highway.process import interrupt as of\n"
        f"def main():\n    of.raise_again()\n    {where}\n    time.sleep(30)\n"
        "of.leave_quietly()\nsys.exit(of.run_command(main))\n"
    )
    assert finish(text, tmp_path) == (130, "", "")


def test_a_command_that_deals_with_a_dropped_interrupt_for_long(tmp_path):
    """The interrupt that takes its place must not come before that is done: it would be dropped for good."""
    text = """
        from highway.process import interrupt as of
        def long(*_):
            until = time.monotonic() + 0.2
            while time.monotonic() < until: pass
        begin = of.start_new_thread
        of.start_new_thread = lambda *given: (begin(*given), long())
        class D:
            def __del__(self): interrupt(); time.sleep(0)
        def main():
            of.raise_again()
            d = D()
            del d
            while True: time.sleep(0.01)  # a signal just before a long one would be noticed when that is over
        of.leave_quietly()
        sys.exit(of.run_command(main))
    """
    assert finish(text, tmp_path) == (130, "", "")


def test_only_that_ctrl_c_came_as_the_program_ended_is_not_said(tmp_path):
    """Python says so where a signal comes between its last look at signals and the removal of their handler."""
    text = """
        from highway.process import interrupt as of
        of.leave_quietly()
        class Late:
            def __init__(self, text): self.text = text
            def __del__(self): raise OSError(self.text)
        import atexit
        atexit.unregister(of._ignore)
        of._ignore()
        Late("Signal 2 ignored due to race condition")
        Late("disk full")
    """
    code, out, error = finish(text, tmp_path)
    assert (code, out) == (0, "")
    assert "race condition" not in error and error.endswith("OSError: disk full\n")


@pytest.mark.slow
@pytest.mark.parametrize("what", ["script", "list", "mon"])
def test_at_random_moments(tmp_path, what):
    """A few of many moments, once the package was imported. Until then, and in a script without a pipeline, Python decides."""
    (tmp_path / "script.py").write_text(PIPELINE + "from highway.modules import Identity\np = Pipeline([forever, Identity(), Sink()])\n")
    commands = {
        "script": ["script.py"],
        "list": ["-m", "highway", "list"],
        "mon": ["-m", "highway", "mon", f"zsub+ipc://{tmp_path}/nobody"],
    }
    for seed in range(3):
        command = [sys.executable, "-v", *commands[what]]  # says what is imported, so that one knows when it begins
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        with subprocess.Popen(
            command, cwd=tmp_path, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
        ) as process:
            for line in process.stderr:
                if line.startswith("import 'highway'"):
                    break
            rest = []
            reader = threading.Thread(target=lambda lines=rest, stream=process.stderr: lines.extend(stream))
            reader.start()
            time.sleep(1.5 * random.Random(seed).random())  # the moment, not a wait for something
            process.send_signal(signal.SIGINT)
            code = process.wait(timeout=200)
            reader.join()
        said = "".join(rest)
        if (code, what) == (-signal.SIGINT, "script"):
            continue  # there was no pipeline yet
        assert code == 130 or (code, what) == (0, "list"), said[-3000:]
        assert "Traceback" not in said and "Exception ignored" not in said, said[-3000:]

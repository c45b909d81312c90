"""Ctrl-C in a script with a pipeline, and while a command starts, in real interpreters."""

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


def test_between_construction_and_run_it_ends_the_script_as_ever(tmp_path):
    code, out, error = finish(f"{PIPELINE}\np = Pipeline([forever, Sink()])\ninterrupt()\ntime.sleep(30)\n", tmp_path)
    assert (code, out) == (-signal.SIGINT, "") and error.endswith("KeyboardInterrupt\n")


def test_while_the_pipeline_runs(tmp_path):
    text = PIPELINE + "class Interrupts(Sink):\n    def consume(self, items):\n        interrupt()\n        super().consume(items)\n"
    assert finish(f"{text}p = Pipeline([forever, Interrupts()])\n", tmp_path) == (130, "runs\n", "")


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
        expected = {"script": (-signal.SIGINT, 130), "list": (0, 130, -signal.SIGINT), "mon": (130, -signal.SIGINT)}  # or as Python exits
        assert code in expected[what], said[-3000:]

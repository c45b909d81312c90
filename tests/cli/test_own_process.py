"""A command in a process of its own: one JSON document on standard output, however a library or a signal ends the process."""

import json
import os
import signal
import sys

import pytest
from topologies import HOME
from waiting import wait_until

from highway.cli.output import run_apart

PROGRAM = """
import os, signal, sys, time
from pathlib import Path
from highway.process import interrupt

interrupt.begin_program()

from highway.cli.output import kept_for_json, own_stdout, run_apart

def say(text):
    print(text, file=own_stdout(), flush=True)

def command():
    BODY

def document(code, message):
    return '{"code": %d, "message": "%s"}' % (code, message)

def main():
    interrupt.raise_again()
    try:
        with kept_for_json():
            return run_apart(command, "Ray", document)
    except KeyboardInterrupt:
        return 130

sys.exit(main())
"""
UNKNOWN = "the number of lost messages is unknown"


@pytest.fixture(autouse=True)
def hang_up():
    """Let processes that are started here end by SIGHUP, also if the tests run under ``nohup``."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


@pytest.fixture
def start(tmp_path, popen):
    """Start a command in a process of its own; ``begun`` is the file in which it notes its number."""

    def start(*body, **options):
        path = tmp_path / "program.py"
        path.write_text(PROGRAM.replace("BODY", "\n    ".join(["Path('begun').write_text(str(os.getpid()))", *body])))
        return popen(
            [sys.executable, str(path)], cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(HOME), "PYTHONWARNINGS": "error"}, **options
        )

    return start


def end(process):
    """Wait for the end; return the exit code, the document and standard error."""
    out, error = process.communicate(timeout=60)
    return process.returncode, json.loads(out), error


def test_a_command_that_ends_by_itself_has_its_own_document_and_exit_code(start):
    code, found, error = end(start("say('{}')", "return 3"))
    assert (code, found, error) == (3, {}, "")


def test_what_libraries_print_is_not_in_the_document(start):
    code, found, error = end(start("print('python')", "os.write(1, b'C')", "say('{}')", "return 0"))
    assert (code, found) == (0, {})
    assert error.split() == ["C", "python"] or error.split() == ["python", "C"]


ENDS = {
    "exit code 1": ("os._exit(1)", 1, "ended with exit code 1"),
    "exit code 0": ("os._exit(0)", 1, "ended with exit code 0"),
    "abort": ("os.abort()", 134, "was killed by SIGABRT"),
    "kill": ("os.kill(os.getpid(), signal.SIGKILL)", 137, "was killed by SIGKILL"),
    "in the middle of the document": ("say('{'); os._exit(1)", 1, "ended with exit code 1"),
    "realtime": ("os.kill(os.getpid(), 40)", 168, "was killed by signal 40"),
}


@pytest.mark.parametrize("which", ENDS)
def test_a_library_that_ends_the_process_is_named_in_a_document(start, which):
    statement, code, how = ENDS[which]
    message = f"the process of the run {how}; perhaps Ray has ended it; {UNKNOWN}"
    process = start("import resource", "resource.setrlimit(resource.RLIMIT_CORE, (0, 0))", statement)
    assert end(process) == (code, {"code": code, "message": message}, f"highway: {message}\n")


def test_processes_that_the_command_leaves_behind_hold_up_nobody(start, tmp_path):
    program = "import time; time.sleep(60)"
    process = start(
        "import subprocess",
        f"left = subprocess.Popen([sys.executable, '-c', {program!r}], close_fds=False, stderr=-3)",
        "Path('left').write_text(str(left.pid))",
        "os._exit(1)",
    )
    try:
        assert process.wait(30) == 1
    finally:
        os.kill(int((tmp_path / "left").read_text()), signal.SIGKILL)
    process.communicate()


WAITS = ["while True: time.sleep(0.01)"]
HEARS = [
    "def hear(number, _):",
    "    say('{\"heard\": %d}' % number)",
    "    sys.exit(7)",
    "for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP): signal.signal(number, hear)",
    "Path('ready').touch()",
    *WAITS,
]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_signals_reach_the_command_once(start, tmp_path, number):
    process = start(*HEARS, start_new_session=True)
    wait_until(lambda: (tmp_path / "ready").exists())
    os.killpg(process.pid, number)  # as from a terminal
    assert end(process) == (7, {"heard": number}, "")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_that_ends_the_command_is_named_in_a_document(start, tmp_path, number):
    process = start(*WAITS)
    wait_until(lambda: (tmp_path / "begun").exists())
    process.send_signal(number)
    message = f"the process of the run was killed by {number.name}; {UNKNOWN}"
    assert end(process) == (128 + number, {"code": 128 + number, "message": message}, f"highway: {message}\n")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGHUP, signal.SIGCHLD])
def test_a_signal_that_is_ignored_is_ignored_by_the_command(start, tmp_path, number):
    body = ["while not Path('go').exists(): time.sleep(0.01)", "say('{}')", "return 0"]
    process = start(*body, preexec_fn=lambda: signal.signal(number, signal.SIG_IGN))
    wait_until(lambda: (tmp_path / "begun").exists())
    process.send_signal(number)
    (tmp_path / "go").touch()
    assert end(process) == (0, {}, "")


def test_the_command_ends_with_the_program(start, tmp_path, wait_until_gone):
    process = start(*WAITS)
    wait_until(lambda: (tmp_path / "begun").exists() and (tmp_path / "begun").read_text())
    process.kill()
    wait_until_gone(int((tmp_path / "begun").read_text()))


def test_a_command_that_other_code_calls_runs_in_its_process():
    assert run_apart(os.getpid, "Ray", lambda code, message: "") == os.getpid()

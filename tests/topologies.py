"""Topologies that run in processes of their own, with stages that say what they do."""

import contextlib
import itertools
import os
import queue
import re
import shutil
import socket
import subprocess
import sys
import threading
import uuid
from pathlib import Path

import pytest

import highway
from highway.cli import main
from highway.process.cores import ONE_THREAD
from highway.process.readable import readable

HOME = Path(highway.__file__).parents[1]
STAGES = Path(__file__).with_name("stages.py")


RAY_IN_TESTS = {  # variables of the nodes of Ray that tests start
    "RAY_GRACEFUL_SHUTDOWN_DRAIN_TIMEOUT_S": "0",  # by default, a node that gets SIGTERM can wait for 30 s before it ends
    "RAY_worker_niceness": "0",  # by default 15, with which actors hardly run on a busy machine
    "RAY_raylet_start_wait_time_s": "120",  # by default 30, which a busy machine can exceed
}
_ports = itertools.count(20_000 + os.getpid() % 120 * 100)  # below those that the system takes for connections, and of this process


def free_port():
    while True:
        with socket.socket() as tried, contextlib.suppress(OSError):
            tried.bind(("", port := next(_ports)))
            return port


def place(transport):
    """Return the key of a link that says how it travels, such as ``transport: ipc``; over tcp, on a free port."""
    return f"port: {free_port()}" if transport == "tcp" else f"transport: {transport}"


def lost_within(summary):
    """Return how many messages were lost within processes, by the JSON that a run printed."""
    return sum(
        int(number.replace(",", ""))
        for number in re.findall(r"([\d,]+) messages? that it had received (?:was|were) lost", "".join(summary["losses"]))
    )


def all_lost(summary):
    """Return how many messages were lost on links and within processes, by the JSON that a run printed."""
    return sum(link["missing"] for link in summary["links"]) + lost_within(summary)


class Lines:
    """What a process prints to a stream, read as it comes, so that the process never waits."""

    def __init__(self, stream):
        self._stream, self._queue, self._seen = stream, queue.SimpleQueue(), []
        self._thread = threading.Thread(target=self._read)
        self._thread.start()

    def _read(self):
        with self._stream:
            for line in self._stream:
                self._queue.put(line)
        self._queue.put("")

    def until(self, pattern):
        """Wait for a line that matches, and return the match."""
        with contextlib.suppress(queue.Empty):
            while line := self._queue.get(timeout=100):
                self._seen.append(line)
                if found := re.search(pattern, line):
                    return found
        raise AssertionError(f"no {pattern!r} in {''.join(self._seen)}")

    def so_far(self):
        """Return all that has been printed."""
        while not self._queue.empty():
            self._seen.append(self._queue.get())
        return "".join(self._seen)

    def all(self):
        """Wait for the end, and return all that was printed."""
        self._thread.join()
        return self.so_far()


class Run:
    """A ``highway`` command that runs, with variables of its own in the environment, or without those that are ``None``.

    It finds numerical libraries set to one thread each, as it would set them: else a role in its process begins again to do so. ``on`` are
    words before the command.
    """

    def __init__(self, *arguments, on=(), **environment):
        own = {"PYTHONPATH": str(HOME), "PYTHONWARNINGS": "error", "COLUMNS": "200", **dict.fromkeys(ONE_THREAD, "1"), **environment}
        self.process = subprocess.Popen(
            [*on, sys.executable, "-m", "highway", *map(str, arguments)],
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={name: value for name, value in {**os.environ, **own}.items() if value is not None},
        )
        self.out, self.error = Lines(self.process.stdout), Lines(self.process.stderr)

    def until(self, pattern):
        """Wait for a line on standard output that matches, and return the match."""
        try:
            return self.out.until(pattern)
        except AssertionError as error:
            error.add_note(f"on standard error:\n{self.error.so_far()}")
            raise

    def pids(self, count):
        """Wait until so many roles have said ``pid``, as ``Pass`` and ``Deaf`` do; return the process of each."""
        pids = {}
        while len(pids) < count:
            found = self.until(r"(?:(\S+) \| )?pid (\d+)")
            pids[found[1]] = int(found[2])
        return pids

    def end(self):
        """Wait for the end; return the exit code and all that was printed to either stream."""
        code = self.process.wait(timeout=200)
        return code, self.out.all(), self.error.all()


@pytest.fixture
def start():
    """Start ``highway``; what still runs when the test ends is killed."""
    runs = []

    def start(*arguments, **environment):
        runs.append(Run(*arguments, **environment))
        return runs[-1]

    yield start
    for run in runs:
        run.process.kill()
        run.end()


@pytest.fixture
def call(start):
    """Run ``highway`` to its end."""
    return lambda *arguments, **environment: start(*arguments, **environment).end()


@pytest.fixture
def ask(folder, monkeypatch, capsys):
    """Run a ``highway`` command that starts nothing, in this process; return the exit code and all that was printed to either stream."""
    monkeypatch.syspath_prepend(folder)
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.delitem(sys.modules, "mine", raising=False)

    def ask(*arguments):
        try:
            code = main(list(map(str, arguments)))
        except SystemExit as end:
            code = end.code
        return code, *capsys.readouterr()

    yield ask
    sys.modules.pop("mine", None)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The current folder of the test, with the module of stages."""
    shutil.copy(STAGES, tmp_path / "mine.py")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def write(folder):
    """Write a topology under a name of its own, or this one; ``$`` before a stage's name stands for the module with the stages."""

    def write(text, name=None):
        path = Path(name or f"t{uuid.uuid4().hex[:12]}.yaml")
        path.write_text(re.sub(r"\$(?=[A-Z])", "mine:", text))
        return path.name

    return write


@pytest.fixture
def numbers():
    """Return the numbers that ``Say`` printed."""
    return lambda out, word="got": [int(number) for number in re.findall(rf"{word} (\d+)$", out, re.M)]


@pytest.fixture
def wait_until_gone():
    """Wait for a process that may be no child of ours."""

    def wait(pid):
        try:
            opened = os.fdopen(os.pidfd_open(pid))
        except ProcessLookupError:
            return
        with opened:
            assert readable([opened], 30), f"process {pid} is still there"

    return wait

"""Topologies that run in processes of their own, with stages that say what they do."""

import os
import queue
import re
import select
import subprocess
import sys
import threading
import uuid
from pathlib import Path

import pytest

import highway

HOME = Path(highway.__file__).parents[1]

STAGES = '''
import os, signal, sys, time
from dataclasses import dataclass
from pathlib import Path
import numpy as np
from highway.engine.cancel import wait

@dataclass
class Numbers:
    """Yield 0, 1, 2, ...: one every so many seconds, while there is no file ``until``; at number ``hold`` wait for a file ``go``."""
    every: float = 0.002
    until: str = ""
    count: int = 1_000_000
    hold: int = -1
    def __iter__(self):
        for n in range(self.count):
            if self.until and Path(self.until).exists():
                return
            while n == self.hold and not Path("go").exists():
                wait(0.01)
            yield (np.full(1, n, np.int32),)
            wait(self.every)

@dataclass
class Say:
    """Print the number of each item, and wait."""
    word: str = "got"
    every: float = 0.0
    def consume(self, items):
        for item in items:
            print(self.word, int(item[0][0]), flush=True)
            wait(self.every)

@dataclass
class Pass:
    """Say once which process it is, and wait with each item."""
    every: float = 0.0
    said: bool = False
    def __call__(self, item):
        if not self.said:
            self.said = True
            print("pid", os.getpid(), flush=True)
        wait(self.every)
        return item

@dataclass
class KillAt:
    """Kill this process at an item, but only the first one that comes there."""
    number: int
    def __call__(self, item):
        if item[0][0] >= self.number and not Path("killed").exists():
            Path("killed").touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return item

@dataclass
class KillInReport:
    """Kill this process at an item, in the middle of a line that it writes to its launcher, but only the first one that comes there."""
    number: int
    def __call__(self, item):
        if item[0][0] >= self.number and not Path("killed").exists():
            Path("killed").touch()
            os.write(int(next(word for word in sys.argv if word.startswith("--report-to=")).partition("=")[2]), b'{"stats": {"stages": [')
            os.kill(os.getpid(), signal.SIGKILL)
        return item

@dataclass
class FailAt:
    number: int
    def __call__(self, item):
        if item[0][0] == self.number:
            raise ValueError(f"no {self.number}")
        return item

@dataclass
class FailWhen:
    """Fail as soon as there is a file."""
    path: str
    def __call__(self, item):
        while not Path(self.path).exists():
            wait(0.01)
        raise ValueError("now")

class SayThreads:
    def __call__(self, item):
        print(*(os.environ.get(name) for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")), flush=True)
        return item

class SayImports:
    def __call__(self, item):
        found = [name for name in ("rich", "prometheus_client", "waitress", "http.client", "highway.run.supervise") if name in sys.modules]
        print("imported:", *(found or ["nothing of these"]), flush=True)
        return item
'''


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
        while line := self._queue.get(timeout=100):
            self._seen.append(line)
            if found := re.search(pattern, line):
                return found
        raise AssertionError(f"no {pattern!r} in {''.join(self._seen)}")

    def all(self):
        """Wait for the end, and return all that was printed."""
        self._thread.join()
        while not self._queue.empty():
            self._seen.append(self._queue.get())
        return "".join(self._seen)


class Run:
    """A ``highway`` command that runs."""

    def __init__(self, *arguments, **environment):
        inherited = {name: value for name, value in os.environ.items() if not name.endswith("_NUM_THREADS")}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "highway", *map(str, arguments)],
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**inherited, "PYTHONPATH": str(HOME), "PYTHONWARNINGS": "error", **environment},
        )
        self.out, self.error = Lines(self.process.stdout), Lines(self.process.stderr)

    def until(self, pattern):
        """Wait for a line on standard output that matches, and return the match."""
        return self.out.until(pattern)

    def end(self):
        """Wait for the end; return the exit code and all that was printed to either stream."""
        code = self.process.wait(timeout=100)
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
def write(tmp_path, monkeypatch):
    """Write a topology under a name of its own; ``$Name`` stands for a stage of the module with them."""
    (tmp_path / "mine.py").write_text(STAGES)
    monkeypatch.chdir(tmp_path)

    def write(text):
        path = Path(f"t{uuid.uuid4().hex[:12]}.yaml")
        path.write_text(re.sub(r"\$(?=\w)", "mine:", text))
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
            assert select.select([opened], [], [], 30)[0], f"process {pid} is still there"

    return wait

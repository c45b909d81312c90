"""Stages of the topologies that tests run; fixtures put this file as ``mine.py`` where ``highway`` runs."""

import contextlib
import os
import signal
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from highway.engine.cancel import wait


def number_of(item):
    """Return the number of an item: the first of its last field."""
    return int(item[-1].flat[0])


@dataclass
class Numbers:
    """Yield 0, 1, 2, ...: one every so many seconds, while there is no file ``until``; at number ``hold`` wait for a file ``go``."""

    count: int = 1_000_000
    every: float = 0.002
    until: str = ""
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
class Waves:
    """Yield 0, 1, 2, ...: one every ``high`` seconds and, once there is a file ``calm``, every ``low``, until there is a file ``stop``."""

    high: float
    low: float

    def __iter__(self):
        number = 0
        while not Path("stop").exists():
            yield (np.full(1, number, np.int32),)
            number += 1
            wait(self.low if Path("calm").exists() else self.high)


class NumberedImages:
    """Yield four images and labels, all of them the batch's number, until there is a file ``stop``; then write to ``sent`` how many."""

    def __iter__(self):
        number = 0
        while not os.path.exists("stop"):
            wait(0.002)
            yield np.full((4, 16, 12, 3), number % 256, np.uint8), np.full(4, number, np.int32)
            number += 1
        Path("sent").write_text(str(number))


@dataclass
class Pass:
    """Say once which process this is, and whose child, and wait with each item."""

    every: float = 0.0
    said: bool = False

    def __call__(self, item):
        if not self.said:
            self.said = True
            print("pid", os.getpid(), "of", os.getppid(), flush=True)
        wait(self.every)
        return item


@dataclass
class SayWhere:
    """Say once in which folder this process runs."""

    said: bool = False

    def __call__(self, item):
        if not self.said:
            self.said = True
            print("in", os.getcwd(), flush=True)
        return item


class SayAndPass:
    """Print the number of each item."""

    def __call__(self, item):
        print("item", number_of(item), flush=True)
        return item


@dataclass
class SayEnvironment:
    """Print the values of environment variables with each item."""

    names: list[str] = field(default_factory=list)

    def __call__(self, item):
        print(*map(os.environ.get, self.names), flush=True)
        return item


class SayImports:
    """Print which modules that no role needs are imported."""

    def __call__(self, item):
        found = [name for name in ("rich", "prometheus_client", "waitress", "http.client", "highway.run.supervise") if name in sys.modules]
        print("imported:", *(found or ["nothing of these"]), flush=True)
        return item


class CheckImages:
    """See that images and labels are those of one batch of ``NumberedImages``."""

    def __call__(self, item):
        images, labels = item
        assert images.shape == (4, 16, 12, 3) and (images == number_of(item) % 256).all() and (labels == number_of(item)).all()
        return item


@dataclass
class FailAt:
    """Fail at an item, some seconds after it came."""

    number: int
    after: float = 0.0

    def __call__(self, item):
        if number_of(item) == self.number:
            wait(self.after)
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


@dataclass
class Wait:
    """Wait with each item until there is a file."""

    until: str

    def __call__(self, item):
        while not Path(self.until).exists():
            wait(0.01)
        return item


@dataclass
class KillWhen:
    """Kill this process as soon as there is a file."""

    path: str

    def __call__(self, item):
        while not Path(self.path).exists():
            wait(0.01)
        os.kill(os.getpid(), signal.SIGKILL)


@dataclass
class Exit:
    """End this process at once, with this exit code."""

    code: int

    def __call__(self, item):
        os._exit(self.code)


@dataclass
class KillAt:
    """Kill this process at an item, but only the first one that comes there."""

    number: int

    def __call__(self, item):
        if number_of(item) >= self.number:
            with contextlib.suppress(FileExistsError):  # two replicas may come there at once
                Path("killed").touch(exist_ok=False)
                self.kill()
        return item

    def kill(self):
        os.kill(os.getpid(), signal.SIGKILL)


class KillInReport(KillAt):
    """Kill this process in the middle of a line that it writes to its launcher."""

    def kill(self):
        os.write(int(next(word for word in sys.argv if word.startswith("--report-to=")).partition("=")[2]), b'{"stats": {"stages": [')
        super().kill()


@dataclass
class Say:
    """Print the number of each item, and wait."""

    word: str = "got"
    every: float = 0.0

    def consume(self, items):
        for item in items:
            print(self.word, number_of(item), flush=True)
            wait(self.every)


@dataclass
class Record:
    """Write the number of each item to a file."""

    path: str

    def consume(self, items):
        with open(self.path, "w") as file:
            for item in items:
                print(number_of(item), file=file)


class Deaf:
    """Say which process this is, and do not stop."""

    def consume(self, items):
        print("pid", os.getpid(), "of", os.getppid(), flush=True)
        while True:
            time.sleep(1)


@dataclass
class HoldInterpreter:
    """Start programs, one of them in a session of its own, say which processes these are, and never let go of the interpreter again."""

    def __call__(self, item):
        import ctypes
        import subprocess

        programs = [subprocess.Popen(["sleep", "1000"], start_new_session=is_own) for is_own in (False, True)]
        print("pid", os.getpid(), "programs", *(program.pid for program in programs), flush=True)
        ctypes.PyDLL(None).sleep(1000)


@dataclass
class LongLine:
    """Print a line that is one byte longer than what is shown as one line; its line break comes with the second item."""

    def consume(self, items):
        for number, _ in enumerate(items):
            print("\nafter it" if number else "x" * 65_537, end="", flush=True)


@dataclass
class ShowProgress:
    """Print a progress bar that is written again and again, without a line break, and at its end a line of this many characters."""

    states: int = 400_000
    last: int = 0

    def consume(self, items):
        for _ in items:
            for number in range(0, self.states, 1000):
                print("".join(f"\r{state}/{self.states} |{'#' * 40}|" for state in range(number, number + 1000)), end="", flush=True)
            print("\r100% of it", flush=True)
            print("x" * self.last, flush=True)

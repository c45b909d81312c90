"""Maps that tests have children run: in a module of their own, since a child imports all of the module, and pytest takes it 0.2 s."""

import functools
import gc
import itertools
import os
import signal
import threading
import time
from collections import Counter, deque
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from highway import DROP, Passport, Stamped
from highway.children import maps


def square(n):
    return n * n


def with_pid(item):
    return item, os.getpid()


@dataclass
class HangAt3:
    """Returns an item and a random number. At item 3 it hangs for ever, in the first processes that get it."""

    folder: str
    times: int

    def __call__(self, item, rng):
        number = int(rng.integers(1 << 30))
        if item == 3 and len(os.listdir(self.folder)) < self.times:
            Path(self.folder, str(os.getpid())).touch()
            threading.Event().wait()
        return item, number


@dataclass
class WaitForOthers:
    """Returns an item and its process, as soon as so many processes have had one."""

    folder: str
    count: int

    def __call__(self, item):
        Path(self.folder, str(os.getpid())).touch()
        while len(os.listdir(self.folder)) < self.count:
            time.sleep(0.01)
        return item, os.getpid()


def draw(item, rng):
    return item, rng.integers(1 << 60)


def odd_ones(n):
    return n if n % 2 else DROP


def nothing(n):
    return None


def fail_at_3(n):
    if n == 3:
        raise KeyError("three")
    return n


class Peculiar(Exception):
    """Cannot be made of its args alone."""

    def __init__(self, code, *, reason):
        super().__init__(f"{code} because {reason}")


def fail_peculiarly(n):
    raise Peculiar(7, reason="of this")


def fail_with_a_lambda(n):
    raise ValueError(lambda: n)


def die_at_3(n):
    if n == 3:
        os.kill(os.getpid(), signal.SIGKILL)
    return n


class Logged:
    """Writes down each item that it begins, and dies at each hundredth and one."""

    def __init__(self, path):
        self.path = path

    def __call__(self, n):
        with open(self.path, "a") as log:
            log.write(f"{n}\n")
        if n % 100 == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        return n


def never_end_at_300(n):
    if n == 300:
        time.sleep(3600)
    return n


def add_one(box):
    box["n"] += 1
    return box


def a_lock_at_5(n):
    return threading.Lock() if n == 5 else n


def exit_at_3(n):
    if n == 3:
        os._exit(4)
    return n


def never_end(n):
    time.sleep(3600)


def report_odd_ones(n, context):
    if n % 2:
        context.report_error(ValueError(f"{n} is odd"))
    return n


class TakeAMillisecond:
    """Takes a millisecond; by the clock of the child that has it, however long it takes on a machine that has other things to do."""

    def __init__(self, seconds=0.001):
        self.seconds = seconds

    def __reduce__(self):
        return _with_a_clock_of_its_own, (type(self), self.seconds)

    def __call__(self, n):
        time.sleep(self.seconds)
        return n


class ReportAndTakeAMillisecond(TakeAMillisecond):
    def __call__(self, n, context):
        context.report_error(ValueError(f"{n} is odd"))
        return super().__call__(n)


def _with_a_clock_of_its_own(kind, seconds):
    maps.time = SimpleNamespace(perf_counter=itertools.count(0.0, 0.001).__next__)  # looked at before and after each item
    return kind(seconds)


def slow_in_turns(n):
    time.sleep(0.02 * (n % 3))
    return n


def move_on(n):
    return Stamped(n, Passport(5, n + 100))


def write_into(array):
    array[0] = 1
    return array


@dataclass
class Offset:
    by: np.ndarray

    def __call__(self, item):
        return item + self.by


def frozen_objects(n):
    return gc.get_freeze_count()


class Select:
    def __call__(self, item):
        return item


@dataclass
class Squareroot:
    """What squares to n."""

    n: int

    def __mul__(self, other):
        return self.n


def numbers():
    yield from range(7)


def fail_after_3():
    yield from range(3)
    raise OSError("disk gone")


def die_after_3():
    yield from range(3)
    os.kill(os.getpid(), signal.SIGKILL)


class Recent:
    """Keep the last items, in a deque of a fixed length, and how often there was each, by the remainder."""

    def __init__(self):
        self.last, self.often = deque([0, 0], maxlen=2), Counter({0: 0, 1: 0})

    def __call__(self, item):
        self.last.append(item)
        self.often[item % 2] += 1
        return item


@dataclass
class Draws:
    """Add a number that a generator draws, which is not highway's."""

    own: Any

    def __call__(self, item):
        return item + self.own.random()


class Counts:
    """Number the items that it gets."""

    def __init__(self):
        self.seen, self.labels = 0, []

    def __call__(self, item):
        self.seen += 1
        self.labels.append(item)
        return item


_seen = 0
_files: dict[str, Any] = {}


def counts_in_a_global(item):
    global _seen
    _seen += 1
    return item


def counted(function):
    seen = []

    @functools.wraps(function)
    def call(item):
        seen.append(item)
        return function(item)

    return call


@counted
def counts_in_a_closure(item):
    return item


def opens_once(item):
    if "log" not in _files:
        _files["log"] = SimpleNamespace(written=0)
    return item

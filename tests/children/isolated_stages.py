"""What runs in isolated pipelines of the tests: in a module of its own, which a process imports quickly."""

import os
import signal
import time

import numpy as np

from highway import check_cancelled


class Noise:
    def __call__(self, item, rng):
        return item + rng.random()


class Count:
    """Counts for ever, or says what the process is."""

    def __iter__(self):
        number = 0
        while True:
            check_cancelled()
            yield np.array([number, os.getpid()])
            number += 1


class Late:
    """Gives an item when a file is there."""

    def __init__(self, path):
        self.path = path

    def __iter__(self, context):
        with context.starved():
            while not self.path.exists():
                context.wait(0.01)
        yield 1


class Pictures:
    def __iter__(self):
        for number in range(40):
            yield {"image": np.full((100, 100, 3), number, np.uint8), "name": f"{number}"}


class Strange:
    """Cannot be pickled."""

    def __reduce__(self):
        raise TypeError("it is strange")


class Broken:
    """Cannot be made again from its pickle."""

    def __setstate__(self, state):
        raise ValueError("broken")

    def __getstate__(self):
        return {"a": 1}


class Lines:
    def __init__(self, path):
        self.path = path

    def consume(self, items):
        with open(self.path, "w") as file:
            for item in items:
                file.write(f"{item}\n")


def strange(item):
    return Strange()


def broken(item):
    return Broken()


def large(item):
    return np.zeros(2_000_000, np.uint8)


def fail_at_3(item):
    if item == 3:
        raise KeyError("three")
    return item


def die_at_3(item):
    if item == 3:
        os.kill(os.getpid(), signal.SIGKILL)
    return item


def with_pid(item):
    return item, os.getpid()


def never_end(item):
    time.sleep(3600)


def counted(item, context):
    context.count(counted, "seen")
    return item


def counted_strangely(item, context):
    context.counters(counted_strangely)["seen"] = Strange()
    return item

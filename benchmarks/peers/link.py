"""One end of a link, or both, in a process of its own: ``python link.py send|receive|both WAY URL SHAPE COUNT``.

It answers in lines of JSON: first its versions, and if it receives its address; then one line each time that ``COUNT`` batches have come.
It works when it reads a line, and ends at the end of its input. So nobody polls while it is the turn of others.
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import sys
import threading
from collections.abc import Iterator

import numpy as np
from handovers import HANDOVERS
from links import WAYS, Batch

if __name__ == "__main__":  # a spawned process imports this too
    ANSWERS = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)


def answer(**what: object) -> None:
    print(json.dumps(what), file=ANSWERS)


def wait() -> None:
    """Wait for the next turn, or end."""
    if not sys.stdin.readline():
        if threading.current_thread() is threading.main_thread():
            sys.exit()
        os._exit(0)


class Arrivals:
    """Counts batches, and answers when a turn's have come.

    Raises:
        ValueError: the last batch of a turn is not what was sent.
    """

    def __init__(self, batches: list[Batch], count: int) -> None:
        self.last, self.count, self.came = batches[(count - 1) % len(batches)], count, 0

    def __call__(self, images: np.ndarray, labels: np.ndarray) -> None:
        self.came += 1
        if self.came == self.count:
            if not all(np.array_equal(got, sent) for got, sent in zip((images, labels), self.last, strict=True)):
                raise ValueError("the received message differs from the sent message")
            self.came = 0
            answer(came=self.count)
            wait()


def main() -> None:
    end, name, url, shape, number = sys.argv[1:]
    size, count = tuple(map(int, shape.split("x"))), int(number)
    batches = [(np.full(size, n, np.uint8), np.arange(size[0], dtype=np.int32)) for n in range(4)]
    way = (HANDOVERS if end == "both" else WAYS)[name]
    versions = {package: importlib.metadata.version(package) for package in way.packages}

    def announce(address: str) -> None:
        answer(versions=versions, address=address)
        wait()

    def turns() -> Iterator[Batch]:
        for _ in sys.stdin:
            for turn in range(count):
                yield batches[turn % len(batches)]

    if end == "receive":
        WAYS[name].receive(url, announce, Arrivals(batches, count), batches[0])
    elif end == "send":
        answer(versions=versions)
        WAYS[name].send(url, turns())
    else:
        come, arrivals = HANDOVERS[name].open(batches), Arrivals(batches, count)
        announce("")
        while True:
            for batch in come(count):
                arrivals(*batch)


if __name__ == "__main__":
    try:
        main()
    except Exception as error:
        answer(error=f"{type(error).__name__}: {error}")
        raise

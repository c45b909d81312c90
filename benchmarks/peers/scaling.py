"""Stages of the topologies in benchmarks/scale_out.py, which name them as plug-ins; imported by each process, and quickly."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any


@dataclass
class Asleep:
    """Sleep for so many seconds in place of work on an item, without the GIL and without a core."""

    seconds: float

    def __call__(self, item: Any) -> Any:
        time.sleep(self.seconds)
        return item


@dataclass
class Clock:
    """Write when each batch came, by the clock that all processes of the machine share, and how many samples were in it."""

    path: str

    def consume(self, items: Iterable[Any]) -> None:
        record(self.path, (len(item[0]) for item in items))


def record(path: str, batches: Iterable[int]) -> None:
    """Write a line for each batch as it comes: the time, and the samples in it."""
    with open(path, "w", buffering=1) as file:
        for samples in batches:
            print(time.monotonic(), samples, file=file)

"""The work of an item in benchmarks/processes.py, in a module that the processes import quickly."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class PurePython:
    """A map that holds the GIL for so many rounds of a loop, and returns its item."""

    rounds: int

    def __call__(self, item: Any) -> Any:
        for number in range(self.rounds):
            number * number
        return item


def lasting(seconds: float) -> PurePython:
    """Return such a map that takes so long, on this machine when it has nothing else to do."""
    trial = PurePython(200_000)

    def measured() -> float:
        began = time.process_time()
        trial(None)
        return time.process_time() - began

    return PurePython(round(trial.rounds * seconds / min(measured() for _ in range(5))))


@dataclass(frozen=True)
class Worked:
    """The same as a dataset by number."""

    items: list[Any]
    work: PurePython

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, index: int) -> Any:
        return self.work(self.items[index])

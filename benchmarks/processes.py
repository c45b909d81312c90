"""Measure Python code in child processes: items per second, CPU time per item and time to the first item.

The comparison is ``Pool.imap`` and torch's ``DataLoader``.
"""

from __future__ import annotations

import itertools
import multiprocessing
import statistics
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np

from highway import Pipeline
from highway.modules import Processes
from highway.process.cores import cpu_seconds
from measure import Absent, Report, Work, chosen, in_turns, machine, parse, parser
from work import PurePython, Worked, lasting

Results = Callable[[list[Any], PurePython, int], Any]  # a context with an iterator of the results

KINDS = {  # seconds of pure Python for an item, bytes of an array in it, items a turn, and the share of bare loops that is the target
    "empty items (target: 40,000 items/s)": (0.0, 0, 20_000, None),
    "1 ms of pure Python": (0.001, 0, 1_000, 0.90),
    "2 ms of pure Python": (0.002, 0, 500, 0.95),
    "arrays of 1 kB": (0.0, 1_000, 20_000, None),
    "arrays of 1 MB": (0.0, 1_000_000, 500, None),
}


def warm(items: list[Any]) -> int:
    """Return how many of the items come before those that are measured: meanwhile all processes begin."""
    return len(items) // 5


@contextmanager
def with_highway(items: list[Any], work: PurePython, count: int) -> Iterator[Iterator[Any]]:
    with Pipeline([items, Processes([work], count)]) as pipeline:
        yield iter(pipeline)


@contextmanager
def with_pool(items: list[Any], work: PurePython, count: int, chunk: int) -> Iterator[Iterator[Any]]:
    with multiprocessing.Pool(count) as pool:
        yield itertools.chain.from_iterable(pool.imap(work, part, chunk) for part in (items[: warm(items)], items[warm(items) :]))


@contextmanager
def with_torch(items: list[Any], work: PurePython, count: int, chunk: int) -> Iterator[Iterator[Any]]:
    try:
        from torch.utils.data import DataLoader
    except ImportError as error:
        raise Absent(str(error)) from None
    dataset: Any = Worked(items, work)
    if chunk == 1:
        yield iter(DataLoader(dataset, batch_size=None, num_workers=count))
    else:
        batches = DataLoader(dataset, batch_size=chunk, num_workers=count, collate_fn=list)
        yield (item for batch in batches for item in batch)


CASES: dict[str, Results] = {
    "highway": with_highway,
    "Pool.imap": partial(with_pool, chunk=1),
    "Pool.imap, chunks of 32": partial(with_pool, chunk=32),
    "DataLoader": partial(with_torch, chunk=1),
    "DataLoader, lists of 32": partial(with_torch, chunk=32),
}


class Turns:
    """The turns of all cases of one table, and what else was measured in them."""

    def __init__(self, items: list[Any], work: PurePython, count: int, nbytes: int) -> None:
        self._items, self._work, self._count, self._nbytes = items, work, count, nbytes
        self.first: dict[str, list[float]] = defaultdict(list)  # seconds until the first item came
        self.cpu: dict[str, list[float]] = defaultdict(list)  # microseconds of all processes for each of the others

    def bare(self) -> Work:
        """Return what as many loops as there are processes would do, if none disturbed the others."""
        return self._measured("bare loops", map(self._work, self._items), self._count)

    def run(self, name: str) -> Work:
        """Run a case once."""
        with CASES[name](self._items, self._work, self._count) as results:
            return self._measured(name, results)

    def _measured(self, name: str, results: Iterator[Any], times: int = 1) -> Work:
        """Take the results, and measure how quickly they come."""
        began = time.perf_counter()
        next(results)
        self.first[name].append(time.perf_counter() - began)
        for _ in range(warm(self._items) - 1):
            next(results)
        since, cpu = time.perf_counter(), cpu_seconds()
        came = sum(1 for _ in results)
        seconds = time.perf_counter() - since
        assert came == len(self._items) - warm(self._items)
        self.cpu[name].append(1e6 * (cpu_seconds() - cpu) / came)
        return Work(times * came, times * came * self._nbytes, seconds)


def table(report: Report, kind: str, count: int, given: Any) -> None:
    """Measure one kind of items with so many processes."""
    seconds, nbytes, items, target = KINDS[kind]
    items = max(64, items // given.part)
    work = lasting(seconds) if seconds else PurePython(0)
    turns = Turns([np.zeros(nbytes, np.uint8) if nbytes else n for n in range(items)], work, count, nbytes)
    cases: dict[str, Callable[[], Work]] = {"bare loops": turns.bare} if seconds else {}
    cases |= {name: partial(turns.run, name) for name in chosen(CASES, given)}
    absent: dict[str, str] = {}
    rates = in_turns(cases, given.rounds, absent)
    title = f"{kind}, {count} process{'es' if count > 1 else ''}, {items:,} per turn"
    report.rates(title, rates, ["bare loops", "Pool.imap", "DataLoader"], "items", absent)
    rows = [[name, f"{statistics.median(turns.cpu[name]):,.0f}", f"{statistics.median(turns.first[name]):.2f}"] for name in rates]
    report.table(["case", "CPU us per item", "s to first item"], rows)
    report.targets(rates, {("highway", "bare loops"): target} if target else {})


def main() -> None:
    arguments = parser(__doc__, rounds=5)
    arguments.add_argument("--part", type=int, default=1, help="run a fraction 1/N of the items (default: %(default)s)")
    arguments.add_argument("--kind", action="append", metavar="KIND", help="run only items whose names contain this text; can be repeated")
    given = parse(arguments, part=10)
    report = Report("processes", given.record)
    report.line(machine("highway-data", "numpy", "torch"))
    for kind in KINDS:
        if not given.kind or any(part in kind for part in given.kind):
            for count in (1, 2):
                table(report, kind, count, given)
    report.record()


if __name__ == "__main__":
    main()

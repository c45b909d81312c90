"""Measure the cost of the engine: items per second from stage to stage, and batches by reference through three stages.

The comparison is plain threads with a ``queue.Queue`` between them.
"""

from __future__ import annotations

import itertools
import queue
import threading

import numpy as np

from highway import Pipeline, Stage
from measure import Report, Work, chosen, in_turns, machine, parse, parser


def same(item: object) -> object:
    return item


def with_pipeline(source: list[object], hops: int, nbytes: int = 0) -> Work:
    """Items from a source through ``hops - 1`` maps to the consumer."""
    count = sum(1 for _ in Pipeline([source, *[Stage(same)] * (hops - 1)]))
    assert count == len(source)
    return Work(count, count * nbytes)


def with_queues(source: list[object], hops: int, nbytes: int = 0) -> Work:
    """The same by hand: a thread per stage and a queue.Queue of the same capacity between them; no errors, no order, no statistics."""
    queues: list[queue.Queue[object]] = [queue.Queue(3) for _ in range(hops)]
    end = object()

    def feed() -> None:
        for item in [*source, end]:
            queues[0].put(item)

    def work(inbox: queue.Queue[object], outbox: queue.Queue[object]) -> None:
        while (item := inbox.get()) is not end:
            outbox.put(same(item))
        outbox.put(end)

    threads = [threading.Thread(target=feed)]
    threads += [threading.Thread(target=work, args=pair) for pair in itertools.pairwise(queues)]
    for thread in threads:
        thread.start()
    count = 0
    while queues[-1].get() is not end:
        count += 1
    for thread in threads:
        thread.join()
    assert count == len(source)
    return Work(count, count * nbytes)


def main() -> None:
    arguments = parser(__doc__, rounds=7)
    arguments.add_argument("--items", type=int, default=20_000, help="items or batches per turn (default: %(default)s)")
    given = parse(arguments, items=2_000)
    report = Report("engine", given.record)
    report.line(machine("highway-data", "numpy"))
    numbers: list[object] = list(range(given.items))
    batch = (np.zeros((64, 224, 224, 3), np.uint8), np.zeros(64, np.int32))
    batches: list[object] = [batch] * given.items
    nbytes = sum(array.nbytes for array in batch)
    hop = {"highway": lambda: with_pipeline(numbers, 1), "queue.Queue": lambda: with_queues(numbers, 1)}
    chain = {"highway": lambda: with_pipeline(batches, 3, nbytes), "queue.Queue": lambda: with_queues(batches, 3, nbytes)}
    for title, cases, unit in (
        ("One hop, from source to consumer, of small items (target: 25,000 items/s)", hop, "items"),
        ("Three stages, batches of 9.6 MB by reference (target: 20,000 batches/s)", chain, "batches"),
    ):
        rates = in_turns({name: cases[name] for name in chosen(cases, given)}, given.rounds, {})
        report.rates(title, rates, ["queue.Queue"], unit)
    report.record()


if __name__ == "__main__":
    main()

"""Ways from a process to itself or from one that it starts: a copy, ``multiprocessing.Queue``, torch's DataLoader."""

from __future__ import annotations

import itertools
import multiprocessing
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np
from links import Batch


class Handover(NamedTuple):
    """How batches come to a process.

    Args:
        packages: Whose versions are told.
        open: Takes the batches to send in turns; returns what lets the next so many come.
    """

    packages: tuple[str, ...]
    open: Callable[[list[Batch]], Callable[[int], Iterable[Batch]]]


def memcpy(batches: list[Batch]) -> Callable[[int], Iterator[Batch]]:
    """Copies into memory that was touched before, as much of it as there are batches."""
    targets = [tuple(np.ones_like(array) for array in batch) for batch in batches]

    def copied(count: int) -> Iterator[Batch]:
        for number in range(count):
            target = targets[number % len(targets)]
            for array, place in zip(batches[number % len(batches)], target, strict=True):
                np.copyto(place, array)
            yield target

    return copied


def queue(batches: list[Batch]) -> Callable[[int], Iterator[Batch]]:
    """``multiprocessing.Queue``, which pickles, from a process of its own."""
    context = multiprocessing.get_context("spawn")
    counts, items = context.SimpleQueue(), context.Queue(4)
    context.Process(target=_put, args=(counts, items, batches), daemon=True).start()

    def got(count: int) -> Iterator[Batch]:
        counts.put(count)
        for _ in range(count):
            yield items.get()

    return got


def _put(counts: Any, items: Any, batches: list[Batch]) -> None:
    for batch in _ordered(counts, batches):
        items.put(batch)


def dataloader(batches: list[Batch]) -> Callable[[int], Iterator[Batch]]:
    """torch's DataLoader, to which a worker process hands over in shared memory."""
    import torch
    from torch.utils.data import DataLoader, IterableDataset

    counts = multiprocessing.get_context("fork").SimpleQueue()

    class Batches(IterableDataset):
        def __iter__(self) -> Iterator[list[torch.Tensor]]:
            for batch in _ordered(counts, batches):
                yield [torch.from_numpy(array) for array in batch]

    items = iter(DataLoader(Batches(), batch_size=None, num_workers=1))

    def got(count: int) -> Iterator[Batch]:
        counts.put(count)
        for _ in range(count):
            images, labels = next(items)
            yield images.numpy(), labels.numpy()

    return got


def _ordered(counts: Any, batches: list[Batch]) -> Iterator[Batch]:
    for count in iter(counts.get, None):
        yield from itertools.islice(itertools.cycle(batches), count)


HANDOVERS = {
    "memcpy": Handover(("numpy",), memcpy),
    "queue": Handover((), queue),
    "dataloader": Handover(("torch",), dataloader),
}

"""Streams: n items in, m items out."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import count
from typing import Annotated, Any, ClassVar

import numpy as np
from numpy.random import Generator, Philox

from highway.engine.batch import Item, collate, fields, names, split
from highway.engine.cancel import seed_or
from highway.engine.stage import Items, Passport, Stamped
from highway.parameters.checks import checked
from highway.parameters.ranges import Count, Range, Seed


@checked
@dataclass
class Batch:
    """Stack samples into batches.

    Args:
        batch_size: Samples per batch, at least 1.
        drop_last: Whether to leave out a last batch that is smaller.
        as_list: Whether each field becomes the list of its samples' values instead, which may have any shapes and types.

    Yields:
        Items like the samples, with a new first axis in each field; Python's own numbers become int32 and float32. Passport: epoch, origin
        and times of the first sample, a running index, and the keys of all samples.

    Raises:
        ValueError: the samples of a batch differ in their fields, or in the shape or dtype of one; the message names it.
    """

    makes: ClassVar = "batches"

    batch_size: Count
    drop_last: bool = False
    as_list: bool = False

    def stream(self, items: Items) -> Iterator[Stamped]:
        return _batches(items, self.batch_size, self.drop_last, lambda sample: None, self.as_list)


@checked
@dataclass
class BatchByShape:
    """Stack samples of equal shapes and dtypes into batches; a batch leaves as soon as it is full.

    Args:
        batch_size: Samples per batch, at least 1.
        drop_last: Whether to leave out what is left at the end, in batches that are smaller.

    Up to ``batch_size - 1`` samples wait for each kind of shape.
    """

    makes: ClassVar = "batches"

    batch_size: Count
    drop_last: bool = False

    def stream(self, items: Items) -> Iterator[Stamped]:
        return _batches(items, self.batch_size, self.drop_last, _shapes, as_list=False)


def _batches(items: Items, batch_size: int, drop_last: bool, kind: Callable[[Item], Any], as_list: bool) -> Iterator[Stamped]:
    """Yield batches of samples of one kind, each as soon as it is full; in the end those that are not."""
    index = count()
    waiting: dict[Any, list[Stamped]] = defaultdict(list)
    for item in items:
        key = kind(item)
        waiting[key].append(Stamped(item, items.passport))
        if len(waiting[key]) == batch_size:
            yield _batch(waiting.pop(key), next(index), as_list)
    for samples in () if drop_last else waiting.values():
        yield _batch(samples, next(index), as_list)


def _batch(samples: list[Stamped], index: int, as_list: bool) -> Stamped:
    keys = tuple(key for _, passport in samples for key in passport.keys)
    return Stamped(collate([item for item, _ in samples], as_list), samples[0].passport._replace(index=index, keys=keys))


def _shapes(sample: Item) -> Any:
    arrays = [np.asarray(value) for value in fields(sample)]
    return type(sample), names(sample), tuple((array.shape, array.dtype.str) for array in arrays)


@checked
@dataclass
class Unbatch:
    """Split batches into samples, which are views of them.

    Yields:
        Items like the batches, without the first axis of each field. Passport: that of the batch, a running index, and the sample's key.

    Raises:
        ValueError: the fields of a batch differ in their first axis.
    """

    makes: ClassVar = "samples"

    def stream(self, items: Items) -> Iterator[Stamped]:
        index = count()
        for item in items:
            passport, samples = items.passport, split(item)
            for row, sample in enumerate(samples):
                keys = passport.keys[row : row + 1] if len(passport.keys) == len(samples) else passport.keys
                yield Stamped(sample, passport._replace(index=next(index), keys=keys))


@checked
@dataclass
class Shuffle:
    """Hand on items in random order, drawn from a buffer of those that came last.

    Args:
        buffer_size: Items that wait, at least 1. The larger, the better mixed.
        reuse: How often each item is handed on, at least 1; for items that cost much to make.
        seed: What the order derives from, at least 0; ``None``: the pipeline's seed.

    Passports stay with their items; with ``reuse`` the indexes are spread (``index * reuse + n``): later stages draw anew each time.
    """

    draws: ClassVar[bool] = False  # the order alone

    buffer_size: Count
    reuse: Count = 1
    seed: Seed | None = None

    def stream(self, items: Items) -> Iterator[Stamped]:
        rng = Generator(Philox(key=seed_or(self.seed)))
        waiting: list[tuple[Stamped, int]] = []  # with how often it was handed on
        for item in items:
            waiting.append((Stamped(item, items.passport), 0))
            while len(waiting) >= self.buffer_size:
                yield self._draw(waiting, rng)
        while waiting:
            yield self._draw(waiting, rng)

    def _draw(self, waiting: list[tuple[Stamped, int]], rng: Generator) -> Stamped:
        place = int(rng.integers(len(waiting)))
        drawn, uses = waiting[place]
        if uses + 1 < self.reuse:
            waiting[place] = (drawn, uses + 1)
        else:
            waiting[place] = waiting[-1]
            waiting.pop()
        return _copy(drawn.item, drawn.passport, uses, self.reuse)


@checked
@dataclass
class Duplicate:
    """Hand on each item several times in a row.

    The passports' indexes are spread (``index * times + n``): later stages draw anew each time.

    Args:
        times: How often, at least 1.
    """

    times: Count

    def stream(self, items: Items) -> Iterator[Stamped]:
        for item in items:
            for number in range(self.times):
                yield _copy(item, items.passport, number, self.times)


@checked
@dataclass
class Take:
    """Hand on the first ``n`` items and end the pipeline; with them everything before it is cancelled.

    Args:
        n: Items, at least 0.
    """

    n: Annotated[int, Range(ge=0)]

    def stream(self, items: Items) -> Iterator[Stamped]:
        for _, item in zip(range(self.n), items, strict=False):  # range first: the item after the last is not asked for
            yield Stamped(item, items.passport)


@checked
@dataclass
class Tee:
    """Call a function with each item, such as a queue's ``put``, and hand on the item.

    Args:
        fn: Takes the item; what it returns is ignored. In YAML ``package.module:name``.
    """

    fn: Callable[[Any], Any]

    def stream(self, items: Items) -> Iterator[Stamped]:
        for item in items:
            self.fn(item)
            yield Stamped(item, items.passport)


def _copy(item: Any, passport: Passport, number: int, of: int) -> Stamped:
    return Stamped(item, passport._replace(index=passport.index * of + number))

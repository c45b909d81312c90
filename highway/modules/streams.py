"""Streams: n items in, m items out."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

import numpy as np
from numpy.random import Generator, Philox

from highway.engine.batch import Item, collate, fields, names, split
from highway.engine.cancel import seed_or
from highway.engine.randomness import Below, go_on
from highway.engine.resume import Saved, keep, saved
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
    per_epoch: ClassVar[bool] = True

    batch_size: Count
    drop_last: bool = False
    as_list: bool = False

    def length(self, samples: int) -> int:
        """Return how many batches come of so many samples."""
        return samples // self.batch_size if self.drop_last else -(-samples // self.batch_size)

    def stream(self, items: Items) -> Iterator[Stamped]:
        return _batches(items, self.batch_size, self.drop_last, lambda sample: None, self.as_list)

    def remake(self, samples: list[Stamped], part: None) -> Stamped:
        """Return a batch of samples."""
        return _batch(samples, 0, self.as_list)


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
    per_epoch: ClassVar[bool] = True

    batch_size: Count
    drop_last: bool = False

    def stream(self, items: Items) -> Iterator[Stamped]:
        return _batches(items, self.batch_size, self.drop_last, _shapes, as_list=False)

    def remake(self, samples: list[Stamped], part: None) -> Stamped:
        """Return a batch of samples."""
        return _batch(samples, 0, as_list=False)


def _batches(items: Items, batch_size: int, drop_last: bool, kind: Callable[[Item], Any], as_list: bool) -> Iterator[Stamped]:
    """Yield batches of samples of one kind, each as soon as it is full; in the end those that are not."""
    begun = saved() or Saved(0)
    index: int = begun.state
    waiting: dict[Any, list[Stamped]] = defaultdict(list)
    for stamped in begun.held:
        waiting[kind(stamped.item)].append(stamped)
    keep(lambda: Saved(index, [stamped for samples in waiting.values() for stamped in samples]))
    for item in items:
        key = kind(item)
        waiting[key].append(Stamped(item, items.passport))
        if len(waiting[key]) == batch_size:
            yield _batch(waiting.pop(key), index, as_list)
            index += 1
    for samples in () if drop_last else waiting.values():
        yield _batch(samples, index, as_list)
        index += 1


def _batch(samples: list[Stamped], index: int, as_list: bool) -> Stamped:
    keys = tuple(key for _, passport in samples for key in passport.keys)
    made_of = (None, tuple(passport for _, passport in samples), None)
    item = collate([item for item, _ in samples], as_list)
    return Stamped(item, samples[0].passport._replace(index=index, keys=keys, made_of=made_of))


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
    per_epoch: ClassVar[bool] = True

    def stream(self, items: Items) -> Iterator[Stamped]:
        index: int = (saved() or Saved(0)).state
        keep(lambda: Saved(index))
        for item in items:
            passport, samples = items.passport, split(item)
            for row in range(len(samples)):
                sample = _row(samples, passport, row)
                index += 1
                yield Stamped(sample.item, sample.passport._replace(index=index - 1))

    def remake(self, batch: list[Stamped], row: int) -> Stamped:
        """Return a sample of a batch."""
        return _row(split(batch[0].item), batch[0].passport, row)


def _row(samples: list[Item], passport: Passport, row: int) -> Stamped:
    keys = passport.keys[row : row + 1] if len(passport.keys) == len(samples) else passport.keys
    return Stamped(samples[row], passport._replace(keys=keys, made_of=(None, (passport,), row)))


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
    per_epoch: ClassVar[bool] = True

    buffer_size: Count
    reuse: Count = 1
    seed: Seed | None = None

    def length(self, items: int) -> int:
        """Return how many items come of so many."""
        return items * self.reuse

    def stream(self, items: Items) -> Iterator[Stamped]:
        rng = Generator(Philox(key=items.epoch << 64 | seed_or(self.seed)))
        waiting: list[tuple[Stamped, int]] = []  # with how often it was handed on
        if begun := saved():
            waiting = list(zip(begun.held, begun.state["uses"], strict=True))
            go_on(rng, begun.state["rng"])
        places = Below(rng)
        keep(lambda: Saved({"uses": [uses for _, uses in waiting], "rng": places.state()}, [stamped for stamped, _ in waiting]))
        for item in items:
            waiting.append((Stamped(item, items.passport), 0))
            while len(waiting) >= self.buffer_size:
                yield self._draw(waiting, places)
        while waiting:
            yield self._draw(waiting, places)

    def _draw(self, waiting: list[tuple[Stamped, int]], places: Below) -> Stamped:
        place = places.next(len(waiting))
        drawn, uses = waiting[place]
        if uses + 1 < self.reuse:
            waiting[place] = (drawn, uses + 1)
        else:
            waiting[place] = waiting[-1]
            waiting.pop()
        return drawn if self.reuse == 1 else _copy(drawn, uses, self.reuse)

    def remake(self, item: list[Stamped], number: int) -> Stamped:
        """Return a copy of an item."""
        return _copy(item[0], number, self.reuse)


@checked
@dataclass
class Duplicate:
    """Hand on each item several times in a row.

    The passports' indexes are spread (``index * times + n``): later stages draw anew each time.

    Args:
        times: How often, at least 1.
    """

    times: Count

    def length(self, items: int) -> int:
        """Return how many items come of so many."""
        return items * self.times

    def stream(self, items: Items) -> Iterator[Stamped]:
        keep(Saved)
        for item in items:
            for number in range(self.times):
                yield _copy(Stamped(item, items.passport), number, self.times)

    def remake(self, item: list[Stamped], number: int) -> Stamped:
        """Return a copy of an item."""
        return _copy(item[0], number, self.times)


@checked
@dataclass
class Take:
    """Hand on the first ``n`` items, whatever their epochs, and end the pipeline; with them everything before it is cancelled.

    Where a loop over an epoch is left, the rest of the epoch counts too, and is made up to here.

    Args:
        n: Items, at least 0.
    """

    whole_epochs: ClassVar[bool] = True

    n: Annotated[int, Range(ge=0)]

    def length(self, items: int) -> int:
        """Return how many items come of so many."""
        return min(items, self.n)

    def stream(self, items: Items) -> Iterator[Stamped]:
        taken: int = (saved() or Saved(0)).state
        keep(lambda: Saved(taken))
        while taken < self.n:  # the item after the last is not asked for
            for item in items:
                taken += 1
                yield Stamped(item, items.passport)
                break
            else:
                return


@checked
@dataclass
class Tee:
    """Call a function with each item, such as a queue's ``put``, and hand on the item.

    Args:
        fn: Takes the item; what it returns is ignored. In YAML ``package.module:name``.
    """

    fn: Callable[[Any], Any]

    def length(self, items: int) -> int:
        """Return how many items come of so many."""
        return items

    def stream(self, items: Items) -> Iterator[Stamped]:
        keep(Saved)
        for item in items:
            self.fn(item)
            yield Stamped(item, items.passport)


def _copy(stamped: Stamped, number: int, of: int) -> Stamped:
    item, passport = stamped
    return stamped if of == 1 else Stamped(item, passport._replace(index=passport.index * of + number, made_of=(None, (passport,), number)))

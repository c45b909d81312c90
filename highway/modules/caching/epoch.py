"""Iterate over the epochs of a cache's input, split the items into samples, and build output batches."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, NamedTuple

import numpy as np

from highway.engine.batch import Field, Item, fields, length, names, rebuild, split, stacked
from highway.engine.stage import Items, Lineage, Passport, Positions, Stamped
from highway.images.buffers import BufferPool

log = logging.getLogger("highway")

# If the passport of a batch does not hold the positions of its rows, row r of the batch with index i gets the position i * _MOST_ROWS + r.
_MOST_ROWS: Final = 1 << 20
LOG_EVERY: Final = 10.0  # seconds between two log lines about the first epoch


class Keyed(NamedTuple):
    """A sample, its keys and its position in the epoch."""

    sample: Item
    keys: tuple[str, ...]
    position: int


class Epochs:
    """Iterates over the epochs of a stream's input. It reads one item in advance, to find the end of an epoch.

    Args:
        items: The input.
        limit: Maximum number of epochs, or ``None``.
    """

    def __init__(self, items: Items, limit: int | None) -> None:
        self._items, self._limit = items, limit
        self._stamped = (Stamped(item, items.passport) for item in items)
        self._next: Stamped | None = None
        self.epoch, self.context, self.waiting = 0, items.context, items.waiting

    @property
    def left_out(self) -> int:
        """The number of errors that preceding stages with ``on_error="skip"`` have skipped so far."""
        return self._items.left_out

    def peek(self) -> Stamped | None:
        """Wait for the next item, and return it without removing it. Return ``None`` at the end, or after ``limit`` epochs."""
        if self._next is None and (stamped := next(self._stamped, None)) is not None:
            self._next, self.epoch = stamped, stamped.passport.epoch
        return self._next if self._limit is None or self.epoch < self._limit else None

    def of(self, epoch: int) -> Iterator[Stamped]:
        """Yield the remaining items of an epoch. Afterwards, ``self.epoch`` is the epoch of the next item."""
        while self.peek() and self.epoch == epoch and self._next is not None:
            stamped, self._next = self._next, None
            yield stamped
        if self._next is None:
            self.epoch = epoch + 1


class Stacker:
    """Combines the values of a field in several samples into the field of a batch.

    Args:
        stack: Whether arrays are combined into one array. With ``False``, they become a list. Scalars always become one array. ``str`` and
            ``bytes`` always become a list.
    """

    def __init__(self, stack: bool) -> None:
        self.stack = stack
        self._pools: dict[Field, BufferPool] = {}

    def column(self, name: Field, values: Any) -> Any:
        """Combine a list or array of values into the field ``name`` of a batch.

        Raises:
            ValueError: ``stack`` is true, and the values differ in shape.
        """
        if isinstance(values, np.ndarray):
            if self.stack or values.ndim == 1:
                return values
            values.flags.writeable = False
            return list(values)
        if isinstance(values[0], (str, bytes)) or (not self.stack and np.ndim(values[0])):
            return values
        arrays = [np.asarray(value) for value in values]
        shapes = {array.shape for array in arrays}
        if len(shapes) > 1:
            raise ValueError(
                f"Cache: field {name!r} has the shapes {sorted(shapes)} in one batch; resize the images before the cache, or pass "
                "stack=False and crop after the cache"
            )
        first = arrays[0]
        if first.dtype != np.uint8 or not first.ndim:
            return stacked(arrays)
        size = len(arrays) * first.nbytes
        if name not in self._pools or self._pools[name].nbytes < size:
            self._pools[name] = BufferPool(size)
        return np.stack(arrays, out=self._pools[name].take((len(arrays), *first.shape)))


class Progress:
    """Creates a text about the progress of the first epoch, and logs this text regularly.

    Args:
        name: Name of the cache in the log.
        total: Total number of samples, or ``None`` if unknown.
    """

    def __init__(self, name: str, total: int | None) -> None:
        self._name, self._total = name, total
        self._began = self._said = time.monotonic()

    def at(self, samples: int) -> str:
        """Return the text after ``samples`` samples have been written."""
        now = time.monotonic()
        text = f"{samples:,} samples written"
        if self._total:
            left = (now - self._began) * max(self._total - samples, 0) / max(samples, 1)
            share, minutes = 100 * samples // self._total, f"{left // 60:.0f}:{left % 60:02.0f}"
            text = f"{samples:,} of {self._total:,} samples written ({share}%), {minutes} left"
        if now - self._said > LOG_EVERY:
            self._said = now
            log.info("%s: %s; later epochs read the cache", self._name, text)
        return text


class Passing:
    """Passes the items of an epoch on, and splits them into the samples that the cache stores.

    Args:
        batched: Whether the inputs are batches (which pass unchanged) or samples.
        batch_size: For samples, the size of output batches. With ``None``, single samples pass unchanged.
        stacker: Creates the output batches.
        waiting: A list for the samples that wait for the next output batch.
        index: The index of the next output batch.
    """

    def __init__(self, batched: bool, batch_size: int | None, stacker: Stacker, waiting: list[Stamped], index: int = 0) -> None:
        self.batched, self._out = batched, batch_size
        self.batch_size = 0  # the size of the input batches
        self._stacker = stacker
        self._waiting, self.index = waiting, index

    def epoch(self, items: Iterable[Stamped]) -> Iterator[tuple[list[Stamped], Passport, list[Keyed]]]:
        """For each input item, yield the output items, the passport (metadata) of the input item, and its samples.

        At the end, if samples wait for an output batch, yield this batch, with an empty passport and an empty list.
        """
        for stamped in items:
            item, passport = stamped
            if self.batched:
                yield [self.made([stamped])], passport, self.rows(item, passport)
                continue
            sample = Keyed(item, passport.keys, passport.position)
            if self._out is None:
                yield [stamped], passport, [sample]
                continue
            self._waiting.append(stamped)
            full = len(self._waiting) == self._out
            yield [self._next()] if full else [], passport, [sample]
        if self._waiting:
            yield [self._next()], Passport(), []

    def rows(self, item: Item, passport: Passport) -> list[Keyed]:
        """Return the samples of a batch, with their keys.

        Raises:
            ValueError: the item is not a batch, or the number of its keys differs from the number of its samples.
        """
        way_out = "if the item is one sample, pass batched=False, or batch_size= to make batches of samples"
        try:
            samples = split(item)
        except ValueError as error:
            error.add_note(f"Cache: {way_out}")
            raise
        if passport.keys and len(passport.keys) != len(samples):
            raise ValueError(f"Cache: an item of {len(samples)} rows has {len(passport.keys)} keys; {way_out}")
        self.batch_size = self.batch_size or len(samples)
        positions = _positions(passport, len(samples))
        return [Keyed(sample, passport.keys[row : row + 1], positions[row]) for row, sample in enumerate(samples)]

    def _unstacked(self, batch: Item) -> Item:
        if self._stacker.stack:
            return batch
        return rebuild(batch, [list(value) if isinstance(value, np.ndarray) and value.ndim > 1 else value for value in fields(batch)])

    def _next(self) -> Stamped:
        waiting = self._waiting.copy()
        self._waiting.clear()
        self.index += 1
        return self.made(waiting, self.index - 1)

    def made(self, came: list[Stamped], index: int | None = None) -> Stamped:
        """Return the output for one input batch or for several input samples.

        Without ``index``, the engine sets the index of the output.
        """
        passport = came[-1].passport._replace(made_of=Lineage(tuple(passport for _, passport in came)))
        if self.batched:
            positions = Positions(passport.index, _positions(passport, length(came[0].item) or 0))
            return Stamped(self._unstacked(came[0].item), passport._replace(positions=positions))
        samples = [sample for sample, _ in came]
        columns = zip(names(samples[0]), zip(*map(fields, samples), strict=True), strict=True)
        values = [self._stacker.column(name, list(column)) for name, column in columns]
        keys = tuple(key for _, passport in came for key in passport.keys)
        positions = Positions(index, tuple(passport for _, passport in came))
        return Stamped(rebuild(samples[0], values), passport._replace(index=index or 0, keys=keys, positions=positions))


def _positions(passport: Passport, count: int) -> Sequence[int]:
    """Return the positions of the rows of a batch. If the passport does not hold them, derive them from the index of the batch."""
    rows = passport.rows
    return rows if len(rows) == count else range(passport.index * _MOST_ROWS, passport.index * _MOST_ROWS + count)

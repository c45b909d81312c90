"""Plans batches: assigns dataset indexes to rows and passes ranges of rows to the workers. Runs in one thread."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import count, islice
from typing import Any, NamedTuple

import numpy as np

from highway.datasets.dataset import Dataset, described, keys_of, length_of, several_of
from highway.datasets.opened import opened
from highway.engine.batch import nbytes
from highway.engine.component import Position, Traits, fingerprint_of, not_now
from highway.engine.context import Context, here
from highway.engine.stage import Lineage, Passport, Positions, Stamped
from highway.errors import ConfigError, DatasetError, PipelineError
from highway.process.ranks import rank_and_world_size
from highway.reading.anew import Anew
from highway.reading.deal import Dealer, expect_fits
from highway.reading.draws import Draws
from highway.reading.options import ReaderOptions
from highway.reading.remix import Mixing
from highway.reading.rest import WHOLE, Rest
from highway.reading.sampler import Sampler, Start, epoch_key, sampler_of
from highway.reading.share import CacheOrder, FixedShare

LEAST_ROWS, MOST_ROWS = 16, 32  # bounds for the rows of a range: taking a range costs about a fifth of decoding an image
MOST_SAMPLES = 256  # maximum number of samples in a range, without batch_size
MOST_BYTES = 4 << 20  # ranges grow only up to this size, because each worker holds at least one range
QUICK = 5e-4  # seconds: if filling a range takes less time, ranges become longer, up to whole batches, because thread switches cost time
_AT_ONCE = 8192  # positions whose indexes are computed at once


def shares(reader: ReaderOptions, dataset: Dataset, seed: int = 0, start: Start | None = None) -> tuple[Sampler, int]:
    """Return the sampler of this rank, and how many batches (or samples) the rank has in an epoch. ``start``: where a new mixture begins.

    Raises:
        ConfigError: rank, world size, shuffle or deal are invalid, or the dataset is a dict with names instead of indexes.
        DatasetError: the dataset is empty.
        ValueError: the rank has no batch to read.
    """
    if isinstance(dataset, Mapping) and dataset and 0 not in dataset:
        names = ", ".join(repr(name) for name in islice(dataset, 5))
        raise ConfigError(f"a {type(dataset).__name__} with the keys {names} has no random access by number; pass one of its values")
    expect_fits(reader.deal, reader.rows, reader.shuffle)
    rank, world_size = rank_and_world_size(reader.rank, reader.world_size)
    total, size = length_of(dataset), reader.rows or 1
    if total == 0:
        raise DatasetError(f"{described(dataset)} is empty: there is no sample to read")
    sampler = sampler_of(dataset, seed, reader.shuffle, reader.window, start)
    sampler = replace(sampler, rank=rank, world_size=world_size, on_uneven=reader.on_uneven)
    length = batches_of(reader, sampler)
    if length == 0:
        each = f" for each of {world_size} ranks" if world_size > 1 else ""
        ways = {
            "lower batch_size": size > 1,
            "drop_last=False": reader.drop_last,
            "on_uneven='pad'": reader.on_uneven == "drop" and world_size > 1,
        }
        way_out = ", or ".join(way for way, helps in ways.items() if helps)
        raise ValueError(f"{described(dataset)}: {sampler.total} samples make no batch of {size}{each}; {way_out}")
    return sampler, length


def batches_of(reader: ReaderOptions, sampler: Sampler) -> int:
    """Return the number of batches (or samples) that a rank reads in an epoch."""
    size = reader.rows_on(sampler.world_size) or 1
    return sampler.share // size if reader.drop_last else -(-sampler.share // size)


class Epoch:
    """One pass over a dataset.

    Args:
        number: The epoch, from 0.
        sampler: Defines the order of the dataset's indexes, and this rank's positions.
        share: The rank's samples, if they are the same in every epoch because a cache follows.

    Attributes:
        step: If a sample cannot be used, the sample ``step`` positions later replaces it.
        bad: A dict with the error of each sample that cannot be used. The keys are the dataset's indexes.
    """

    def __init__(self, number: int, sampler: Sampler, share: FixedShare | None = None) -> None:
        self.number, self.sampler, self._share = number, sampler, share
        self.order = (share or sampler).order(number)
        self.step = share.step if share is not None else 1
        self.bad: dict[int, str] = {}

    def draws(self, positions: np.ndarray) -> Draws:
        """Return the random numbers of samples. A rank with the same samples in every epoch uses the numbers of epoch 0."""
        placed = self.placed(positions)
        if placed is positions:
            return Draws(epoch_key(self.sampler.seed, self.number), positions)
        ascending, key = placed.argsort(), epoch_key(self.sampler.seed, 0)
        numbers = Draws(key, placed[ascending]).numbers
        return Draws(key, placed, numbers[ascending.argsort()])

    def placed(self, positions: np.ndarray) -> np.ndarray:
        """Return the positions for random numbers. A rank with the same samples in every epoch uses their positions in epoch 0."""
        return positions if self._share is None or self.number == 0 else self._share.positions(self.number, positions)


class BatchInWork:
    """A batch while its rows are being filled. ``is_even``: whether its positions are evenly spaced."""

    def __init__(
        self, reading: _Reading, epoch: Epoch, index: int, positions: np.ndarray, numbers: np.ndarray, is_even: bool = False
    ) -> None:
        self.reading, self.epoch, self.positions, self.numbers = reading, epoch, positions, numbers.tolist()
        self.memory: Any = None
        keys = reading.keys if reading.reader.rows else None  # single samples: Fill returns the keys
        self.keys = [keys[number] for number in self.numbers] if keys else []
        sampler = epoch.sampler
        number = sampler.read + index * sampler.world_size + sampler.rank
        part = positions.tolist() if len(sampler.rest.singles) else sampler.rest.tail
        made_of = Lineage(part=part) if sampler.read else None
        rows = Positions(number, self._rows(is_even))
        self.passport = Passport(epoch.number, number, keys=tuple(self.keys), made_of=made_of, positions=rows)
        self.draws = epoch.draws(positions) if reading.reader.draws else None
        self.done = count(1)  # counts finished ranges; next() is atomic: exactly one worker gets the last count
        self.run = reading.run
        self.runs = -(-len(positions) // self.run)

    def _rows(self, is_even: bool) -> Sequence[int]:
        """Return the positions of the rows."""
        placed = self.epoch.placed(self.positions)
        if not is_even or placed is not self.positions:
            return tuple(placed.tolist())
        first, last, count = int(placed[0]), int(placed[-1]), len(placed)
        return range(first, last + 1, (last - first) // (count - 1) if count > 1 else 1)

    def begin(self, context: Context) -> None:
        """Create the memory of the batch when its first range begins."""
        with context.lock:  # the workers share the memory
            if self.memory is None:
                self.memory = self.reading.format.memory(len(self.numbers))


class RowRange(NamedTuple):
    """A range of rows of a batch, for one worker to fill."""

    batch: BatchInWork
    first: int
    stop: int


class _Reading:
    """State that the planner and the workers of a reader share."""

    def __init__(
        self, reader: ReaderOptions, dataset: Dataset, share: FixedShare | None, dealer: Dealer | None, context: Context, sampler: Sampler
    ) -> None:
        self.reader, self.dataset, self.share, self._dealer, self._context = reader, dataset, share, dealer, context
        self.sampler = sampler if share is None else share.sampler
        self.samples = length_of(dataset)
        self.keys, self.format = keys_of(self.dataset), reader.batch_format(self.dataset)
        self.several = several_of(self.dataset, "__getfiles__" if self.format.takes_files else "__getitems__")
        self.size, self._most = reader.rows or 1, reader.rows or MOST_SAMPLES  # rows of a batch, and maximum rows of a range
        each = self.size // (2 * context.workers_behind)  # so that all workers fill each batch, if the batch has enough rows
        self.run = min(each, MOST_ROWS) if each >= LEAST_ROWS else MOST_ROWS  # rows of a range in the next batches
        if reader.rows is None:
            self.run = reader.at_once
        self._unfinished: set[BatchInWork] = set()
        self.failure: Exception | None = None

    def batches(self, epoch: Epoch, index: int = 0) -> Iterator[BatchInWork]:
        """Yield the batches of an epoch from batch ``index`` on. Without ``batch_size``: groups of samples, from sample ``index`` on."""
        if (total := length_of(self.dataset)) != self.samples:
            raise DatasetError(
                f"{described(self.dataset)} had {self.samples} samples when it was first read, but has {total} at the start of epoch "
                f"{epoch.number}; a dataset must not change while it is read: start the run again"
            )
        length = batches_of(self.reader, epoch.sampler) * (self.reader.rows or 1)
        stop = min(epoch.sampler.share, length)  # with drop_last, without the samples of the dropped batch
        at_once = max(_AT_ONCE // self.size, 1) * self.size
        if self._dealer is not None:
            for begin in range(index * self.size, stop, self.size):
                positions = self._dealer.positions(epoch.sampler, epoch.order, begin, min(begin + self.size, stop))
                yield BatchInWork(self, epoch, begin // self.size, positions, epoch.order(positions))
            return
        is_even = not len(epoch.sampler.rest.singles)
        for begin in range(index * self.size, stop, at_once):
            positions = epoch.sampler.positions(begin, min(begin + at_once, stop))
            numbers = epoch.order(positions)
            stop_here = 0
            while (first := stop_here) < len(positions):
                stop_here = first + (self.reader.rows or self.run)
                some = slice(first, stop_here)
                yield BatchInWork(self, epoch, (begin + first) // self.size, positions[some], numbers[some], is_even)

    def took(self, seconds: float, samples: Sequence[Any] = ()) -> None:
        """Make the ranges of the next batches longer, if a worker filled a range quickly.

        Args:
            seconds: The time that filling the range took.
            samples: The samples of the range, if there is no ``batch_size``.
        """
        if seconds < QUICK and self.run < self._most:
            longer = min(2 * self.run, self._most)
            if longer * sum(map(nbytes, samples)) <= MOST_BYTES * len(samples):
                self.run = longer

    def check(self) -> None:
        if self.failure is not None:
            raise self.failure

    def begin(self, batch: BatchInWork) -> None:
        """Record a planned batch."""
        with self._context.changed:
            self._unfinished.add(batch)

    def finished(self, batch: BatchInWork) -> None:
        """Record that a batch is filled, or cannot be filled."""
        with self._context.changed:
            self._unfinished.discard(batch)
            self._context.changed.notify_all()

    def fail(self, error: Exception) -> None:
        """Make the planner raise an error."""
        self.failure = error
        self._context.notify()

    def wait(self) -> None:
        """Wait until all planned batches are filled. If one of them fails, raise its error."""
        self._context.wait_until(self._is_done)
        self.check()

    def _is_done(self) -> bool:
        return self.failure is not None or all(self._context.is_skipped(batch.epoch.number) for batch in self._unfinished)


@dataclass
class RowRanges:
    """Yield the row ranges of all batches of all epochs.

    Attributes:
        cache: The order of the cache, if a cache follows the reader. With a cache, each rank has the same samples in every epoch.
        bad: With a cache, by epoch: the dict ``bad`` of the :class:`Epoch`.
    """

    stands_for: ReaderOptions
    mixing: Mixing = field(init=False, repr=False)
    cache: CacheOrder | None = field(default=None, init=False)
    bad: dict[int, dict[int, str]] = field(default_factory=dict, init=False, repr=False)

    def __post_init__(self) -> None:
        self.mixing = Mixing(self.stands_for)

    @opened
    def dataset(self) -> Dataset:
        """The dataset, opened for this pipeline."""
        return self.stands_for.open()

    def __highway__(self) -> Traits:
        reader = self.stands_for
        anew = Anew(reader, self._sampler, self._dealer_on, self.mixing, lambda: self.dataset)
        return Traits(
            draws=reader.draws,
            finishes=True,  # a drain finishes the batches that have begun
            length=lambda: shares(reader, self.dataset)[1],
            numbers_epochs=True,
            epochs=reader.epochs,
            state=lambda: Position(anew.at_epoch(0)),
            remake=self._remake,
            identity=lambda: self._identity,
            ranks=lambda: [list(rank_and_world_size(reader.rank, reader.world_size))],
            stands_for=reader,
            at_epoch=anew.at_epoch,
            deal_anew=anew.from_one,
            deal_rest=anew.from_all,
            items_of_rank=anew.items_of_rank,
            indivisible="shuffle='blocks' assigns separate blocks to each rank" if reader.shuffle == "blocks" else "",
            resume=self._resume,
        )

    def _sampler(self, context: Context | None = None) -> Sampler:
        return shares(self.stands_for, self.dataset, (context or here()).seed_or(self.stands_for.seed), self.mixing.start)[0]

    def _resume(self, states: Sequence[Any], is_replaced: bool) -> None:
        if is_replaced and self.cache is not None:
            raise PipelineError("load_state_dict: the mixture cannot change, because a cache stores its samples; load no state")
        self.mixing.resume(lambda: self.dataset, states, is_replaced)

    def share(self, context: Context) -> FixedShare | None:
        """Return the samples of this rank if they are the same in every epoch, because a cache follows; otherwise, return ``None``."""
        if self.cache is None:
            return None
        sampler, length = shares(self.stands_for, self.dataset, context.seed_or(self.stands_for.seed))
        count = min(sampler.share, length * (self.stands_for.rows or 1))
        return FixedShare(sampler, count, context.seed_or(self.cache.seed), self.cache.shuffle)

    def forget_bad(self, epoch: int) -> None:
        """Forget the bad samples of all epochs before ``epoch``."""
        for earlier in [number for number in self.bad if number < epoch]:
            del self.bad[earlier]

    @property
    def _own_dealer(self) -> Dealer | None:
        return self._dealer_on(rank_and_world_size(self.stands_for.rank, self.stands_for.world_size)[1])

    def _dealer_on(self, world_size: int) -> Dealer | None:
        return None if self.stands_for.deal is None or world_size == 1 else self._dealer

    @opened
    def _dealer(self) -> Dealer:
        reader = self.stands_for
        assert reader.deal is not None
        if self.cache is not None:
            raise PipelineError(
                "deal= assigns samples to other ranks in each epoch, but a cache after the reader stores the samples of its rank; remove "
                "one of them"
            )
        return Dealer(reader.deal, self.dataset)

    @opened
    def _identity(self) -> str:
        """A text that changes when the dataset changes."""
        is_parameter = any(self.dataset is value for value in vars(self.stands_for).values())  # then the parameters' hash covers it
        own = None if is_parameter else fingerprint_of(self.dataset)
        return own() if own is not None else f"{length_of(self.dataset)} samples"

    def __iter__(self, context: Context | None = None) -> Iterator[Stamped]:
        context = context or here()
        reader, counters = self.stands_for, context.counters(self)
        reading = _Reading(reader, self.dataset, self.share(context), self._own_dealer, context, self._sampler(context))
        position = context.state_of(self)
        begin, done, rest, size, of, *mixture = position.value
        if reading.sampler.world_size > 1:
            counters["rank"] = f"{reading.sampler.rank} of {reading.sampler.world_size}"
        for number in count(begin) if reader.epochs is None else range(begin, reader.epochs):
            rest = rest if number <= of + 1 else 0
            epoch = Epoch(number, reading.sampler.of_epoch(number, Rest.from_json(rest) if number == of else WHOLE), reading.share)
            if reading.share is not None:
                self.bad[number] = epoch.bad
            for batch in reading.batches(epoch, done):
                if context.finish():
                    reading.wait()
                    return
                if context.is_skipped(number):
                    break
                reading.begin(batch)
                length = len(batch.numbers)
                done += 1 if reader.rows else length
                for first in range(0, length, batch.run):
                    reading.check()
                    position.value = (
                        [number, done, rest, size, of, *mixture] if first + batch.run >= length else not_now
                    )  # no state within a batch
                    yield Stamped(RowRange(batch, first, min(first + batch.run, length)), batch.passport)
                counters["epochs_done"] = number + min(done * reading.size / epoch.sampler.share, 1.0)
                if reader.epochs is not None:
                    counters["progress"] = counters["epochs_done"] / reader.epochs
                del batch  # so that its memory is freed when the consumer drops the batch
            done = 0
            if reader.epochs is not None:
                counters["progress"] = (number + 1) / reader.epochs
        reading.wait()

    @opened
    def _again(self) -> _Reading:
        reading = _Reading(self.stands_for, self.dataset, self.share(here()), self._own_dealer, here(), self._sampler())
        reading.run = max(reading.run, MOST_SAMPLES)
        return reading

    def _remake(self, epoch: int, index: int, part: int | list[int] | None) -> Stamped:
        """Return a batch as one range. ``part``: its positions, or how many positions were read before the resume (``None``: no resume)."""
        reading = self._again
        if isinstance(part, list):
            positions = np.array(part)
            in_epoch = Epoch(epoch, reading.sampler, reading.share)
            batch = BatchInWork(reading, in_epoch, 0, positions, in_epoch.order(positions))
        else:
            first = part or 0
            sampler = reading.sampler.of_epoch(epoch, Rest(first))
            batch = next(reading.batches(Epoch(epoch, sampler, reading.share), (index - first) // sampler.world_size))
        batch.runs = 1
        passport = batch.passport._replace(index=index, positions=Positions(index, batch.passport.rows))
        return Stamped(RowRange(batch, 0, len(batch.numbers)), passport)

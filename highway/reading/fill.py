"""Fill rows of batches: each worker reads the samples of a range of rows and puts them into the batch.

The planner (:mod:`highway.reading.plan`) assigns the ranges.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from operator import getitem
from typing import Any

from highway.datasets.dataset import Dataset, described, locate, read_several, several_of
from highway.engine.component import Traits
from highway.engine.context import Context, Limit, here
from highway.engine.stage import DROP, Drop, Passport, Positions, Several, Stamped
from highway.errors import DatasetError, EndOfStream, ImageError, PipelineError
from highway.images.decode import backend
from highway.reading.batch_formats import BadRow
from highway.reading.images import DecodedImages
from highway.reading.options import ReaderOptions
from highway.reading.plan import BatchInWork, RowRange


@dataclass
class Fill:
    """Read the samples of a range of rows.

    The call that fills the last range of a batch returns the batch. All other calls return ``DROP``.
    """

    stands_for: ReaderOptions

    def __highway__(self) -> Traits:
        makes_batches = self.stands_for.rows is not None
        return Traits(
            makes="batches" if makes_batches else "samples",
            drops=makes_batches,  # all ranges of a batch but the last return DROP
            parallel=True,
            draws=self.stands_for.draws,
            one_to_one="in order" if makes_batches else None,  # other samples replace skipped samples
            remake=self._remake,
            applies_timeout=True,
            stands_for=self.stands_for,
        )

    def __call__(self, run: RowRange, context: Context) -> Stamped | Drop | Any:
        batch, counters = run.batch, context.counters(self)
        reading, batch_format = batch.reading, batch.reading.format
        if "skipped" not in counters:
            counters.setdefault("skipped", 0)
            if isinstance(batch_format, DecodedImages):
                counters["decoder"] = backend()
        began = time.perf_counter()
        try:
            if not self._fill(batch, run, context):  # the planner raises the error
                return DROP if self.stands_for.rows is not None else _NOTHING
            reading.took(time.perf_counter() - began, () if self.stands_for.rows is not None else batch.memory)
            if next(batch.done) < batch.runs:
                return DROP
            item = self._item(batch, context)
        except Exception:  # not the error of a single sample: the batch is skipped, or the run ends
            reading.finished(batch)
            raise
        batch.memory = None  # frees the memory, even if other objects still refer to ``batch``
        if item is DROP:
            return DROP
        reading.finished(batch)
        keys = tuple(batch.keys)
        return item if keys == batch.passport.keys else Stamped(item, batch.passport._replace(keys=keys))

    def _remake(self, runs: list[Stamped], row: int) -> Stamped:
        """Read one sample again, for a reader without batches."""
        batch = runs[0].item.batch
        if not self._fill(batch, RowRange(batch, row, row + 1), here()) or not (read := self._samples(batch, [row])).items:
            raise PipelineError(f"{locate(batch.reading.dataset, batch.numbers[row])} cannot be read now, although it was read before")
        return Stamped(read.items[0], Passport(keys=read.keys[0], positions=read.positions[0] if read.positions else None))

    def _fill(self, batch: BatchInWork, run: RowRange, context: Context) -> bool:
        """Fill the rows of a range, and replace samples that cannot be used. Return whether all rows are filled."""
        batch.begin(context)
        first = run.first
        while first < run.stop:
            context.check()
            if batch.reading.failure is not None:
                return False
            samples = self._read(batch, batch.numbers[first : run.stop], context)
            bad = self._put(batch, first, samples, context) if samples else []
            first += len(samples)
            if first < run.stop:  # the next sample cannot be read
                bad.append(first)
                first += 1
            if not all(self._leave_out(batch, row, context) for row in bad):
                return False
        return True

    def _leave_out(self, batch: BatchInWork, row: int, context: Context) -> bool:
        """Skip the sample of a row. In a batch, another sample replaces it. Return ``False`` if no sample can replace it."""
        if self.stands_for.rows is not None:
            return self._replace(batch, row, context)
        batch.memory[row] = DROP
        if len(batch.epoch.bad) >= batch.reading.sampler.share:
            self._give_up(batch)
        return True

    def _item(self, batch: BatchInWork, context: Context) -> Any:
        """Return the item of a filled batch; ``DROP`` if a sample differs from the others and cannot be replaced."""
        if self.stands_for.rows is None:
            return self._samples(batch, range(len(batch.memory)))
        while True:
            try:
                return batch.reading.format.item(batch.memory)
            except BadRow as bad:
                self._spoilt(batch, batch.numbers[bad.place], bad.cause, context)
                if not self._replace(batch, bad.place, context):
                    return DROP
                others = batch.reading.sampler.total - 1
                if len(batch.numbers) > 1 == len(set(batch.numbers)) and len(batch.epoch.bad) >= others:  # no other sample has this form
                    self._spoilt(batch, batch.numbers[0], bad.cause, context)
                    self._give_up(batch)
                    return DROP

    def _samples(self, batch: BatchInWork, rows: Sequence[int]) -> Several:
        """Return the samples in some rows, without samples that could not be read."""
        rows = [row for row in rows if batch.memory[row] is not DROP]
        samples, all_keys = [batch.memory[row] for row in rows], batch.reading.keys
        keys: list[tuple[str, ...]] = [(all_keys[batch.numbers[row]],) for row in rows] if all_keys else [()] * len(rows)
        if Stamped in map(type, samples):  # samples with their own keys
            keys = [one.passport.keys if type(one) is Stamped else own for one, own in zip(samples, keys, strict=True)]
            samples = [one.item if type(one) is Stamped else one for one in samples]
        positions = batch.positions[rows]
        indexes, placed = positions.tolist(), batch.epoch.placed(positions)
        others = () if placed is positions else [Positions(index, (one,)) for index, one in zip(indexes, placed.tolist(), strict=True)]
        return Several(samples, indexes, keys, rows, others)

    def _read(self, batch: BatchInWork, numbers: list[int], context: Context) -> Sequence[Any]:
        """Return the samples at these indexes, up to the first sample that cannot be read.

        If the stage has a timeout, files are read before they are decoded, so that a read that hangs cannot write into the batch.
        """
        dataset, several, limit = batch.reading.dataset, batch.reading.several, context.limit
        if limit is not None and several:
            several = several_of(dataset, "__getitems__")
        if len(numbers) == 1 or not several or not batch.epoch.bad.keys().isdisjoint(numbers):
            return self._read_singly(batch, numbers, context)
        found: Sequence[Any] | None
        try:
            if limit is None:
                found = read_several(dataset, several, numbers)
            else:  # if the call times out, reading the samples one by one finds the sample that hangs
                what, otherwise = f"{several} of {described(dataset)} for {len(numbers)} samples", "the samples are read one by one"
                found = limit.call(read_several, dataset, several, numbers, what=lambda: what, otherwise=otherwise)
        except Exception as error:
            samples = self._read_singly(batch, numbers, context)
            if len(samples) == len(numbers):  # each sample can be read on its own
                error.add_note(
                    f"highway: {several} of {described(dataset)} raised this error, although __getitem__ can read each of these samples"
                )
                context.report_error(error)
            return samples
        return self._read_singly(batch, numbers, context) if found is None else found

    def _read_singly(self, batch: BatchInWork, numbers: list[int], context: Context) -> list[Any]:
        dataset, bad, check, samples = batch.reading.dataset, batch.epoch.bad, context.check, list[Any]()
        if context.limit is not None:
            dataset = _InTime(dataset, context.limit)
        number = -1
        try:
            for number in numbers:
                if number in bad:
                    break
                check()
                samples.append(dataset[number])
        except Exception as error:
            self._spoilt(batch, number, error, context)
        return samples

    def _put(self, batch: BatchInWork, first: int, samples: Sequence[Any], context: Context) -> list[int]:
        """Put samples into rows, and return the rows of samples that cannot be used."""
        draws = batch.draws[first : first + len(samples)] if batch.draws else None
        errors = batch.reading.format.fill(batch.memory, first, samples, draws)
        for place, error in errors.items():
            self._spoilt(batch, batch.numbers[first + place], error, context)
        return [first + place for place in errors]

    def _replace(self, batch: BatchInWork, row: int, context: Context) -> bool:
        """Fill a row with the next usable sample in the epoch's order, and return whether there is one."""
        reading = batch.reading
        total = reading.sampler.total
        for step in range(1, total + 1):
            number = int(batch.epoch.order(batch.positions[row : row + 1] + step * batch.epoch.step)[0])
            if number in batch.epoch.bad:
                continue
            batch.numbers[row] = number
            if (samples := self._read(batch, [number], context)) and not self._put(batch, row, samples, context):
                if batch.keys and reading.keys:
                    batch.keys[row] = reading.keys[number]
                return True
        self._give_up(batch)
        return False

    def _give_up(self, batch: BatchInWork) -> None:
        """Make the planner raise an error, because no sample can be used."""
        reading, bad = batch.reading, batch.epoch.bad
        ranks = f" of rank {reading.sampler.rank}" if len(bad) < reading.sampler.total else ""
        last = next(reversed(bad.values()))
        message = f"{described(reading.dataset)}: none of its {len(bad)} samples{ranks} can be used; the last error: {last}"
        reading.fail(DatasetError(message))

    def _spoilt(self, batch: BatchInWork, number: int, error: Exception, context: Context) -> None:
        """Report that a sample cannot be used: once per epoch, even if several workers find the sample at the same time."""
        located = _located(error, batch.reading.dataset, number, batch.reading.samples)
        reason = f"{type(located).__name__}: {located}"
        if batch.epoch.bad.setdefault(number, reason) is reason:  # atomic
            context.report_error(located)
            context.count(self, "skipped")


_NOTHING = Several((), (), (), ())


class _InTime:
    """A dataset that applies the stage's time limit to each read."""

    def __init__(self, dataset: Dataset, limit: Limit) -> None:
        self._dataset, self._limit = dataset, limit

    def __len__(self) -> int:
        return len(self._dataset)

    def __getitem__(self, number: int) -> Any:
        return self._limit.call(getitem, self._dataset, number, what=partial(locate, self._dataset, number))


def _located(error: Exception, dataset: Dataset, number: int, total: int) -> Exception:
    """Return an error whose message or note names the sample."""
    where = locate(dataset, number)
    if isinstance(error, ImageError):
        located: Exception = ImageError(f"{where}: {error}")
    elif isinstance(error, (IndexError, EndOfStream, StopIteration)) or (isinstance(error, KeyError) and error.args == (number,)):
        what = f"{type(error).__name__}{f': {error}' if str(error) else ''}"
        located = DatasetError(f"{where} cannot be read, although the dataset has {total} samples: {what}")
    else:
        if where not in str(error):
            error.add_note(f"highway: the error was raised for {where}")
        return error
    located.__cause__ = error
    return located

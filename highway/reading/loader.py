"""How readers fill batches: one thread plans row ranges, many fill them."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count
from typing import Any, ClassVar, NamedTuple, Protocol

import numpy as np
from numpy.random import Generator, Philox

from highway.datasets.folder import ImageFiles
from highway.engine import cancel
from highway.engine.cancel import check_cancelled, finish, report_error, seed_or, wait
from highway.engine.randomness import Substreams
from highway.engine.stage import DROP, Drop, Passport, Stamped
from highway.errors import ImageError
from highway.images.buffers import BufferPool
from highway.images.decode import backend
from highway.images.ops import Size

Images = np.ndarray | list[np.ndarray]  # (B, H, W, 3), or B times (H, W, 3)
_NO_IMAGE = np.empty((0, 0, 3), np.uint8)
LEAST_ROWS, MOST_ROWS = 8, 32  # of a row range: to take one costs about a tenth of decoding an image


class ImageSource(Protocol):
    """What the loader asks of a reader: the parameters of :class:`~highway.modules.readers.ImageReader`, its files, and what it yields."""

    batch_size: int
    epochs: int | None
    shuffle: bool
    seed: int | None
    drop_last: bool

    @property
    def draws(self) -> bool: ...
    @property
    def output_shape(self) -> Size | None: ...
    def decoded(self, data: bytes, rng: Generator | None, out: np.ndarray | None = None) -> np.ndarray: ...
    def files(self) -> ImageFiles: ...
    def item(self, images: Images, labels: np.ndarray, classes: int) -> tuple[Any, ...]: ...


class _Epoch(NamedTuple):
    """One pass over the files.

    Args:
        number: Which, from 0.
        order: The numbers of the files, in the order in which it takes them.
        bad: The files that could not be read, by number, and why.
    """

    number: int
    order: np.ndarray
    bad: dict[int, str]


class _Batch:
    """A batch while its rows are being filled."""

    def __init__(self, reading: _Reading, epoch: _Epoch, index: int, images: Images) -> None:
        self.reading, self.order, self.bad = reading, epoch.order, epoch.bad
        self.images: Images | None = images
        self.first = index * reading.reader.batch_size  # position of row 0 in the epoch's order
        self.labels = np.empty(len(images), np.int32)
        self.keys = [reading.files.keys[self.order[self.first + row]] for row in range(len(images))]
        self.passport = Passport(epoch.number, index, keys=tuple(self.keys))
        self.done = count(1)  # next() is atomic: exactly one worker gets the number of the last row range
        self.ranges = -(-len(images) // reading.rows)


class _RowRange(NamedTuple):
    """A part of a batch, for one worker to fill."""

    batch: _Batch
    rows: range


class _Reading:
    """One reading of a folder: what its planner and its workers share."""

    def __init__(self, reader: ImageSource, files: ImageFiles) -> None:
        self.reader, self.files, self.seed = reader, files, seed_or(reader.seed)
        self.classes = max(files.labels, default=-1) + 1
        share = reader.batch_size // (2 * cancel.workers_behind())  # so that all of them work on each batch
        self.rows = max(LEAST_ROWS, min(MOST_ROWS, share))  # of a row range
        self.unfinished: set[_Batch] = set()
        self.failure: Exception | None = None

    def check(self) -> None:
        if self.failure is not None:
            raise self.failure

    def wait(self) -> None:
        """Wait for the batches that are planned, to be there if the last of them fails."""
        while self.unfinished:
            wait(0.005)
            self.check()


@dataclass
class RowRanges:
    """Yield the row ranges of all batches of all epochs."""

    finishes: ClassVar[bool] = True  # batches that it has begun

    reader: ImageSource

    @property
    def stands_for(self) -> ImageSource:
        return self.reader

    def __iter__(self) -> Iterator[Stamped]:
        reader, counters = self.reader, cancel.counters(self)
        reading = _Reading(reader, reader.files())
        total, size = len(reading.files.keys), reader.batch_size
        batches = batch_count(reading.files, size, reader.drop_last)
        shape = reader.output_shape
        pool = BufferPool(size * math.prod(shape) * 3) if shape else None
        for number in count() if reader.epochs is None else range(reader.epochs):
            epoch = _Epoch(number, epoch_order(total, number, reading.seed, reader.shuffle), {})
            for index in range(batches):
                if finish():
                    reading.wait()
                    return
                length = min(size, total - index * size)
                images = pool.take((length, *shape, 3)) if pool and shape else [_NO_IMAGE] * length
                batch = _Batch(reading, epoch, index, images)
                reading.unfinished.add(batch)
                for start in range(0, length, reading.rows):
                    reading.check()
                    yield Stamped(_RowRange(batch, range(start, min(start + reading.rows, length))), batch.passport)
                if reader.epochs is not None:
                    counters["progress"] = (number * batches + index + 1) / (reader.epochs * batches)
                del batch, images  # its memory shall be free as soon as the consumer is done with it
        reading.wait()


@dataclass
class Fill:
    """Fill a range of rows; the worker that completes a batch returns it."""

    parallel: ClassVar[bool] = True
    makes: ClassVar = "batches"

    reader: ImageSource

    @property
    def stands_for(self) -> ImageSource:
        return self.reader

    def __call__(self, rows: _RowRange) -> Stamped | Drop | tuple[Any, ...]:
        batch, reader, counters = rows.batch, self.reader, cancel.counters(self)
        if "decoder" not in counters:
            counters.setdefault("skipped", 0)
            counters["decoder"] = backend()
        substreams = Substreams(_key(batch.reading.seed, batch.passport.epoch)) if reader.draws else None
        for row in rows.rows:
            if not self._fill(batch, row, substreams):
                return DROP
        if next(batch.done) < batch.ranges:
            return DROP
        images, batch.images = batch.images, None  # others may still hold the batch
        assert images is not None
        batch.reading.unfinished.discard(batch)
        item = reader.item(images, batch.labels, batch.reading.classes)
        keys = tuple(batch.keys)
        return item if keys == batch.passport.keys else Stamped(item, batch.passport._replace(keys=keys))

    def _fill(self, batch: _Batch, row: int, substreams: Substreams | None) -> bool:
        """Fill a row with its image, or with the next that can be read; say whether there is one."""
        reading, total = batch.reading, len(batch.order)
        for step in range(total):
            number = int(batch.order[(batch.first + row + step) % total])
            if number in batch.bad:
                continue
            check_cancelled()
            if reading.failure is not None:
                return False
            try:
                self._read(batch, row, number, substreams)
            except Exception as error:
                reason = f"{type(error).__name__}: {error}"
                if batch.bad.setdefault(number, reason) is reason:  # atomic: of workers that fail at it together, one reports it
                    report_error(error)
                    cancel.count(self, "skipped")
                continue
            batch.keys[row] = reading.files.keys[number]
            if reading.files.labels:
                batch.labels[row] = reading.files.labels[number]
            return True
        last = next(reversed(batch.bad.values()))
        reading.failure = ImageError(f"data_dir {reading.files.root!r}: none of its {total} images can be read; the last error: {last}")
        return False

    def _read(self, batch: _Batch, row: int, file: int, substreams: Substreams | None) -> None:
        rng, images = substreams.at(batch.first + row) if substreams else None, batch.images
        assert images is not None
        data = batch.reading.files.read(file)
        try:
            if isinstance(images, np.ndarray):
                self.reader.decoded(data, rng, images[row])
            else:
                images[row] = self.reader.decoded(data, rng)
        except ValueError as error:
            raise ImageError(f"{batch.reading.files.path(file)}: {error}") from error


def batch_count(files: ImageFiles, batch_size: int, drop_last: bool) -> int:
    """Return the batches of an epoch.

    Raises:
        ValueError: there are none.
    """
    total = len(files.keys)
    batches = total // batch_size if drop_last else -(-total // batch_size)
    if batches == 0:
        raise ValueError(f"data_dir {files.root!r}: {total} images make no batch of {batch_size}; lower batch_size, or drop_last=False")
    return batches


def epoch_order(total: int, epoch: int, seed: int, shuffle: bool) -> np.ndarray:
    """Return the order in which an epoch takes the files, as their numbers."""
    return Generator(Philox(key=_key(seed, epoch), counter=2**128)).permutation(total) if shuffle else np.arange(total)


def _key(seed: int, epoch: int) -> int:
    """What the randomness of an epoch hangs on: an image's on the numbers from its place << 64 on, the order on those from 2**128 on."""
    return seed << 64 | epoch

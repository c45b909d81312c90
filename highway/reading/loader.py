"""How readers fill batches: one thread plans row ranges, many fill them."""

from __future__ import annotations

import math
import os
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import count
from typing import Any, ClassVar, NamedTuple, Protocol

import numpy as np
from numpy.random import Generator, Philox

from highway.datasets.folder import ImageFiles
from highway.engine.cancel import check_cancelled, finish, report_error, seed_or, wait
from highway.engine.randomness import Substreams
from highway.engine.stage import DROP, Drop, Passport, Stamped
from highway.errors import ImageError
from highway.images.buffers import BufferPool
from highway.images.decode import backend, checked_header, decode_crop
from highway.images.ops import Size
from highway.process.cores import available_cores
from highway.transforms import BoxCrop
from highway.transforms.crop import covering_box

Images = np.ndarray | list[np.ndarray]  # (B, H, W, 3), or B times (H, W, 3)
_NO_IMAGE = np.empty((0, 0, 3), np.uint8)
LEAST_ROWS, MOST_ROWS = 8, 32  # of a row range: to take one costs about a tenth of decoding an image


class ImageSource(Protocol):
    """What the loader asks of a reader: the parameters of :class:`~highway.modules.readers.ImageReader`, its files, and what it yields."""

    batch_size: int
    shape: Size | None
    epochs: int | None
    shuffle: bool
    seed: int | None
    drop_last: bool
    num_workers: int | None
    crop: BoxCrop | None
    flip_p: float
    antialias: bool
    max_pixels: int

    @property
    def output_shape(self) -> Size | None: ...
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

    def __init__(self, job: _Job, epoch: _Epoch, index: int, images: Images) -> None:
        self.job, self.order, self.bad = job, epoch.order, epoch.bad
        self.images: Images | None = images
        self.first = index * job.reader.batch_size  # position of row 0 in the epoch's order
        self.labels = np.empty(len(images), np.int32)
        self.keys = [job.files.keys[self.order[self.first + row]] for row in range(len(images))]
        self.passport = Passport(epoch.number, index, keys=tuple(self.keys))
        self.done = count(1)  # next() is atomic: exactly one worker gets the number of the last row range
        self.ranges = -(-len(images) // job.rows)


class _RowRange(NamedTuple):
    """A part of a batch, for one worker to fill."""

    batch: _Batch
    rows: range


class _Job:
    """One reading of a folder: what its planner and its workers share."""

    def __init__(self, reader: ImageSource, files: ImageFiles) -> None:
        self.reader, self.files, self.seed = reader, files, seed_or(reader.seed)
        self.classes = max(files.labels, default=-1) + 1
        workers = reader.num_workers or available_cores()
        self.rows = max(LEAST_ROWS, min(MOST_ROWS, reader.batch_size // (2 * workers)))  # of a row range: all workers share in each batch
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
    counters: dict[str, float] = field(default_factory=dict, init=False, repr=False)  # progress: the share of all epochs, 0 to 1

    def __iter__(self) -> Iterator[Stamped]:
        reader = self.reader
        job = _Job(reader, reader.files())
        total, size = len(job.files.keys), reader.batch_size
        batches = total // size if reader.drop_last else -(-total // size)
        if batches == 0:
            raise ValueError(f"data_dir {job.files.root!r}: {total} images make no batch of {size}; lower batch_size, or drop_last=False")
        shape = reader.output_shape
        pool = BufferPool(size * math.prod(shape) * 3) if shape else None
        for number in count() if reader.epochs is None else range(reader.epochs):
            epoch = _Epoch(number, epoch_order(total, number, job.seed, reader.shuffle), {})
            for index in range(batches):
                if finish():
                    job.wait()
                    return
                length = min(size, total - index * size)
                images = pool.take((length, *shape, 3)) if pool and shape else [_NO_IMAGE] * length
                batch = _Batch(job, epoch, index, images)
                job.unfinished.add(batch)
                for start in range(0, length, job.rows):
                    job.check()
                    yield Stamped(_RowRange(batch, range(start, min(start + job.rows, length))), batch.passport)
                if reader.epochs is not None:
                    self.counters["progress"] = (number * batches + index + 1) / (reader.epochs * batches)
                del batch, images  # its memory shall be free as soon as the consumer is done with it
        job.wait()


@dataclass
class Fill:
    """Fill a range of rows; the worker that completes a batch returns it."""

    parallel: ClassVar[bool] = True
    makes: ClassVar = "batches"

    reader: ImageSource
    _skipped: deque[None] = field(default_factory=deque, init=False, repr=False)

    @property
    def counters(self) -> dict[str, Any]:
        return {"decoder": backend(), "skipped": len(self._skipped)}

    def __call__(self, rows: _RowRange) -> Stamped | Drop | tuple[Any, ...]:
        batch, reader = rows.batch, self.reader
        substreams = Substreams(_key(batch.job.seed, batch.passport.epoch)) if reader.crop is not None or reader.flip_p > 0 else None
        for row in rows.rows:
            if not self._fill(batch, row, substreams):
                return DROP
        if next(batch.done) < batch.ranges:
            return DROP
        images, batch.images = batch.images, None  # others may still hold the batch
        assert images is not None
        batch.job.unfinished.discard(batch)
        item = reader.item(images, batch.labels, batch.job.classes)
        keys = tuple(batch.keys)
        return item if keys == batch.passport.keys else Stamped(item, batch.passport._replace(keys=keys))

    def _fill(self, batch: _Batch, row: int, substreams: Substreams | None) -> bool:
        """Fill a row with its image, or with the next that can be read; say whether there is one."""
        job, total = batch.job, len(batch.order)
        for step in range(total):
            number = int(batch.order[(batch.first + row + step) % total])
            if number in batch.bad:
                continue
            check_cancelled()
            if job.failure is not None:
                return False
            try:
                self._read(batch, row, os.path.join(job.files.root, job.files.keys[number]), substreams)
            except Exception as error:
                reason = f"{type(error).__name__}: {error}"
                if batch.bad.setdefault(number, reason) is reason:  # atomic: of workers that fail at it together, one reports it
                    report_error(error)
                    self._skipped.append(None)
                continue
            batch.keys[row] = job.files.keys[number]
            if job.files.labels:
                batch.labels[row] = job.files.labels[number]
            return True
        last = next(reversed(batch.bad.values()))
        job.failure = ImageError(f"data_dir {job.files.root!r}: none of its {total} images can be read; the last error: {last}")
        return False

    def _read(self, batch: _Batch, row: int, path: str, substreams: Substreams | None) -> None:
        reader, rng = self.reader, substreams.at(batch.first + row) if substreams else None
        assert batch.images is not None
        with open(path, "rb", buffering=0) as file:
            data = file.read()
        try:
            header = checked_header(data, reader.max_pixels)
            if reader.crop is not None:
                box = reader.crop.box(header.size, rng)
            elif reader.shape is not None:
                box = covering_box(header.size, reader.shape[1] / reader.shape[0])
            else:
                batch.images[row] = np.empty((*header.size, 3), np.uint8)
                box = (0, 0, *header.size)
            flipped = rng is not None and reader.flip_p > 0 and bool(rng.random() < reader.flip_p)
            decode_crop(data, header, box, batch.images[row], flipped, reader.antialias)
        except ValueError as error:
            raise ImageError(f"{path}: {error}") from error


def epoch_order(total: int, epoch: int, seed: int, shuffle: bool) -> np.ndarray:
    """Return the order in which an epoch takes the files, as their numbers."""
    return Generator(Philox(key=_key(seed, epoch), counter=2**128)).permutation(total) if shuffle else np.arange(total)


def _key(seed: int, epoch: int) -> int:
    """What the randomness of an epoch hangs on: an image's on the numbers from its place << 64 on, the order on those from 2**128 on."""
    return seed << 64 | epoch

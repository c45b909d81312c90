"""Readers of image folders: one thread plans batches, many fill them."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import count
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.random import Generator, Philox

from highway.cancel import check_cancelled, finish, tolerate, wait
from highway.cores import available_cores
from highway.data import resolve_data_dir
from highway.errors import ConfigError
from highway.modules.decode import MAX_PIXELS, backend, checked_header, decode_crop
from highway.modules.folders import ImageFiles, flat_files, label_names, labelled_files
from highway.modules.header import ImageError
from highway.modules.pool import BufferPool
from highway.parameters import checked
from highway.randomness import Stretches
from highway.stage import DROP, Drop, Passport, Stage, Stamped
from highway.transforms import BoxCrop
from highway.transforms.crop import covering_box

LEAST_ROWS, MOST_ROWS = 8, 32  # of a row range: to take one costs about a tenth of decoding an image


@checked
@dataclass
class ImageReader:
    """Read the images of one folder and yield batches without labels.

    Batches are the same, bit for bit, for any number of workers. An image that cannot be read ends the run with an error that names the
    file; with ``on_error="skip"`` its row holds the next image in the epoch's order instead, and the passport's keys say so. Such a file
    counts once in each epoch (``skipped``, ``max_errors``), and is not read again in it.

    Args:
        data_dir: The folder. ``highway:photos/...`` stands for photographs that come with the package.
        batch_size: Images per batch, at least 1.
        shape: Height and width in pixels; each image is scaled and centre-cropped to it. Not needed with ``crop``.
        epochs: Passes over the files, or ``None`` to repeat for ever.
        shuffle: Whether each epoch has an order of its own; else that of the paths.
        seed: What the orders, the crops and the flips derive from, at least 0.
        drop_last: Whether to leave out an epoch's last batch if it is smaller than the others.
        num_workers: Threads that read and decode; ``None`` means the cores that this process may use.
        crop: Draws the box of each image that is decoded and scaled to the crop's shape, such as ``RandomResizedCrop((224, 224))``.
        flip: Probability, 0 to 1, that an image is mirrored left to right.
        antialias: Whether to average over all pixels that fall together where an image shrinks; slower, smoother.
        max_pixels: Greatest height x width that a file may announce.

    Yields:
        ``(images,)``: uint8 ``(B, H, W, 3)`` in RGB. The passport's keys are the files' paths, relative to ``data_dir``.

    Raises:
        ConfigError: a parameter is out of its range, or there is neither ``shape`` nor ``crop``.
        FileNotFoundError: there is no such folder, or no images in it (on the first item, not here).
        ImageError: a file is no image, is damaged or cut short, or too large (when it is read).
    """

    data_dir: str
    batch_size: int
    shape: tuple[int, int] | None = None
    epochs: int | None = None
    shuffle: bool = True
    seed: int = 0
    drop_last: bool = False
    num_workers: int | None = None
    crop: BoxCrop | None = None
    flip: float = 0.0
    antialias: bool = False
    max_pixels: int = MAX_PIXELS

    def __post_init__(self) -> None:
        self._require(self.batch_size >= 1, "batch_size", "at least 1")
        self._require(self.shape is not None or self.crop is not None, "shape", "(height, width), or crop=")
        self._require(self.shape is None or (len(self.shape) == 2 and min(self.shape) >= 1), "shape", "(height, width) in pixels")
        self._require(self.epochs is None or self.epochs >= 1, "epochs", "at least 1, or None to repeat for ever")
        self._require(0 <= self.seed < 2**63, "seed", "a whole number, at least 0")
        self._require(0 <= self.flip <= 1, "flip", "a probability from 0 to 1")
        self._require(self.max_pixels >= 1, "max_pixels", "at least 1")
        if self.crop is not None and self.shape is not None and tuple(self.shape) != tuple(self.crop.shape):
            raise ConfigError(f"{type(self).__name__}: shape={self.shape}, but {self.crop} gives {self.crop.shape}; leave out shape")

    def _require(self, ok: bool, parameter: str, expected: str) -> None:
        if not ok:
            raise ConfigError(f"{type(self).__name__}: {parameter}={getattr(self, parameter)!r}; expected {expected}")

    @property
    def output_shape(self) -> tuple[int, int]:
        """Height and width of what comes out."""
        return self.crop.shape if self.crop is not None else self.shape or (0, 0)

    def files(self) -> ImageFiles:
        """List the files in the order of their paths."""
        return flat_files(resolve_data_dir(self.data_dir))

    def stages(self) -> list[Any]:
        return [Stage(_Plans(self), name="row_ranges"), Stage(_Fill(self), num_workers=self.num_workers, name="decode")]


@checked
@dataclass
class ImageFileReader(ImageReader):
    """Read labelled images from one folder per label and yield batches.

    Labels are numbered in the sorted order of the folders' names (:attr:`classes`). Images in folders below a label's folder belong to it.
    Everything else, the arguments included, is as for :class:`ImageReader`.

    Yields:
        ``(images, labels)``: uint8 ``(B, H, W, 3)`` in RGB, and int32 ``(B,)``.

    >>> from highway import Pipeline
    >>> reader = ImageFileReader("highway:photos/val", 16, (64, 64))
    >>> with Pipeline([reader]) as p:
    ...     images, labels = p.dequeue()
    >>> images.shape, labels.dtype, reader.classes[:3]
    ((16, 64, 64, 3), dtype('int32'), ['astronaut', 'brick', 'cat'])
    """

    def files(self) -> ImageFiles:
        return labelled_files(resolve_data_dir(self.data_dir))

    @property
    def classes(self) -> list[str]:
        """The labels' names, read from the folder each time; a label's number is its position."""
        return label_names(resolve_data_dir(self.data_dir))


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

    def __init__(self, job: _Job, epoch: _Epoch, index: int, images: np.ndarray) -> None:
        self.job, self.order, self.bad = job, epoch.order, epoch.bad
        self.images: np.ndarray | None = images
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

    def __init__(self, reader: ImageReader, files: ImageFiles) -> None:
        self.reader, self.files = reader, files
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
class _Plans:
    """Yield the row ranges of all batches of all epochs."""

    finishes: ClassVar[bool] = True  # batches that it has begun

    reader: ImageReader
    counters: dict[str, float] = field(default_factory=dict, init=False, repr=False)  # progress: the share of all epochs, 0 to 1

    def __iter__(self) -> Iterator[Stamped]:
        reader = self.reader
        job = _Job(reader, reader.files())
        total, size = len(job.files.keys), reader.batch_size
        batches = total // size if reader.drop_last else -(-total // size)
        if batches == 0:
            raise ValueError(f"data_dir {job.files.root!r}: {total} images make no batch of {size}; lower batch_size, or drop_last=False")
        pool = BufferPool(size * reader.output_shape[0] * reader.output_shape[1] * 3)
        for number in count() if reader.epochs is None else range(reader.epochs):
            epoch = _Epoch(number, epoch_order(total, number, reader.seed, reader.shuffle), {})
            for index in range(batches):
                if finish():
                    job.wait()
                    return
                length = min(size, total - index * size)
                batch = _Batch(job, epoch, index, pool.take((length, *reader.output_shape, 3)))
                job.unfinished.add(batch)
                for start in range(0, length, job.rows):
                    job.check()
                    yield Stamped(_RowRange(batch, range(start, min(start + job.rows, length))), batch.passport)
                if reader.epochs is not None:
                    self.counters["progress"] = (number * batches + index + 1) / (reader.epochs * batches)
                del batch  # its memory shall be free as soon as the consumer is done with it
        job.wait()


@dataclass
class _Fill:
    """Fill a range of rows; the worker that completes a batch returns it."""

    parallel: ClassVar[bool] = True

    reader: ImageReader
    _skipped: deque[None] = field(default_factory=deque, init=False, repr=False)

    @property
    def counters(self) -> dict[str, Any]:
        return {"decoder": backend(), "skipped": len(self._skipped)}

    def __call__(self, rows: _RowRange) -> Stamped | Drop | tuple[np.ndarray, ...]:
        batch, reader = rows.batch, self.reader
        dice = Stretches(_key(reader.seed, batch.passport.epoch)) if reader.crop is not None or reader.flip > 0 else None
        for row in rows.rows:
            if not self._fill(batch, row, dice):
                return DROP
        if next(batch.done) < batch.ranges:
            return DROP
        images, batch.images = batch.images, None  # others may still hold the batch
        assert images is not None
        batch.job.unfinished.discard(batch)
        item = (images, batch.labels) if batch.job.files.labels else (images,)
        keys = tuple(batch.keys)
        return item if keys == batch.passport.keys else Stamped(item, batch.passport._replace(keys=keys))

    def _fill(self, batch: _Batch, row: int, dice: Stretches | None) -> bool:
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
                self._read(batch, row, os.path.join(job.files.root, job.files.keys[number]), dice)
            except Exception as error:
                reason = f"{type(error).__name__}: {error}"
                if batch.bad.setdefault(number, reason) is reason:  # atomic: of workers that fail at it together, one reports it
                    tolerate(error)
                    self._skipped.append(None)
                continue
            batch.keys[row] = job.files.keys[number]
            if job.files.labels:
                batch.labels[row] = job.files.labels[number]
            return True
        last = next(reversed(batch.bad.values()))
        job.failure = ImageError(f"data_dir {job.files.root!r}: none of its {total} images can be read; the last error: {last}")
        return False

    def _read(self, batch: _Batch, row: int, path: str, dice: Stretches | None) -> None:
        reader, rng = self.reader, dice.at(batch.first + row) if dice else None
        assert batch.images is not None
        with open(path, "rb", buffering=0) as file:
            data = file.read()
        try:
            header = checked_header(data, reader.max_pixels)
            if reader.crop is not None:
                box = reader.crop.box(header.size, rng)
            else:
                box = covering_box(header.size, reader.output_shape[1] / reader.output_shape[0])
            flipped = rng is not None and reader.flip > 0 and bool(rng.random() < reader.flip)
            decode_crop(data, header, box, batch.images[row], flipped, reader.antialias)
        except ValueError as error:
            raise ImageError(f"{path}: {error}") from error


def epoch_order(total: int, epoch: int, seed: int, shuffle: bool) -> np.ndarray:
    """Return the order in which an epoch takes the files, as their numbers."""
    return Generator(Philox(key=_key(seed, epoch), counter=2**128)).permutation(total) if shuffle else np.arange(total)


def _key(seed: int, epoch: int) -> int:
    """What the randomness of an epoch hangs on: an image's on the numbers from its place << 64 on, the order on those from 2**128 on."""
    return seed << 64 | epoch

"""Read and write WebDataset shards, which are tar archives of samples, in sequence.

The files of a sample are consecutive, and have the same name with different extensions. For shards on disk or in a store,
:class:`highway.datasets.Tar` provides random access.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from itertools import count
from typing import Annotated, Any

import numpy as np

from highway.datasets.opened import opened
from highway.datasets.shards import EncodedSample, encoded, shard_writer
from highway.datasets.tar_samples import Files, SamplesAgain, decoded_sample, grouped_by_key, shards_of
from highway.datasets.tar_stream import has_ranges, path_of, read_members
from highway.datasets.writing import is_taken
from highway.engine.component import Position, Traits
from highway.engine.context import Context, OfThread, here
from highway.engine.stage import Items, Lineage, Passport, Stamped
from highway.errors import ShardError
from highway.modules.file_sinks import SampleSink, numbers_files
from highway.parameters.checks import checked
from highway.parameters.ranges import Count, Epochs, Predicate, Range, Seed
from highway.reading.sampler import Sampler
from highway.stores.file import fingerprint_of
from highway.stores.url import is_url, shown


@checked
@dataclass
class WebDatasetSource:
    """Read WebDataset shards and yield samples as dicts.

    Each file of a sample becomes a field. The name of the field is the extension of the file in lower case. The extension determines the
    type of the value (:mod:`highway.datasets.field_codecs`): ``.ten`` and ``.npy`` are arrays, ``.cls`` is an int32, and ``.txt`` is a str.
    Images and all other files are ``bytes``, which :class:`DecodeImage` and other maps can decode.

    Args:
        urls: Shards: paths, URLs of objects in a store (``s3://``, ``gs://``, ``https://``, ...), or URLs that the webdataset package opens
            (``pipe:COMMAND``, ...). Braces expand: ``photos-{000..015}.tar``.
        fields: A dict from new field names to the fields to read. ``{"image": "png;jpg;jpeg"}`` reads the first of the fields ``png``,
            ``jpg`` and ``jpeg`` that a sample has. ``None`` reads all fields under their own names.
        epochs: Number of passes over the shards, or ``None`` to repeat indefinitely.
        shuffle: Whether each epoch reads the shards in a different order. To shuffle the samples, too, add ``Shuffle`` after this source.
        seed: Seed of the orders, at least 0. ``None``: the pipeline's seed.

    Yields:
        A dict for each sample. The passport (the metadata of an item) contains the epoch, the index within the epoch, and the key of the
        sample.

    Raises:
        ConfigError: a parameter is out of its range, or a URL needs a package that is not installed.
        OSError: a shard cannot be opened or fetched.
        ShardError: a shard is damaged, truncated or empty; or a sample is not valid. With ``on_error="skip"``, the remaining samples of
            such a shard, or the sample that is not valid, are skipped. An epoch without samples always raises an error.

    >>> samples = [{"txt": "a text", "cls": 3}]
    >>> Pipeline([samples, ShardSink("texts-%05d.tar")]).run()
    >>> list(Pipeline([WebDatasetSource("texts-00000.tar", epochs=1)]))
    [{'txt': 'a text', 'cls': np.int32(3)}]
    """

    urls: Annotated[str | list[str], Predicate(shards_of, "at least one shard, such as 'photos-{000..015}.tar'")]
    fields: dict[str, str] | None = None
    epochs: Epochs = None
    shuffle: bool = True
    seed: Seed | None = None

    @property
    def shards(self) -> list[str]:
        """The URLs of the shards, with braces expanded."""
        return shards_of(self.urls)

    @opened
    def _identity(self) -> str:
        """A text that changes if a shard on disk or in a store changes."""
        paths = [path_of(url) for url in self.shards if has_ranges(url)]
        return fingerprint_of((shown(path), path) for path in paths if is_url(path) or os.path.exists(path))

    def __highway__(self) -> Traits:
        return Traits(
            makes="samples",
            draws=False,
            numbers_epochs=True,
            epochs=self.epochs,
            state=lambda: Position([0, 0, 0, 0]),
            remake=self._remake,
            identity=lambda: self._identity,
            ranks=list,  # every rank reads all shards
        )

    def __iter__(self, context: Context | None = None) -> Iterator[Stamped]:
        context = context or here()
        shards, seed, counters = self.shards, context.seed_or(self.seed), context.counters(self)
        counters.update(shards=0, ignored_files=0)
        # The epoch, and the numbers of finished shards, of samples read from the next shard, and of samples read in total.
        position = context.state_of(self)
        epoch, done, passed, index = position.value
        first, position.value = epoch, lambda: [epoch, done, passed, index]
        for epoch in count(first) if self.epochs is None else range(first, self.epochs):
            order = Sampler(len(shards), seed, self.shuffle).order(epoch)(np.arange(len(shards))).tolist()
            for number in order[done:]:
                if context.is_skipped(epoch):
                    break
                for passed, key, sample in self._samples(shards[number], passed, context):  # noqa: B020
                    index += 1
                    yield Stamped(sample, Passport(epoch, index - 1, keys=(key,), made_of=Lineage(part=[number, passed - 1])))
                done, passed = done + 1, 0
                counters["epochs_done"] = epoch + done / len(shards)
                if self.epochs is not None:
                    counters["progress"] = counters["epochs_done"] / self.epochs
            if index == 0 and not context.is_skipped(epoch):
                raise ShardError(f"{shown(shards[0])}{' ...' if len(shards) > 1 else ''}: no samples in the whole epoch {epoch}")
            done = passed = index = 0

    def _samples(self, url: str, passed: int, context: Context) -> Iterator[tuple[int, str, dict[str, Any]]]:
        """Yield the samples of a shard after the first ``passed`` samples, each with its index plus 1 and its key."""
        with contextlib.closing(read_members(url)) as members:
            samples = enumerate(grouped_by_key(members, partial(context.count, self, "ignored_files")), start=1)
            while True:
                try:
                    number, (key, files) = next(samples)
                except StopIteration:
                    break
                except (ShardError, OSError) as error:
                    context.report_error(error)
                    return
                if number <= passed:
                    continue
                try:
                    sample = self._decoded(files)
                except ShardError as error:
                    context.report_error(ShardError(f"{shown(url)}: sample {key!r}: {error}"))
                    continue
                yield number, key, sample
        context.count(self, "shards")

    def _decoded(self, files: Files) -> dict[str, Any]:
        extensions, contents = zip(*files, strict=True)
        return decoded_sample(extensions, contents.__getitem__, self.fields)

    @opened
    def _again(self) -> OfThread[SamplesAgain]:
        return OfThread(lambda: SamplesAgain(self.shards))

    def _remake(self, epoch: int, index: int, part: list[int]) -> Stamped:
        """Create a sample again. Successive samples are read in one pass over a shard."""
        key, files = self._again.value.sample(*part)
        return Stamped(self._decoded(files), Passport(keys=(key,)))


@checked
@dataclass
class ShardSink(SampleSink):
    """Write samples into WebDataset shards.

    A shard gets its final name only when it is complete. Unfinished shards are removed if the pipeline fails or is stopped. The files of a
    sample are named by the key in its passport (its metadata). Dots in the last part of the key become ``_``. If the passport has no key,
    the epoch and the index form the name. :mod:`highway.datasets.field_codecs` determines the file type of each field.
    :class:`WebDatasetSource` reads the same samples from these shards.

    Args:
        path: Output path or URL with a format for the index of the shard, such as ``out/photos-%06d.tar``. Missing folders are created.
        max_samples: Maximum number of samples in a shard, at least 1.
        max_mb: Maximum megabytes per shard. A shard with only one sample can be larger.

    Raises:
        ConfigError: ``path`` has no number format, or a limit is out of its range.
        FileExistsError: a shard with this name exists.
        PipelineError: a stage before the sink yields batches.
        TypeError: an item is not a dict, or one of its values cannot be written.
        ValueError: an item is a batch.

    >>> samples = [{"txt": "a text", "cls": 3}]
    >>> Pipeline([samples, ShardSink("texts-%05d.tar")]).run()
    >>> list(Pipeline([WebDatasetSource("texts-00000.tar", epochs=1)]))
    [{'txt': 'a text', 'cls': np.int32(3)}]
    """

    path: Annotated[str, Predicate(numbers_files, "one place for the shard number, such as 'photos-%06d.tar'")]
    max_samples: Count = 10_000
    max_mb: Annotated[float, Range(gt=0)] = 1000.0

    def consume(self, items: Items) -> None:
        items.context.counters(self)["shards"] = 0
        samples = (encoded(*self.keyed(item, items.passport)) for item in items)
        first = next(samples, None)
        for number in count():
            if first is None:
                return
            first = self._write(self.path % number, first, samples)
            items.context.count(self, "shards")

    def _write(self, path: str, sample: EncodedSample | None, samples: Iterator[EncodedSample]) -> EncodedSample | None:
        """Write one shard, with at least one sample. Return the first sample of the next shard, or ``None`` at the end."""
        if is_taken(path):
            raise FileExistsError(f"ShardSink: {shown(path)!r} already exists; move it, or choose another path")
        with shard_writer(path) as shard:
            while sample is not None:
                if shard.samples and (shard.samples >= self.max_samples or shard.size + sample.size > self.max_mb * 1e6):
                    break
                shard.append(sample)
                sample = next(samples, None)
        return sample

"""Sinks that write samples into files of a format, by the writer that its record names."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from itertools import chain, islice
from typing import Annotated, Any, ClassVar, Literal

from highway.datasets.formats import formats
from highway.datasets.writing import is_taken
from highway.engine.batch import Item
from highway.engine.component import Traits
from highway.engine.context import Context
from highway.engine.stage import Items, Passport, Stage
from highway.errors import ConfigError, PipelineError
from highway.modules.caching.input import maker_of
from highway.parameters.checks import checked
from highway.parameters.ranges import Count, Predicate, Range
from highway.stores.url import shown

_MOST = 10_000  # samples in one of several files, if nobody says more


class SampleSink:
    """What sinks have in common that write samples: dicts, one by one, each under a key. Batches are refused in words."""

    def __highway__(self) -> Traits:
        return Traits(after=self._after)

    def _after(self, stages: Sequence[Stage]) -> list[Stage]:
        """Raise PipelineError if the ``stages`` before it make batches."""
        maker = maker_of(stages)
        if maker is not None and maker.traits.makes == "batches":
            name = type(self).__name__
            raise PipelineError(f"{name} writes samples one by one, but {maker.label} makes batches; put Unbatch before {name}")
        return [*stages, Stage(self)]

    def keyed(self, item: Item, passport: Passport) -> tuple[str, Mapping[str, Any]]:
        """Return a sample's key, the one in its passport or else epoch and index, and the sample.

        Raises:
            TypeError: it is no dict.
            ValueError: it is a batch.
        """
        name = type(self).__name__
        if not isinstance(item, dict):
            raise TypeError(f"{name}: the item is a {type(item).__name__}; expected a dict, whose names become the fields: use Rename")
        if len(passport.keys) > 1:
            raise ValueError(f"{name}: the item is a batch of {len(passport.keys)} samples; put Unbatch before it")
        return (passport.keys or (f"{passport.epoch:03}-{passport.index:09}",))[0], item


def _numbers_files(path: str) -> bool:
    try:
        return "%" not in path or path % 1 != path % 2
    except (TypeError, ValueError):
        return False


@dataclass
class _FileSink(SampleSink):
    """Writes samples to a path.

    Args:
        path: Where to, or its URL. Missing folders are made.
    """

    format: ClassVar[str]  # whose writer is called with the path, and with the sink's parameters of its own

    path: str

    def consume(self, items: Items) -> None:
        self._write(self.path, (self.keyed(item, items.passport) for item in items), items.context)

    def _write(self, path: str, samples: Iterable[tuple[str, Mapping[str, Any]]], context: Context) -> None:
        if is_taken(path):
            raise FileExistsError(f"{type(self).__name__}: {shown(path)!r} is there already; move it away, or choose another path")
        given = {field.name: getattr(self, field.name) for field in fields(self) if field.name not in ("path", "max_samples")}
        with formats()[self.format].write(path, given) as writer:
            for key, sample in samples:
                writer.add(key, sample)
                context.count(self, "samples")


@dataclass
class _Numbered(_FileSink):
    """Writes samples into one file, or several.

    Args:
        path: Where to, or its URL, for several files with their number: ``samples-%06d.npz``. Missing folders are made.
        max_samples: Samples in a file, if there are several; ``None``: 10,000.
    """

    path: Annotated[str, Predicate(_numbers_files, "a path, maybe with one place for the file's number, such as 'samples-%06d.npz'")]
    max_samples: Count | None = None

    def __post_init__(self) -> None:
        if self.max_samples is not None and "%" not in self.path:
            name, path = type(self).__name__, shown(self.path)
            raise ConfigError(f"{name}: max_samples={self.max_samples}, but {path!r} has no place for the file's number, such as %06d")

    def consume(self, items: Items) -> None:
        if "%" not in self.path:
            super().consume(items)
            return
        samples = (self.keyed(item, items.passport) for item in items)
        for number, first in enumerate(samples):
            self._write(self.path % number, chain([first], islice(samples, (self.max_samples or _MOST) - 1)), items.context)


@checked
@dataclass
class NpzSink(_Numbered):
    """Write samples that are alike as the rows of arrays, into ``.npz`` files, which :class:`~highway.datasets.Npz` reads.

    A file has its name only when it is whole; what was begun when the pipeline fails or is stopped is removed. Samples are named by the key
    in their passports, or else by epoch and index.

    Raises:
        ConfigError: ``path`` has several places for a number, or none, but there are ``max_samples``.
        FileExistsError: there is a file of that name already.
        PipelineError: a stage before it makes batches. ValueError: an item is one.
        TypeError: an item is no dict, or cannot be a row: it is not like the first one, or has a value that no array holds.
    """

    format: ClassVar = "npz"


@checked
@dataclass
class TFRecordSink(_Numbered):
    """Write samples as Examples into TFRecord files, which :class:`~highway.datasets.TFRecord` reads.

    Files, keys and errors are as for :class:`NpzSink`; a value that no Example can hold is a TypeError.
    """

    format: ClassVar = "tfrecord"


@checked
@dataclass
class LMDBSink(_FileSink):
    """Write samples into an LMDB database, which :class:`~highway.datasets.LMDB` reads.

    Keys and errors are as for :class:`NpzSink`; a key that was there before gets a number.

    Args:
        path: Where to, or its URL: a folder, or a file if it ends in ``.mdb``.
    """

    format: ClassVar = "lmdb"


@checked
@dataclass
class ParquetSink(_Numbered):
    """Write samples as the rows of Parquet files, which :class:`~highway.datasets.Parquet` reads.

    Files, keys and errors are as for :class:`NpzSink`; a value that no column holds, or that is not like those before, is a TypeError.

    Args:
        rows_per_block: Rows of a row group; ``None``: as many as 16 MiB hold.
        compression: ``"snappy"``, ``"zstd"``, ``"none"``, or another one of Parquet's.
    """

    rows_per_block: Count | None = None
    compression: str = "snappy"

    format: ClassVar = "parquet"


@checked
@dataclass
class ArrowSink(_Numbered):
    """Write samples as the rows of Arrow files, which :class:`~highway.datasets.Arrow` reads row by row.

    Files, keys and errors are as for :class:`ParquetSink`.

    Args:
        rows_per_block: Rows of a record batch; ``None``: as many as 16 MiB hold.
    """

    rows_per_block: Count | None = None

    format: ClassVar = "arrow"


@checked
@dataclass
class ArrayRecordSink(_Numbered):
    """Write samples as Examples into ArrayRecord files, which :class:`~highway.datasets.ArrayRecord` reads.

    Files, keys and errors are as for :class:`TFRecordSink`.
    """

    format: ClassVar = "arrayrecord"


@checked
@dataclass
class MDSSink(_FileSink):
    """Write samples that have the same fields into a folder of MDS shards, which :class:`~highway.datasets.MDS` reads, as does streaming.

    Keys and errors are as for :class:`NpzSink`.

    Args:
        size_limit: Bytes that a shard has at most, about; a larger sample has one of its own.
    """

    size_limit: Annotated[int, Range(ge=1, lt=1 << 32)] = 1 << 26

    format: ClassVar = "mds"


@checked
@dataclass
class LevelDBSink(_FileSink):
    """Write samples into a LevelDB database, a folder, which :class:`~highway.datasets.LevelDB` reads.

    Keys and errors are as for :class:`LMDBSink`.
    """

    format: ClassVar = "leveldb"


@checked
@dataclass
class HDF5Sink(_Numbered):
    """Write samples that are alike as the rows of datasets, into HDF5 files, which :class:`~highway.datasets.HDF5` reads.

    Files, keys and errors are as for :class:`NpzSink`.

    Args:
        compression: The filter that arrays go through, if any.
    """

    compression: Literal["gzip", "lzf"] | None = None

    format: ClassVar = "hdf5"

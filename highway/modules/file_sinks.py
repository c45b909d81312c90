"""Sinks that write samples into files. Each file format has a writer."""

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

_MOST = 10_000  # default number of samples per file


class SampleSink:
    """Base class of sinks that write samples. Each sample is a dict and has a key. A batch raises an error."""

    def __highway__(self) -> Traits:
        return Traits(after=self._after)

    def _after(self, stages: Sequence[Stage]) -> list[Stage]:
        """Raise PipelineError if the ``stages`` before this sink yield batches."""
        maker = maker_of(stages)
        if maker is not None and maker.traits.makes == "batches":
            name = type(self).__name__
            raise PipelineError(f"{name} writes samples one by one, but {maker.label} makes batches; put Unbatch before {name}")
        return [*stages, Stage(self)]

    def keyed(self, item: Item, passport: Passport) -> tuple[str, Mapping[str, Any]]:
        """Return the key and the fields of a sample.

        If its passport (metadata) has no key, epoch and index form the key, such as ``000-000000017``.

        Raises:
            TypeError: the item is not a dict.
            ValueError: the item is a batch.
        """
        name = type(self).__name__
        if not isinstance(item, dict):
            raise TypeError(f"{name}: the item is a {type(item).__name__}; expected a dict, whose keys become the fields: use Rename")
        if len(passport.keys) > 1:
            raise ValueError(f"{name}: the item is a batch of {len(passport.keys)} samples; put Unbatch before it")
        return (passport.keys or (f"{passport.epoch:03}-{passport.index:09}",))[0], item


def numbers_files(path: str) -> bool:
    """Return whether a path has one place for the file number."""
    try:
        return path % 1 != path % 2
    except (TypeError, ValueError):
        return False


def _may_number_files(path: str) -> bool:
    return "%" not in path or numbers_files(path)


@dataclass
class _FileSink(SampleSink):
    """Writes samples to a path.

    Args:
        path: Output path or URL. Missing folders are created.
    """

    format: ClassVar[str]  # the name of the format

    path: str

    def consume(self, items: Items) -> None:
        self._write(self.path, (self.keyed(item, items.passport) for item in items), items.context)

    def _write(self, path: str, samples: Iterable[tuple[str, Mapping[str, Any]]], context: Context) -> None:
        if is_taken(path):
            raise FileExistsError(f"{type(self).__name__}: {shown(path)!r} already exists; move it, or choose another path")
        given = {field.name: getattr(self, field.name) for field in fields(self) if field.name not in ("path", "max_samples")}
        with formats()[self.format].write(path, given) as writer:
            for key, sample in samples:
                writer.add(key, sample)
                context.count(self, "samples")


@dataclass
class _Numbered(_FileSink):
    """Writes samples into one or several files.

    Args:
        path: Output path or URL. To write several files, include a number format: ``samples-%06d.npz``. Missing folders are created.
        max_samples: Number of samples per file, if ``path`` has a number format. ``None``: 10,000.
    """

    path: Annotated[str, Predicate(_may_number_files, "a path, optionally with one place for the file number, such as 'samples-%06d.npz'")]
    max_samples: Count | None = None

    def __post_init__(self) -> None:
        if self.max_samples is not None and "%" not in self.path:
            name, path = type(self).__name__, shown(self.path)
            raise ConfigError(f"{name}: max_samples={self.max_samples}, but {path!r} has no place for the file number, such as %06d")

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
    """Write samples as the rows of arrays into ``.npz`` files, which :class:`~highway.datasets.Npz` reads.

    All samples must have the same fields, shapes and dtypes. A file gets its final name only when it is complete. Unfinished files are
    removed if the pipeline fails or is stopped. The key of a sample is the key in its passport (its metadata). If the passport has no key,
    the epoch and the index form the key, such as ``000-000000017``.

    Raises:
        ConfigError: ``path`` contains several number formats; or ``max_samples`` is given, but ``path`` contains no number format.
        FileExistsError: the file exists.
        PipelineError: a stage before the sink yields batches.
        ValueError: an item is a batch.
        TypeError: an item is not a dict, its fields differ from the fields of the first item, or an array cannot hold one of its values.

    >>> samples = [{"x": np.float32([n, n]), "label": np.int32(n)} for n in range(3)]
    >>> Pipeline([samples, NpzSink("points.npz")]).run()
    >>> Npz("points.npz")[2]
    {'x': array([2., 2.], dtype=float32), 'label': np.int32(2)}
    """

    format: ClassVar = "npz"


@checked
@dataclass
class TFRecordSink(_Numbered):
    """Write samples as ``tf.train.Example`` into TFRecord files, which :class:`~highway.datasets.TFRecord` reads.

    File names, keys and errors are the same as for :class:`NpzSink`. A value that an ``Example`` cannot hold raises a TypeError.

    Args:
        max_samples: Number of samples per file. Requires a number format in ``path``, such as ``%05d``.

    >>> Pipeline([[{"x": 1}, {"x": 2}], TFRecordSink("numbers.tfrecord")]).run()
    >>> TFRecord("numbers.tfrecord", example=True)[1]
    {'x': np.int64(2)}
    """

    format: ClassVar = "tfrecord"


@checked
@dataclass
class LMDBSink(_FileSink):
    """Write samples into an LMDB database, which :class:`~highway.datasets.LMDB` reads.

    Keys and errors are the same as for :class:`NpzSink`. If a key already exists, the sink appends a number to the key.

    Args:
        path: Output path or URL. If the path ends in ``.mdb``, the database is a file. Otherwise, it is a folder.

    >>> samples = [{"txt": "a text", "cls": 3}, {"txt": "another", "cls": 5}]
    >>> Pipeline([samples, LMDBSink("texts.lmdb")]).run()
    >>> len(LMDB("texts.lmdb"))
    2
    """

    format: ClassVar = "lmdb"


@checked
@dataclass
class ParquetSink(_Numbered):
    """Write samples as the rows of Parquet files, which :class:`~highway.datasets.Parquet` reads.

    File names, keys and errors are the same as for :class:`NpzSink`. A value raises a TypeError if a column cannot hold it, or if its type
    differs from the type of earlier values.

    Args:
        rows_per_block: Number of rows per row group. ``None``: a row group ends after 65,536 rows, or when its values reach 16 MiB.
        compression: ``"snappy"``, ``"zstd"``, ``"none"``, or another codec of Parquet.

    >>> Pipeline([[{"x": 1, "name": "a"}, {"x": 2, "name": "b"}], ParquetSink("numbers.parquet")]).run()
    >>> Parquet("numbers.parquet")[1]
    {'x': np.int64(2), 'name': 'b'}
    """

    rows_per_block: Count | None = None
    compression: str = "snappy"

    format: ClassVar = "parquet"


@checked
@dataclass
class ArrowSink(_Numbered):
    """Write samples as the rows of Arrow files, which :class:`~highway.datasets.Arrow` reads row by row.

    File names, keys and errors are the same as for :class:`ParquetSink`.

    Args:
        rows_per_block: Number of rows per record batch. ``None``: a record batch ends after 65,536 rows, or when its values reach 16 MiB.

    >>> Pipeline([[{"x": 1}, {"x": 2}], ArrowSink("numbers.arrow")]).run()
    >>> Arrow("numbers.arrow")[1]
    {'x': np.int64(2)}
    """

    rows_per_block: Count | None = None

    format: ClassVar = "arrow"


@checked
@dataclass
class ArrayRecordSink(_Numbered):
    """Write samples as ``tf.train.Example`` into ArrayRecord files, which :class:`~highway.datasets.ArrayRecord` reads.

    File names, keys and errors are the same as for :class:`TFRecordSink`.

    Args:
        max_samples: Number of samples per file. Requires a number format in ``path``, such as ``%05d``.

    >>> Pipeline([[{"x": 1}, {"x": 2}], ArrayRecordSink("numbers.array_record")]).run()
    >>> len(ArrayRecord("numbers.array_record"))
    2
    """

    format: ClassVar = "arrayrecord"


@checked
@dataclass
class MDSSink(_FileSink):
    """Write samples into a folder of MDS shards, for :class:`~highway.datasets.MDS` and Mosaic's streaming.

    All samples must have the same fields. Keys and errors are the same as for :class:`NpzSink`.

    Args:
        size_limit: Approximate maximum size of a shard in bytes. A larger sample gets its own shard.

    >>> Pipeline([[{"x": 1}, {"x": 2}], MDSSink("shards")]).run()
    >>> MDS("shards")[1]
    {'x': np.int64(2)}
    """

    size_limit: Annotated[int, Range(ge=1, lt=1 << 32)] = 1 << 26

    format: ClassVar = "mds"


@checked
@dataclass
class LevelDBSink(_FileSink):
    """Write samples into a LevelDB database, which is a folder. :class:`~highway.datasets.LevelDB` reads the database.

    Keys and errors are the same as for :class:`LMDBSink`.

    >>> samples = [{"txt": "a text", "cls": 3}, {"txt": "another", "cls": 5}]
    >>> Pipeline([samples, LevelDBSink("texts.leveldb")]).run()
    >>> len(LevelDB("texts.leveldb"))
    2
    """

    format: ClassVar = "leveldb"


@checked
@dataclass
class HDF5Sink(_Numbered):
    """Write samples into HDF5 files, as rows of datasets. :class:`~highway.datasets.HDF5` reads these files.

    All samples must have the same fields. File names, keys and errors are the same as for :class:`NpzSink`.

    Args:
        max_samples: Number of samples per file. Requires a number format in ``path``, such as ``%05d``.
        compression: The compression filter for arrays, or ``None``.

    >>> samples = [{"x": np.float32([n, n]), "label": np.int32(n)} for n in range(3)]
    >>> Pipeline([samples, HDF5Sink("points.h5")]).run()
    >>> HDF5("points.h5")[2]
    {'label': np.int32(2), 'x': array([2., 2.], dtype=float32)}
    """

    compression: Literal["gzip", "lzf"] | None = None

    format: ClassVar = "hdf5"

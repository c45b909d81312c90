"""Sources by format: each is a :class:`~highway.modules.Reader` of the dataset that reads it."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import ClassVar

from highway.datasets.dataset import Dataset
from highway.datasets.formats import formats
from highway.datasets.keyed.values import Decode
from highway.parameters.checks import checked
from highway.parameters.ranges import Count, Epochs
from highway.reading.batch_formats import BatchFormat, Stacked
from highway.reading.sampling import Sampling


@dataclass
class _OfPath:
    path: str
    batch_size: Count | None = 32
    epochs: Epochs = None


@dataclass
class _FileSource(Sampling, _OfPath):
    """Reads what is at a path.

    Args:
        path: Where it is.
        batch_size: Samples per batch; ``None`` for samples one by one, such as encoded images on their way to :class:`DecodeImage`.
        epochs: Passes over the samples, or ``None`` to repeat for ever.
        fields: The fields to read, under new names: ``{"image": "png;jpg", "label": "cls"}`` takes the first that a sample has. ``None``
            reads all as they are.
    """

    format: ClassVar[str]

    fields: dict[str, str] | None = None

    def open(self) -> Dataset:
        """Return the dataset: that of the format, with the parameters that this source has besides those of reading."""
        reading = {field.name for base in (Sampling, _OfPath) for field in fields(base)}
        given = {field.name: getattr(self, field.name) for field in fields(self) if field.name not in reading}
        found: Dataset = formats()[self.format].open([self.path], given)
        return found

    def batch_format(self, dataset: Dataset) -> BatchFormat:
        """Return how batches are made."""
        return Stacked()


@checked
@dataclass
class TFRecordSource(_FileSource):
    """Read the Examples of TFRecord files: ``Reader(TFRecord(path, example=True), batch_size)``.

    Args:
        path: A file, or a pattern such as ``"train-*"``.

    Yields:
        Dicts of features, with a new first axis in each if there is a ``batch_size``.
    """

    format: ClassVar = "tfrecord"


@dataclass
class _KeyedSource(_FileSource):
    """Reads a database.

    Args:
        path: The database.
        decode: What a value is, as for :class:`~highway.datasets.LMDB`; ``None`` looks at the first one.

    Yields:
        Samples, or batches of them, as ``decode`` makes them.
    """

    decode: Decode | None = None


@checked
@dataclass
class LMDBSource(_KeyedSource):
    """Read the values of an LMDB database, tensorpack's and Caffe's too: ``Reader(LMDB(path), batch_size)``."""

    format: ClassVar = "lmdb"


@checked
@dataclass
class LevelDBSource(_KeyedSource):
    """Read the values of a LevelDB database, those of Highway 2017 too: ``Reader(LevelDB(path), batch_size)``."""

    format: ClassVar = "leveldb"


@checked
@dataclass
class HDF5Source(_FileSource):
    """Read the rows of the datasets in an HDF5 file: ``Reader(HDF5(path), batch_size)``. In chunks, ``shuffle="blocks"`` is fastest.

    Args:
        path: The file.
        fields: The datasets to read, under new names: ``{"image": "train/images"}``. ``None`` reads all that have rows.
        group: The group whose datasets are meant.

    Yields:
        Dicts with a row of each dataset, or of a row for each sample if there is a ``batch_size``.
    """

    format: ClassVar = "hdf5"

    group: str = "/"

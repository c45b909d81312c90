"""Sources for file formats. Each source is a :class:`~highway.modules.Reader` with the dataset of one format."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import ClassVar

from highway.datasets.dataset import Dataset
from highway.datasets.formats import formats
from highway.datasets.keyed.values import Decode
from highway.parameters.checks import checked
from highway.parameters.ranges import Count, Epochs
from highway.reading.sampling import Batching


@dataclass
class _OfPath:
    path: str
    batch_size: Count | None = 32
    epochs: Epochs = None


@dataclass
class _FileSource(Batching, _OfPath):
    """Reads the data at a path.

    Args:
        path: The path.
        batch_size: Number of samples per batch. ``None`` yields single samples, such as encoded images for :class:`DecodeImage`.
            With ``global_batch_size``, pass ``None``.
        epochs: Number of passes over the samples, or ``None`` to repeat indefinitely.
        fields: A dict from new field names to the fields to read. ``{"image": "png;jpg"}`` reads the first of the fields ``png`` and
            ``jpg`` that exists. ``None`` reads all fields under their own names.
    """

    format: ClassVar[str]

    fields: dict[str, str] | None = None

    def open(self) -> Dataset:
        """Return the dataset. It gets the parameters of this source that are not parameters of a reader."""
        reading = {field.name for base in (Batching, _OfPath) for field in fields(base)}
        given = {field.name: getattr(self, field.name) for field in fields(self) if field.name not in reading}
        found: Dataset = formats()[self.format].open([self.path], given)
        return found


@checked
@dataclass
class TFRecordSource(_FileSource):
    """Read TFRecord files that contain ``tf.train.Example``: ``Reader(TFRecord(path, example=True), batch_size)``.

    Args:
        path: A file, or a pattern such as ``"train-*"``.

    Yields:
        Dicts of features. With ``batch_size``, each feature has a new first axis.

    >>> Pipeline([[{"x": 1}, {"x": 2}], TFRecordSink("numbers.tfrecord")]).run()
    >>> list(Pipeline([TFRecordSource("numbers.tfrecord", None, epochs=1, shuffle=False)]))
    [{'x': np.int64(1)}, {'x': np.int64(2)}]
    """

    format: ClassVar = "tfrecord"


@dataclass
class _KeyedSource(_FileSource):
    """Reads a database.

    Args:
        path: The database.
        decode: How to decode the values; see :class:`~highway.datasets.LMDB`. ``None`` derives this from the first value.

    Yields:
        Decoded values, or batches of decoded values.
    """

    decode: Decode | None = None


@checked
@dataclass
class LMDBSource(_KeyedSource):
    """Read the values of an LMDB database, which can also come from tensorpack or Caffe: ``Reader(LMDB(path), batch_size)``.

    >>> Pipeline([[{"txt": "a text", "cls": 3}], LMDBSink("texts.lmdb")]).run()
    >>> list(Pipeline([LMDBSource("texts.lmdb", None, epochs=1)]))
    [{'txt': 'a text', 'cls': np.int32(3)}]
    """

    format: ClassVar = "lmdb"


@checked
@dataclass
class LevelDBSource(_KeyedSource):
    """Read the values of a LevelDB database, which can also come from Highway (2017): ``Reader(LevelDB(path), batch_size)``.

    >>> Pipeline([[{"txt": "a text", "cls": 3}], LevelDBSink("texts.leveldb")]).run()
    >>> list(Pipeline([LevelDBSource("texts.leveldb", None, epochs=1)]))
    [{'txt': 'a text', 'cls': np.int32(3)}]
    """

    format: ClassVar = "leveldb"


@checked
@dataclass
class HDF5Source(_FileSource):
    """Read the rows of the datasets in an HDF5 file: ``Reader(HDF5(path), batch_size)``.

    For datasets that are stored in chunks, ``shuffle="blocks"`` is fastest.

    Args:
        path: The file.
        fields: A dict from field names to the datasets to read: ``{"image": "train/images"}``. ``None`` reads all datasets that have rows.
        group: The group that contains the datasets.

    Yields:
        Dicts with one row of each dataset. With ``batch_size``, each field has a new first axis.

    >>> samples = [{"x": np.float32([n, n]), "label": np.int32(n)} for n in range(4)]
    >>> Pipeline([samples, HDF5Sink("points.h5")]).run()
    >>> [batch["label"] for batch in Pipeline([HDF5Source("points.h5", 2, epochs=1, shuffle=False)])]
    [array([0, 1], dtype=int32), array([2, 3], dtype=int32)]
    """

    format: ClassVar = "hdf5"

    group: str = "/"

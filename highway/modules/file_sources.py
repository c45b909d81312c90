"""Sources by format: each is a :class:`~highway.modules.Reader` of the dataset that reads it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

from highway.datasets.dataset import Dataset
from highway.datasets.records.tfrecord import TFRecord
from highway.parameters.checks import checked
from highway.parameters.ranges import Count, Epochs
from highway.reading.batch_formats import BatchFormat, Stacked
from highway.reading.sampling import Sampling


@dataclass
class _OfFiles:
    path: str | list[str]
    batch_size: Count | None = 32
    epochs: Epochs = None


@dataclass
class _FileSource(Sampling, _OfFiles, ABC):
    """Reads what is at a path.

    Args:
        path: A file, a pattern such as ``"train-*"``, or a list of these.
        batch_size: Samples per batch; ``None`` for samples one by one, such as encoded images on their way to :class:`DecodeImage`.
        epochs: Passes over the samples, or ``None`` to repeat for ever.
    """

    @abstractmethod
    def open(self) -> Dataset:
        """Return the dataset."""

    def batch_format(self, dataset: Dataset) -> BatchFormat:
        """Return how batches are made."""
        return Stacked()


@checked
@dataclass
class TFRecordSource(_FileSource):
    """Read the Examples of TFRecord files: ``Reader(TFRecord(path, example=True), batch_size)``.

    Args:
        fields: The features to decode, under new names, as for :class:`~highway.datasets.TFRecord`.

    Yields:
        Dicts of features, with a new first axis in each if there is a ``batch_size``.
    """

    fields: dict[str, str] | None = None

    def open(self) -> TFRecord:
        return TFRecord(self.path, example=True, fields=self.fields)

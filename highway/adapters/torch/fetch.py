"""Read the samples of a batch as torch does. If this raises an error, add a note with the index of the sample."""

from __future__ import annotations

import os
from itertools import chain
from typing import Any

from torch.utils.data._utils.fetch import _IterableDatasetFetcher, _MapDatasetFetcher

from highway.datasets.dataset import locate
from highway.errors import DatasetError

_SHOWN = 8  # maximum number of indices in a message


def names(indices: Any) -> str:
    """Return a text with the first indices, for a message."""
    if not isinstance(indices, (list, tuple)):
        return f"sample {indices}"
    shown = ", ".join(map(str, indices[:_SHOWN]))
    return f"samples {shown}{f', ... ({len(indices)} in all)' if len(indices) > _SHOWN else ''}"


def held_by_dead(batches: list[Any], are_lists: bool) -> str:
    """Return a text with the batches that a dead process had, for a message."""
    return f"it held {len(batches)} batches: {names(list(chain.from_iterable(batches)) if are_lists else batches)}"


class MapFetcher(_MapDatasetFetcher):
    """Reads samples by index."""

    def fetch(self, indices: Any) -> Any:
        """Return the batch with these indices, or one sample if the loader has no batch size."""
        index = indices
        try:
            if not self.auto_collation:
                data = self.dataset[indices]
            elif several := getattr(self.dataset, "__getitems__", None):
                data = several(indices)
            else:
                data = []
                for index in indices:
                    data.append(self.dataset[index])
        except Exception as error:
            annotate(error, f"raised for {place(self.dataset, index)}")
            raise
        return self.collated(data, indices)

    def collated(self, data: Any, indices: Any) -> Any:
        """Collate samples into a batch, or convert one sample if the loader has no batch size."""
        try:
            return self.collate_fn(data)
        except Exception as error:
            annotate(error, f"raised when {names(indices)} were combined into a batch{_missing(data, indices)}")
            raise


class IterableFetcher(_IterableDatasetFetcher):
    """Reads the next samples of an iterator."""

    def skip(self, batches: int, batch_size: int | None) -> None:
        """Skip the samples of ``batches`` batches."""
        try:
            for _ in range(batches * (batch_size or 1)):
                next(self.dataset_iter)
        except StopIteration:
            self.ended = True


def place(dataset: Any, index: Any) -> str:
    """Return the location of a sample, for messages."""
    return locate(dataset, index) if isinstance(index, int) else f"{names(index)} of {type(dataset).__name__}"


def _missing(data: Any, indices: Any) -> str:
    found = [index for index, sample in zip(indices, data, strict=False) if sample is None] if isinstance(data, list) else []
    return f"; the dataset returned None for sample {found[0]}" if found else ""


def annotate(error: Exception, note: str) -> None:
    """Add a note to an error. For a ``StopIteration``, which would end the loop silently, raise DatasetError."""
    error.add_note(f"highway: {note}")
    add_advice(error)
    if isinstance(error, StopIteration):
        raise DatasetError(f"the dataset raised StopIteration, which would end the epoch early: {note}") from error


def add_advice(error: Exception) -> None:
    """If an error says that shared memory is full or that there are too many open files, add a note with advice."""
    if "shared memory" in str(error) and "No space left on device" in str(error):
        error.add_note(f"highway: {advice_on_shared_memory()}")
    elif "Too many open files" in str(error):
        error.add_note(
            "highway: raise the limit in the shell with ulimit -n, or call torch.multiprocessing.set_sharing_strategy('file_system') "
            "before the loop"
        )


def advice_on_shared_memory() -> str:
    """Return advice for the case that shared memory is full."""
    shared = os.statvfs("/dev/shm")
    return (
        f"/dev/shm has {shared.f_blocks * shared.f_frsize >> 20} MB, and batches that workers are sending may fill it: give the container "
        'more shared memory (docker run --shm-size=8g), lower num_workers, prefetch_factor or batch_size, or use workers="threads"'
    )

"""Loops of a ``DataLoader`` over a pipeline."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch.utils.data import IterableDataset
from torch.utils.data.dataloader import _SingleProcessDataLoaderIter

from highway.adapters.torch.nested import mapped
from highway.engine import Pipeline
from highway.errors import ConfigError


class PipelineItems(IterableDataset):
    """The items of a pipeline, with tensors instead of arrays. Each loop is one epoch of the pipeline."""

    def __init__(self, pipeline: Pipeline) -> None:
        self._pipeline = pipeline

    @property
    def epoch(self) -> int:
        return self._pipeline.epoch

    def __len__(self) -> int:
        return len(self._pipeline)

    def __iter__(self) -> Iterator[Any]:
        return self._tensors(iter(self._pipeline))

    def _tensors(self, items: Iterator[Any]) -> Iterator[Any]:
        for item in items:
            yield mapped(item, tensor_of)

    def set_epoch(self, epoch: int) -> None:
        """Raise ConfigError if ``epoch`` is not the epoch of the next loop."""
        if epoch != self.epoch:
            raise ConfigError(
                f"DataLoader: set_epoch({epoch}), but the next loop over the pipeline is epoch {self.epoch}: a pipeline counts its epochs "
                "itself; use load_state_dict() to continue in another epoch"
            )

    def position(self) -> Any:
        return self._pipeline.position()

    def received(self, position: Any) -> None:
        self._pipeline.received(position)

    def state_dict(self) -> dict[str, Any]:
        return self._pipeline.state_dict()

    def load_state_dict(self, state: Mapping[str, Any] | Sequence[Mapping[str, Any]], allow_changed: Collection[str] = ()) -> None:
        self._pipeline.load_state_dict(state["pipeline"] if isinstance(state, Mapping) and "pipeline" in state else state, allow_changed)

    def close(self) -> None:
        self._pipeline.stop()


class PipelineIterator(_SingleProcessDataLoaderIter):
    """One loop over the items of a pipeline."""

    def close(self) -> None:
        """Skip the remaining items of the epoch. Closing again does nothing."""
        self._dataset_fetcher.dataset_iter.close()


def unchanged(item: Any) -> Any:
    return item


def tensor_of(leaf: Any) -> Any:
    """Convert a numeric array to a tensor. Return other values unchanged.

    The tensor shares the memory of the array, if torch supports this memory.
    """
    if not isinstance(leaf, np.ndarray) or leaf.dtype.kind not in "biufc":
        return leaf
    array = leaf if leaf.dtype.isnative else leaf.astype(leaf.dtype.newbyteorder("="))
    if not array.flags.writeable or any(stride < 0 for stride in array.strides):  # torch has neither read-only tensors nor negative strides
        array = array.copy()
    return torch.from_numpy(array)

"""The batches of a pipeline, as tensors."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import torch

from highway.adapters.torch.nested import mapped
from highway.engine import Pipeline
from highway.errors import ConfigError


class PipelineBatches:
    """Makes a loop over a pipeline's items for each of its epochs.

    Args:
        pipeline: What makes the batches.
    """

    def __init__(self, pipeline: Pipeline) -> None:
        self._pipeline = pipeline

    @property
    def epoch(self) -> int:
        return self._pipeline.epoch

    def __len__(self) -> int:
        return len(self._pipeline)

    def __iter__(self) -> Iterator[Any]:
        items = iter(self._pipeline)
        return (mapped(item, tensor_of) for item in items)

    def set_epoch(self, epoch: int) -> None:
        """Expect that the next loop is this epoch, or one that comes later, up to which nothing is made."""
        if epoch != self._pipeline.epoch:
            raise ConfigError(
                f"DataLoader: set_epoch({epoch}), but the next loop over the pipeline is epoch {self._pipeline.epoch}: a pipeline "
                "numbers its epochs itself; load_state_dict() goes on in another one"
            )

    def state_dict(self) -> dict[str, Any]:
        return self._pipeline.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._pipeline.load_state_dict(state)

    def close(self) -> None:
        self._pipeline.stop()


def tensor_of(leaf: Any) -> Any:
    """Return a numeric array as the tensor that shares its memory, of a copy if it is read-only; anything else as it is."""
    if not isinstance(leaf, np.ndarray) or leaf.dtype.kind not in "biufc":
        return leaf
    array = leaf if leaf.dtype.isnative else leaf.astype(leaf.dtype.newbyteorder("="))
    if not array.flags.writeable or any(stride < 0 for stride in array.strides):  # torch has neither
        array = array.copy()
    return torch.from_numpy(array)

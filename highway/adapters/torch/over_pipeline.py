"""The batches of a pipeline, as tensors."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any

import numpy as np
import torch

from highway.adapters.torch.nested import mapped
from highway.engine import Pipeline
from highway.errors import ConfigError, PipelineError


class PipelineBatches:
    """Makes a loop over a pipeline's items for each of its epochs.

    Args:
        pipeline: What makes the batches.
    """

    def __init__(self, pipeline: Pipeline) -> None:
        self._pipeline = pipeline
        self._given: int | None = 0  # items of the epoch that were taken; None: nobody knows
        self._is_at_end = False  # whether they are all of the loop that runs
        self._is_behind_last = False  # whether they were all of a loop that another loader has not ended
        self._received: tuple[Any, int | None, bool] | None = None  # where the loop is, if somebody takes batches ahead of it

    @property
    def epoch(self) -> int:
        return self._pipeline.epoch + self._is_behind_last

    def __len__(self) -> int:
        return len(self._pipeline)

    def __iter__(self) -> Iterator[Any]:
        self._received = None
        if self._is_behind_last:
            self._is_behind_last, self._given = False, 0
            for _ in self._pipeline:  # the rest of that epoch, which is empty
                raise PipelineError("DataLoader: the pipeline's len() is less than the items of an epoch; correct the length of a stage")
        return self._epoch(iter(self._pipeline))

    def _epoch(self, items: Iterator[Any]) -> Iterator[Any]:
        try:
            length = len(self._pipeline)
        except TypeError:  # a stage does not know
            length = -1
        try:
            for item in items:
                self._given = None if self._given is None else self._given + 1
                self._is_at_end = self._given == length
                yield mapped(item, tensor_of)
        finally:
            self._given, self._is_at_end = 0, False

    def set_epoch(self, epoch: int) -> None:
        """Expect that the next loop is this epoch."""
        if epoch != self.epoch:
            raise ConfigError(
                f"DataLoader: set_epoch({epoch}), but the next loop over the pipeline is epoch {self.epoch}: a pipeline numbers its epochs "
                "itself; load_state_dict() goes on in another one"
            )

    def position(self) -> tuple[Any, int | None, bool]:
        return self._pipeline.position(), self._given, self._is_behind_last or self._is_at_end

    def received(self, position: tuple[Any, int | None, bool] | PipelineError | None) -> None:
        self._received = position if isinstance(position, tuple) else None
        self._pipeline.received(position[0] if isinstance(position, tuple) else position)

    def state_dict(self) -> dict[str, Any]:
        _, given, is_behind_last = self._received or self.position()
        return {"pipeline": self._pipeline.state_dict(), "given": given, "is_behind_last": is_behind_last}

    def load_state_dict(self, state: Mapping[str, Any], allow_changed: Collection[str] = ()) -> None:
        self._received = None
        if isinstance(state, Mapping) and "pipeline" in state:
            self._pipeline.load_state_dict(state["pipeline"], allow_changed)
            self._given, self._is_behind_last = state["given"], state["is_behind_last"]
        else:  # the pipeline's own
            self._pipeline.load_state_dict(state, allow_changed)
            self._given = None

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

"""Pass batches to and from tensorpack: ``pip install tensorpack``."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Any

try:
    from tensorpack.dataflow import DataFlow
except ImportError as error:
    from highway.errors import ConfigError

    raise ConfigError("highway.adapters.tensorpack needs tensorpack: pip install tensorpack") from error

from highway.engine.component import Traits
from highway.engine.context import Context, here
from highway.engine.pipeline import Pipeline
from highway.engine.stage import Passport, Stamped
from highway.errors import PipelineError
from highway.parameters.ranges import ENDS


class DequeueGenerator(DataFlow):
    """A DataFlow that yields the items of a pipeline, as lists or dicts. Each loop is one epoch.

    ::

        with Pipeline([...]) as pipeline:
            TrainConfig(model, QueueInput(DequeueGenerator(pipeline)), ...)

    The pipeline replaces the worker processes of tensorpack, such as ``MultiProcessRunner``. Iterating in a forked process raises an error,
    because the threads of a pipeline cannot be forked.

    Args:
        pipeline: A :class:`~highway.Pipeline` with at least one epoch for each loop.
        queue_size: This parameter has no effect. It exists for programs of Highway (2017). To set the number of items that are prepared in
            advance, use ``buffer_size`` of the last stage.

    >>> with Pipeline([[(1, 2), (3, 4)]]) as pipeline:
    ...     print(list(DequeueGenerator(pipeline)))
    [[1, 2], [3, 4]]
    """

    def __init__(self, pipeline: Pipeline, queue_size: int = 128) -> None:
        self.pipeline, self.queue_size = pipeline, queue_size

    def __iter__(self) -> Iterator[Any]:
        """Yield the datapoints of an epoch.

        Raises:
            EndOfStream: the pipeline has no more epochs.
            Exception: the error of a stage.
        """
        for item in self.pipeline:
            yield item if isinstance(item, (list, dict)) else list(item) if isinstance(item, tuple) else [item]

    def __len__(self) -> int:
        """Return the number of datapoints in an epoch.

        Raises:
            NotImplementedError: the number is unknown. tensorpack expects this error.
        """
        try:
            return len(self.pipeline)
        except TypeError as error:
            raise NotImplementedError(str(error)) from error

    def get_data(self) -> Iterator[Any]:
        """Yield the datapoints of an epoch. tensorpack before version 0.9 calls this method instead of ``__iter__``."""
        return iter(self)

    def size(self) -> int:
        """Return the number of datapoints in an epoch. Raises NotImplementedError if the number is unknown."""
        return len(self)

    get_size = size


@dataclass
class DataFlowSource:
    """Read a DataFlow. Each pass over the DataFlow is an epoch.

    This source calls ``reset_state()`` when it starts. Do not iterate over the same DataFlow elsewhere. The order of some DataFlows, such
    as ``MultiProcessRunner``, is not reproducible. A DataFlow does not report its position, so ``state_dict()`` of the pipeline raises an
    error in the middle of a pass. For a reproducible order and states, read the data with a :class:`~highway.modules.Reader`.

    Args:
        dataflow: The DataFlow.
        epochs: Number of passes over the DataFlow, or ``None`` to repeat indefinitely.

    Yields:
        The datapoints of the DataFlow: lists or dicts.

    Raises:
        PipelineError: a pass has no datapoints (when running).

    >>> from tensorpack.dataflow import DataFromList
    >>> flow = DataFromList([[1, 2], [3, 4]], shuffle=False)
    >>> list(Pipeline([DataFlowSource(flow, epochs=1)]))
    [[1, 2], [3, 4]]
    """

    dataflow: DataFlow
    epochs: Annotated[int | None, ENDS] = 1

    def __highway__(self) -> Traits:
        return Traits(length=self._length, numbers_epochs=True, epochs=self.epochs)

    def _length(self) -> int:
        """Return the number of datapoints in a pass.

        Raises:
            TypeError: the DataFlow has no length.
        """
        try:
            return len(self.dataflow)
        except NotImplementedError as error:
            raise TypeError(f"{type(self.dataflow).__name__} has no length; define its __len__") from error

    def __iter__(self, context: Context | None = None) -> Iterator[Stamped]:
        context = context or here()
        self.dataflow.reset_state()
        epoch = 0
        while self.epochs is None or epoch < self.epochs:
            index = -1
            for index, datapoint in enumerate(self.dataflow):
                if context.is_skipped(epoch):
                    break
                yield Stamped(datapoint, Passport(epoch, index))
            if index < 0:
                raise PipelineError(f"{type(self.dataflow).__name__} has no datapoints in epoch {epoch}")
            epoch += 1

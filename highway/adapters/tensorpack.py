"""Hand-over to tensorpack, and from it: ``pip install tensorpack``."""

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
    """A pipeline as a DataFlow: datapoints are its items, as lists or dicts, and a loop is one epoch of it.

    ::

        with Pipeline([...]) as pipeline:
            TrainConfig(model, QueueInput(DequeueGenerator(pipeline)), ...)

    What tensorpack does in processes that it forks, such as ``MultiProcessRunner``, is the pipeline's own to do: it cannot be forked once
    it runs, and iterating there is an error that says so.

    Args:
        pipeline: A :class:`~highway.Pipeline`, which has as many epochs as there are loops.
        queue_size: Taken so that programs of Highway (2017) run. It has no effect: items wait in the pipeline, as many as ``buffer_size``
            of its last stage says.
    """

    def __init__(self, pipeline: Pipeline, queue_size: int = 128) -> None:
        self.pipeline, self.queue_size = pipeline, queue_size

    def __iter__(self) -> Iterator[Any]:
        """Yield the datapoints of an epoch.

        Raises:
            EndOfStream: the pipeline has no other epoch.
            Exception: what a stage raised.
        """
        for item in self.pipeline:
            yield item if isinstance(item, (list, dict)) else list(item) if isinstance(item, tuple) else [item]

    def __len__(self) -> int:
        """Return how many datapoints an epoch has.

        Raises:
            NotImplementedError: the pipeline does not know; it is what tensorpack asks for.
        """
        try:
            return len(self.pipeline)
        except TypeError as error:
            raise NotImplementedError(str(error)) from error

    def get_data(self) -> Iterator[Any]:
        """Yield the datapoints of an epoch, as iterating does; tensorpack called it so before 0.9."""
        return iter(self)

    def size(self) -> int:
        """Return how many datapoints an epoch has. Raises NotImplementedError."""
        return len(self)

    get_size = size


@dataclass
class DataFlowSource:
    """Read a DataFlow: a pass over it is an epoch.

    Only this source may iterate over the DataFlow, whose state it resets when it begins. Passes that are in no order of their own, such as
    those behind ``MultiProcessRunner``, stay in none: for orders that can be repeated give a :class:`~highway.modules.Reader` the data.

    Args:
        dataflow: The DataFlow.
        epochs: Passes over it, or ``None`` to repeat for ever.

    Yields:
        Its datapoints: lists or dicts.

    Raises:
        PipelineError: a pass has no datapoints (when running).
    """

    dataflow: DataFlow
    epochs: Annotated[int | None, ENDS] = 1

    def __highway__(self) -> Traits:
        return Traits(length=self._length, numbers_epochs=True, epochs=self.epochs)

    def _length(self) -> int:
        """Return how many datapoints a pass has.

        Raises:
            TypeError: the DataFlow does not say.
        """
        try:
            return len(self.dataflow)
        except NotImplementedError as error:
            raise TypeError(f"{type(self.dataflow).__name__} does not say how many datapoints it has") from error

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

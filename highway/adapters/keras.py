"""Hand-over to Keras 3, which brings its own installation: ``pip install keras``, and TensorFlow, JAX or PyTorch."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from highway.errors import ConfigError, PipelineError

if TYPE_CHECKING:
    from highway.adapters.tensorflow import Loops

try:
    from keras.src.trainers.data_adapters import data_adapter_utils
    from keras.src.trainers.data_adapters.data_adapter import DataAdapter
except ImportError as error:
    raise ConfigError(
        "highway.adapters.keras needs keras 3.6 or later: pip install keras, and one of tensorflow, jax and torch, as KERAS_BACKEND says"
    ) from error

HELD = 5  # batches at most that Keras takes of a pass that it leaves, to see what they are: with those that TensorFlow holds


def dataset(pipeline: Iterable[Any], steps: int | None = None) -> DataAdapter:
    """Return what ``fit``, ``evaluate`` and ``predict`` of a Keras model take, on TensorFlow, JAX and PyTorch.

    ::

        train, test = Pipeline([...]), Pipeline([...])
        model.fit(dataset(train), validation_data=dataset(test), epochs=90, class_weight={0: 1.0, 1: 5.0})

    Items are ``x``, ``(x, y)`` or ``(x, y, sample_weight)``, each an array, or a dict of arrays by the names of the model's inputs and
    outputs. Each epoch of Keras is one of the pipeline, whose order and chance are its own: ``shuffle`` of ``fit`` has no effect. Keras
    takes batches to see what they are before it trains; the first epoch yields them all the same.

    Args:
        pipeline: A :class:`~highway.Pipeline` of batches, with as many epochs as Keras makes passes, or any iterable that begins anew.
        steps: Batches in an epoch, which Keras shows and checks; ``None``: what ``len(pipeline)`` says, if it does. Give 0 where
            that is not known before the end, such as where a stage leaves out batches.

    Raises:
        Exception: what a stage raised, out of ``fit`` as it was.
    """
    if steps is None:
        try:
            steps = len(pipeline)  # type: ignore[arg-type]  # which not every iterable has
        except TypeError:
            steps = 0
    return PipelineAdapter(pipeline, steps)


class PipelineAdapter(DataAdapter):
    """What :func:`dataset` returns."""

    batch_size = None
    has_partial_batch = None
    partial_batch_size = None

    def __init__(self, pipeline: Iterable[Any], steps: int) -> None:
        self._passes, self._steps = _Passes(pipeline, steps), steps
        self._is_new = False  # to Keras, which looks at batches first
        self._loops: Loops | None = None

    @property
    def num_batches(self) -> int | None:
        """Batches in an epoch; ``None`` if that is not known."""
        caller = sys._getframe(1).f_locals
        if "class_weight" in caller:  # of fit, which begins: Keras gives it to its own adapters alone
            self._is_new, self._passes.class_weight = True, caller["class_weight"]
            self._passes.finish()
        return self._steps or None

    def get_numpy_iterator(self) -> Any:
        """Return one pass, as arrays."""
        return data_adapter_utils.get_numpy_iterator(self._passes)

    def get_jax_iterator(self) -> Any:
        """Return one pass, as arrays that JAX takes."""
        return data_adapter_utils.get_jax_iterator(self._passes)

    def get_torch_dataloader(self) -> Any:
        """Return a torch ``DataLoader`` of one pass."""
        return data_adapter_utils.get_torch_dataloader(self._passes)

    def get_tf_dataset(self) -> Any:
        """Return a ``tf.data.Dataset``, of which each loop is a pass."""
        from highway.adapters.tensorflow import Loops, dataset_of  # here, since Keras may run without TensorFlow

        self._loops = Loops(self._passes, errors_end_it=True)
        return dataset_of(self._loops)

    def on_epoch_end(self) -> None:
        """Raise what the pipeline has raised, and which TensorFlow has seen as the end.

        Raises:
            Exception: what a stage raised.
        """
        if self._is_new:
            self._passes.repeat()
            self._is_new = False
        if self._loops is not None and self._loops.error is not None:
            raise self._loops.error


class _Passes:
    """The passes that Keras makes over a pipeline, one after the other.

    A pass that is left within its first batches is made again from its beginning: Keras leaves one when it has seen what batches are.
    """

    def __init__(self, pipeline: Iterable[Any], steps: int) -> None:
        self.class_weight: dict[int, float] | None = None
        self._pipeline, self._steps = pipeline, steps
        self._items: Iterator[Any] = iter(())
        self._taken, self._held, self._is_done = 0, list[Any](), True
        self._number = 0

    def finish(self) -> None:
        """Forget the batches of a pass that was made to its end."""
        if self._is_done:
            self._held.clear()

    def repeat(self) -> None:
        """Make the last pass again, if all its batches are held."""
        self._is_done = self._is_done and not self._held

    def __iter__(self) -> Iterator[Any]:
        """Yield the batches of a pass.

        Raises:
            EndOfStream: the pipeline has no other epoch.
            PipelineError: there are fewer batches than its length says, none at all, or another pass has begun.
        """
        self._number += 1
        number = self._number
        if self._is_done or not self._held:
            self._items, self._taken, self._is_done = iter(self._pipeline), 0, False
            self._held.clear()
        for position, item in enumerate(itertools.chain(tuple(self._held), self._further()), start=1):
            if number != self._number:
                raise PipelineError("dataset: another pass over it has begun; a pipeline has one at a time, so give each fit its own")
            self._is_done = position == self._steps
            yield self._weighted(item)
        self._is_done = True
        if not self._taken:
            iter(self._pipeline)  # which says so, if it has ended
            raise PipelineError("dataset: the pipeline yields no batches")
        if self._taken < self._steps:
            raise PipelineError(
                f"dataset: the epoch had {self._taken} batches, and should have {self._steps}; give dataset(pipeline, steps=...) as many "
                "as it has, or 0 where that is not known, such as where a stage leaves out batches"
            )

    def _further(self) -> Iterator[Any]:
        """Yield what was not taken yet, and hold the first batches."""
        for item in self._items:
            self._taken += 1
            self._held.append(item)
            if self._taken > HELD:
                self._held.clear()
            yield item

    def _weighted(self, item: Any) -> Any:
        """Return an item as Keras takes it, with the weights that ``class_weight`` gives to its rows."""
        if isinstance(item, dict):
            return item
        batch = tuple(item) if isinstance(item, (tuple, list)) else (item,)
        if len(batch) > 3:
            raise PipelineError(
                f"dataset: items have {len(batch)} fields; Keras takes x, (x, y) or (x, y, sample_weight), where x and y may be dicts"
            )
        if self.class_weight is None or len(batch) == 1:
            return batch
        if len(batch) == 3:
            raise PipelineError("dataset: items have sample weights already; give fit no class_weight")
        return *batch, data_adapter_utils.class_weight_to_sample_weights(batch[1], self.class_weight)

"""Hand-over to Keras 3, which brings its own installation: ``pip install keras``, and TensorFlow, JAX or PyTorch."""

from __future__ import annotations

import itertools
import sys
import threading
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, Self

from highway.adapters.positions import Positioned
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

_IN_AN_EPOCH = (
    "state_dict: Keras takes batches of the pipeline ahead of its training steps; call state_dict() at the end of an epoch, such as in "
    "on_epoch_end of a callback"
)
HELD = 5  # batches at most that Keras takes of a pass that it leaves, to see what they are: with those that TensorFlow holds


def dataset(pipeline: Iterable[Any], steps: int | None = None) -> DataAdapter:
    """Return what ``fit``, ``evaluate`` and ``predict`` of a Keras model take, on TensorFlow, JAX and PyTorch.

    ::

        train, test = Pipeline([...]), Pipeline([...])
        model.fit(dataset(train), validation_data=dataset(test), epochs=90, class_weight={0: 1.0, 1: 5.0})

    Items are ``x``, ``(x, y)`` or ``(x, y, sample_weight)``, each an array, or a dict of arrays by the names of the model's inputs and
    outputs. Each epoch of Keras is one of the pipeline, whose order and chance are its own: ``shuffle`` of ``fit`` has no effect. Keras
    takes batches to see what they are before it trains; the first epoch yields them all the same.

    At the end of an epoch, such as in ``on_epoch_end`` of a callback, ``pipeline.state_dict()`` is the state after the batches of the
    epoch. Within an epoch it is the one after the batch of the last step on PyTorch, and an error on TensorFlow and JAX, which take
    batches ahead.

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

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._passes.end()

    @property
    def num_batches(self) -> int | None:
        """Batches in an epoch; ``None`` if that is not known."""
        caller = sys._getframe(1).f_locals
        if "class_weight" in caller:  # of fit, which begins: Keras gives these to its own adapters alone
            self._is_new, self._passes.class_weight = True, caller["class_weight"]
            self._passes.is_split = caller.get("steps_per_epoch") is not None
            self._passes.finish()
        return self._steps or None

    def get_numpy_iterator(self) -> Any:
        """Return one pass, as arrays."""
        self._passes.is_taken_ahead = False
        return data_adapter_utils.get_numpy_iterator(self._passes)

    def get_jax_iterator(self) -> Any:
        """Return one pass, as arrays that JAX takes."""
        self._passes.is_taken_ahead = True
        return data_adapter_utils.get_jax_iterator(self._passes)

    def get_torch_dataloader(self) -> Any:
        """Return a torch ``DataLoader`` of one pass."""
        self._passes.is_taken_ahead = False
        return data_adapter_utils.get_torch_dataloader(self._passes)

    def get_tf_dataset(self) -> Any:
        """Return a ``tf.data.Dataset``, of which each loop is a pass."""
        from highway.adapters.tensorflow import Loops, dataset_of  # here, since Keras may run without TensorFlow

        self._passes.is_taken_ahead = True
        self._loops = Loops(self._passes, errors_end_it=True)
        return dataset_of(self._loops)

    def on_epoch_end(self) -> None:
        """Note that the batches of a pass were received.

        Raises:
            Exception: what a stage raised, which TensorFlow has seen as the end.
        """
        if self._is_new:
            self._passes.begin_training(self._loops is None or self._loops.has_begun)
            self._is_new = False
        else:
            self._passes.end()
        if self._loops is not None and self._loops.error is not None:
            raise self._loops.error


class _Passes:
    """The passes that Keras makes over a pipeline, one after the other.

    A pass that is left within its first batches is made again from its beginning: Keras leaves one when it has seen what batches are.
    """

    def __init__(self, pipeline: Iterable[Any], steps: int) -> None:
        self.class_weight: dict[int, float] | None = None
        self.is_split = False  # whether an epoch of Keras may be a part of a pass
        self.is_taken_ahead = False  # whether batches are taken before the steps that get them
        self._pipeline, self._steps = pipeline, steps
        self._items: Iterator[Any] = iter(())
        self._taken, self._held, self._is_done = 0, list[tuple[Any, Any]](), True
        self._begin: Any = None  # the pipeline's position before the pass
        self._number = 0
        self._ending = threading.Lock()

    def finish(self) -> None:
        """Forget the batches of a pass that was made to its end."""
        if self._is_done:
            self._held.clear()

    def begin_training(self, has_looked: bool) -> None:
        """Note that no batch was trained with yet; if Keras has looked at the batches of a pass, and all are held, it is made again."""
        if has_looked:
            self._number += 1  # TensorFlow may still take batches of it
            self._is_done = self._is_done and not self._held
        if self._held:
            self._tell(self._begin)

    def end(self) -> None:
        """Note that all batches of a pass were received, if they were taken."""
        if self._is_done and not self.is_split:
            self._leave()
            self._tell(self._position())

    def __iter__(self) -> Iterator[Any]:
        """Yield the batches of a pass.

        Raises:
            EndOfStream: the pipeline has no other epoch.
            PipelineError: there are fewer batches than its length says, none at all, or another pass has begun.
        """
        self._number += 1
        number = self._number
        if self._is_done or not self._held:
            self._leave()
            self._items, self._taken, self._is_done = iter(self._pipeline), 0, False
            self._held.clear()
            self._begin = self._position()
        for count, (item, position) in enumerate(itertools.chain(tuple(self._held), self._further()), start=1):
            if number != self._number:
                raise PipelineError("dataset: another pass over it has begun; a pipeline has one at a time, so give each fit its own")
            self._is_done = count == self._steps
            self._tell(PipelineError(_IN_AN_EPOCH) if self.is_taken_ahead else position)
            yield self._weighted(item)
            if count == self._steps:
                break
        if number != self._number:
            return
        self._is_done = True
        if not self._taken:
            iter(self._pipeline)  # which says so, if it has ended
            raise PipelineError("dataset: the pipeline yields no batches")
        if self._taken < self._steps:
            raise PipelineError(
                f"dataset: the epoch had {self._taken} batches, and should have {self._steps}; give dataset(pipeline, steps=...) as many "
                "as it has, or 0 where that is not known, such as where a stage leaves out batches"
            )

    def _further(self) -> Iterator[tuple[Any, Any]]:
        """Yield what was not taken yet with its position, and hold the first batches."""
        for item in self._items:
            taken = item, self._position()
            self._taken += 1
            self._held.append(taken)
            if self._taken > HELD:
                self._held.clear()
            yield taken

    def _position(self) -> Any:
        return self._pipeline.position() if isinstance(self._pipeline, Positioned) else None

    def _tell(self, position: Any) -> None:
        """Tell the pipeline where the training is."""
        if isinstance(self._pipeline, Positioned):
            self._pipeline.received(position)

    def _leave(self) -> None:
        """End the loop over the pipeline, on the thread that trains or on one of TensorFlow's."""
        with self._ending:
            if (close := getattr(self._items, "close", None)) is not None:
                close()
            self._items = iter(())

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

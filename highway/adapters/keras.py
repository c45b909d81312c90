"""Pass batches to Keras 3. Install Keras and its backend separately: ``pip install keras``, and TensorFlow, JAX or PyTorch."""

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
        "highway.adapters.keras needs keras 3.6 or later: pip install keras, and the backend that KERAS_BACKEND selects (tensorflow, jax "
        "or torch)"
    ) from error

_IN_AN_EPOCH = (
    "state_dict: in an epoch, Keras has already read batches that it has not trained on; call state_dict() at the end of an epoch, such as "
    "in on_epoch_end of a callback"
)
HELD = 5  # maximum number of batches that Keras reads before it trains, including batches that TensorFlow reads in advance


def dataset(pipeline: Iterable[Any], steps: int | None = None) -> DataAdapter:
    """Return a dataset for ``fit``, ``evaluate`` and ``predict`` of a Keras model, on TensorFlow, JAX or PyTorch.

    ::

        train, test = Pipeline([...]), Pipeline([...])
        model.fit(dataset(train), validation_data=dataset(test), epochs=90, class_weight={0: 1.0, 1: 5.0})

    The items of the pipeline are ``x``, ``(x, y)`` or ``(x, y, sample_weight)``. Each of these values is an array, or a dict from the names
    of the model's inputs or outputs to arrays. Each epoch of Keras is one epoch of the pipeline. The pipeline determines the order, so
    ``shuffle`` of ``fit`` has no effect. Keras inspects some batches before it trains. The first epoch begins with these batches, so they
    are not lost.

    At the end of an epoch, such as in ``on_epoch_end`` of a callback, ``pipeline.state_dict()`` returns the state after the epoch. In the
    middle of an epoch with PyTorch, it returns the state after the last training step. In the middle of an epoch with TensorFlow or JAX, it
    raises an error, because these backends read batches in advance.

    Args:
        pipeline: A :class:`~highway.Pipeline` that yields batches and has enough epochs, or any iterable that can be iterated over
            repeatedly.
        steps: Number of batches in an epoch. Keras shows this number. If the epoch has fewer batches, an error is raised. ``None`` means
            ``len(pipeline)``, if the length is known. Pass 0 if the number is unknown before the end of the epoch, for example because a
            stage drops batches.

    Raises:
        PipelineError: an epoch has no batches, or fewer than ``steps``; or an item has more than three values (in ``fit``).
        Exception: the error of a stage. ``fit`` raises it unchanged.

    >>> import keras
    >>> model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)])
    >>> model.compile(loss="mse")
    >>> batches = [(np.zeros((2, 3), np.float32), np.zeros((2, 1), np.float32))] * 4
    >>> with Pipeline([batches]) as pipeline:
    ...     history = model.fit(dataset(pipeline), epochs=1, verbose=0)
    >>> history.epoch
    [0]
    """
    if steps is None:
        try:
            steps = len(pipeline)  # type: ignore[arg-type]  # which not every iterable has
        except TypeError:
            steps = 0
    return PipelineAdapter(pipeline, steps)


class PipelineAdapter(DataAdapter):
    """The result of :func:`dataset`."""

    batch_size = None
    has_partial_batch = None
    partial_batch_size = None

    def __init__(self, pipeline: Iterable[Any], steps: int) -> None:
        self._passes, self._steps = _Passes(pipeline, steps), steps
        self._is_new = False  # whether fit was called, and Keras still inspects batches
        self._loops: Loops | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._passes.end()

    @property
    def num_batches(self) -> int | None:
        """The number of batches in an epoch, or ``None`` if unknown."""
        caller = sys._getframe(1).f_locals
        if "class_weight" in caller:  # fit begins; Keras applies class weights only for its own adapters, so this adapter applies them
            self._is_new, self._passes.class_weight = True, caller["class_weight"]
            self._passes.is_split = caller.get("steps_per_epoch") is not None
            self._passes.finish()
        return self._steps or None

    def get_numpy_iterator(self) -> Any:
        """Return an iterator over the arrays of one pass."""
        self._passes.is_taken_ahead = False
        return data_adapter_utils.get_numpy_iterator(self._passes)

    def get_jax_iterator(self) -> Any:
        """Return an iterator over the JAX arrays of one pass."""
        self._passes.is_taken_ahead = True
        return data_adapter_utils.get_jax_iterator(self._passes)

    def get_torch_dataloader(self) -> Any:
        """Return a torch ``DataLoader`` for one pass."""
        self._passes.is_taken_ahead = False
        return data_adapter_utils.get_torch_dataloader(self._passes)

    def get_tf_dataset(self) -> Any:
        """Return a ``tf.data.Dataset``. Each loop over this dataset is a pass."""
        from highway.adapters.tensorflow import Loops, dataset_of  # imported here, because Keras can run without TensorFlow

        self._passes.is_taken_ahead = True
        self._loops = Loops(self._passes, errors_end_it=True)
        return dataset_of(self._loops)

    def on_epoch_begin(self) -> None:
        """Note that Keras begins an epoch."""
        self._passes.begin()

    def on_epoch_end(self) -> None:
        """Note that Keras has ended an epoch.

        Raises:
            Exception: the error of a stage. TensorFlow has treated it as the end of the data.
        """
        if self._is_new:
            self._passes.begin_training(self._loops is None or self._loops.has_begun)
            self._is_new = False
        else:
            self._passes.end()
        if self._loops is not None and self._loops.error is not None:
            raise self._loops.error


class _Passes:
    """The passes of Keras over a pipeline, one after another.

    If Keras ends a pass after a few batches, for example after it has inspected them, the next pass begins with the same batches.
    """

    def __init__(self, pipeline: Iterable[Any], steps: int) -> None:
        self.class_weight: dict[int, float] | None = None
        self.is_split = False  # whether an epoch of Keras can be a part of a pass (``steps_per_epoch``)
        self.is_taken_ahead = False  # whether the backend reads batches in advance
        self._pipeline, self._steps = pipeline, steps
        self._items: Iterator[Any] = iter(())
        self._taken, self._held, self._is_done = 0, list[tuple[Any, Any]](), True
        self._begin: Any = None  # the pipeline's position before the pass
        self._number = 0
        self._ending = threading.Lock()

    def finish(self) -> None:
        """If a pass is complete, forget its batches."""
        if self._is_done:
            self._held.clear()

    def begin_training(self, has_looked: bool) -> None:
        """Note that training is about to begin. If all batches that Keras has inspected are still stored, the next pass repeats them.

        ``has_looked``: whether Keras has read batches to inspect them.
        """
        if has_looked:
            self._number += 1  # TensorFlow might still read batches of this pass
            self._is_done = self._is_done and not self._held
        if self._held:
            self._tell(self._begin)

    def begin(self) -> None:
        """If the backend reads batches in advance, make ``state_dict`` raise an error until the epoch ends.

        A thread of TensorFlow might have read batches of this epoch before the end of the previous epoch was noted.
        """
        if self.is_taken_ahead:
            self._tell(PipelineError(_IN_AN_EPOCH))

    def end(self) -> None:
        """If all batches of a pass were read, set the state to the end of the pass."""
        if self._is_done and not self.is_split:
            self._leave()
            self._tell(self._position())

    def __iter__(self) -> Iterator[Any]:
        """Yield the batches of a pass.

        Raises:
            EndOfStream: the pipeline has no more epochs.
            PipelineError: the pass has fewer batches than ``steps``, or none; or a newer pass has begun.
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
                raise PipelineError(
                    "dataset: another pass over this dataset has begun, but a pipeline supports only one pass at a time; use a separate "
                    "pipeline for each fit"
                )
            self._is_done = count == self._steps
            self._tell(PipelineError(_IN_AN_EPOCH) if self.is_taken_ahead else position)
            yield self._weighted(item)
            if count == self._steps:
                break
        if number != self._number:
            return
        self._is_done = True
        if not self._taken:
            iter(self._pipeline)  # raises EndOfStream if the pipeline has ended
            raise PipelineError("dataset: the pipeline yields no batches")
        if self._taken < self._steps:
            raise PipelineError(
                f"dataset: the epoch had {self._taken} batches; expected {self._steps} (steps, or len(pipeline)); pass the number of "
                "batches, dataset(pipeline, steps=...), or steps=0 if the number is unknown, such as if a stage drops batches"
            )

    def _further(self) -> Iterator[tuple[Any, Any]]:
        """Yield the remaining batches, each with the position after it. Store the first batches of the pass."""
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
        """Set the state of the pipeline to the state at ``position``."""
        if isinstance(self._pipeline, Positioned):
            self._pipeline.received(position)

    def _leave(self) -> None:
        """End the loop over the pipeline. Called by the training thread or by a thread of TensorFlow."""
        with self._ending:
            if (close := getattr(self._items, "close", None)) is not None:
                close()
            self._items = iter(())

    def _weighted(self, item: Any) -> Any:
        """Return an item as a tuple for Keras. If ``class_weight`` is given, add the weights of the rows."""
        if isinstance(item, dict):
            return item
        batch = tuple(item) if isinstance(item, (tuple, list)) else (item,)
        if len(batch) > 3:
            raise PipelineError(
                f"dataset: items have {len(batch)} fields; Keras accepts x, (x, y) or (x, y, sample_weight), where x and y can be dicts"
            )
        if self.class_weight is None or len(batch) == 1:
            return batch
        if len(batch) == 3:
            raise PipelineError("dataset: the items already have sample weights; remove class_weight from fit()")
        return *batch, data_adapter_utils.class_weight_to_sample_weights(batch[1], self.class_weight)

"""Pass batches to TensorFlow. Install TensorFlow separately: ``pip install tensorflow``, or ``tensorflow-cpu``."""

from __future__ import annotations

import contextlib
import threading
import weakref
from collections import deque
from collections.abc import Iterable, Iterator
from typing import Any, Self

import numpy as np

try:
    import tensorflow as tf
except ImportError as error:
    from highway.errors import ConfigError

    raise ConfigError("highway.adapters.tensorflow needs tensorflow: pip install tensorflow, or tensorflow-cpu") from error
from tensorflow.python.data.ops.iterator_ops import OwnedIterator

from highway.adapters.positions import Positioned
from highway.adapters.tensorflow_items import arrays_of, assembled, dtypes_of, signature_of
from highway.engine import Pipeline
from highway.errors import PipelineError

_NOT_TOLD = (
    "state_dict: TensorFlow reads items in advance, so it is unknown which items your loop has received; call state_dict() in a loop "
    "directly over to_dataset(pipeline), or after a block `with to_dataset(pipeline) as dataset:`"
)
HELD = 4  # maximum number of items that TensorFlow has read and the loop has not received
ENDLESS = 2**62  # more items than any epoch has


def to_dataset(pipeline: Iterable[Any], signature: Any = None) -> PipelineDataset:
    """Return a ``tf.data.Dataset`` that yields the items of a pipeline. Each loop over the dataset is an epoch of the pipeline.

    ::

        with Pipeline([...]) as pipeline:
            for images, labels in to_dataset(pipeline):
                ...

    Tuples stay tuples, and dicts stay dicts. A field that is a list of arrays of different lengths becomes a ``RaggedTensor``. Arrays in
    aligned memory, such as the batches of highway, are not copied. Other arrays are copied once.

    Only one loop can run at a time. If a second loop begins, the first loop raises an error.

    TensorFlow reads up to four items in advance. In a loop over this dataset, ``pipeline.state_dict()`` returns the state after the last
    item that the loop has received. In ``fit``, or in a loop over the result of ``map``, it is unknown which items were received, so
    ``pipeline.state_dict()`` raises an error. If a loop ends early, and the source of the pipeline does not number its epochs (such as a
    list), the items read in advance are lost.

    ``cardinality()`` and ``len`` are known if ``len(pipeline)`` is known.

    Args:
        pipeline: A :class:`~highway.Pipeline`, a :class:`~highway.Connection`, or any iterable of arrays, tuples or dicts.
        signature: A ``tf.TensorSpec`` or ``tf.RaggedTensorSpec`` for each field, in a tuple or dict like the items. With ``None``, this
            function waits for the first item, and derives the signature from it. The first loop begins with this item, so it is not lost.
            If all fields of the first item have the same length, the items are treated as batches, and their length can differ.

    Raises:
        ValueError: ``signature`` is ``None``, and the pipeline yields no items; an item does not match the signature; or a Python integer
            does not fit into int32.
        TypeError: a field has a type that tensors do not support.
        Exception: the error of a stage.

    >>> batches = [(np.zeros((2, 3), np.float32), np.int32([5, 7]))]
    >>> with Pipeline([batches]) as pipeline:
    ...     for images, labels in to_dataset(pipeline):
    ...         print(images.shape, labels.numpy())
    (2, 3) [5 7]
    """
    return dataset_of(Loops(pipeline), signature)


def dataset_of(loops: Loops, signature: Any = None) -> PipelineDataset:
    """Return the dataset of a :class:`Loops` object; see :func:`to_dataset`."""
    spec = signature_of(loops.first()) if signature is None else signature
    alive = weakref.proxy(loops)  # TensorFlow keeps the functions forever, so they have only a weak reference to the loops

    def begin(_: Any) -> Any:
        return tf.numpy_function(lambda: np.int64(alive.begin()), [], tf.int64)

    def take(number: Any) -> Any:
        return tuple(tf.numpy_function(lambda number: alive.arrays(int(number), spec), [number], [tf.bool, *dtypes_of(spec)]))

    items = tf.data.Dataset.range(1).map(begin).flat_map(lambda number: tf.data.Dataset.range(ENDLESS).map(lambda _: take(number)))
    items = items.take_while(lambda goes_on, *_: goes_on)
    # One call at a time. Otherwise, TensorFlow would choose the number of calls, and could read any number of items in advance.
    items = items.map(lambda _, *tensors: assembled(spec, iter(tensors)), num_parallel_calls=1)
    return PipelineDataset(items.prefetch(2), loops)


class PipelineDataset(tf.data.Dataset):
    """The result of :func:`to_dataset`.

    TensorFlow converts an error of the pipeline to a text. A loop over this dataset raises the original error. For ``fit``, or for a loop
    over the result of ``map``, use a ``with`` block, which also raises the original error::

        with to_dataset(pipeline) as dataset:
            model.fit(dataset.map(augment))

    The end of the block ends a running loop. Then ``pipeline.state_dict()`` works again.

    Attributes:
        error: The error of the pipeline, or ``None``.
    """

    def __init__(self, dataset: Any, loops: Loops) -> None:
        self._dataset, self._loops = dataset, loops
        super().__init__(dataset._variant_tensor)

    @property
    def error(self) -> BaseException | None:
        """The error of the pipeline, or ``None``."""
        return self._loops.error

    @property
    def element_spec(self) -> Any:
        """The signature of the items: a ``tf.TensorSpec`` or ``tf.RaggedTensorSpec`` for each field."""
        return self._dataset.element_spec

    def cardinality(self) -> Any:
        """Return the number of items in a loop, as a ``tf.int64``. If it is unknown, return ``tf.data.UNKNOWN_CARDINALITY``."""
        length = self._loops.length()
        return tf.constant(tf.data.UNKNOWN_CARDINALITY if length is None else length, tf.int64)

    def _inputs(self) -> list[Any]:
        return [self._dataset]

    def __iter__(self) -> Iterator[Any]:
        iterator: Iterator[Any] = _Iterator(self, self._loops) if tf.executing_eagerly() else super().__iter__()
        return iterator

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self._loops.close(error)
        self._loops.raise_original(error)


class _Iterator(OwnedIterator):
    """An iterator that raises the original errors of the pipeline, and reports which items the loop has received."""

    def __init__(self, dataset: PipelineDataset, loops: Loops) -> None:
        self._loops = loops
        super().__init__(dataset)

    def __next__(self) -> Any:
        self._loops.expected = id(self)
        try:
            item = super().__next__()
        except StopIteration:
            self._loops.received(self, is_end=True)
            raise
        except tf.errors.OpError as error:
            self._loops.raise_original(error)
            raise
        finally:
            self._loops.expected = None
        self._loops.received(self)
        return item

    @property
    def _type_spec(self) -> Any:
        self._loops.forget(self)  # called by a tf.function, which does not report the items that it receives
        return super()._type_spec

    def __del__(self) -> None:
        self._loops.left(self)


class Loops:
    """The loops of TensorFlow over a pipeline, one after another. They run on threads of TensorFlow.

    Args:
        pipeline: The pipeline.
        errors_end_it: Whether an error ends a loop normally. The caller must then check :attr:`error`.

    Attributes:
        error: The error of the last loop, or ``None``.
        expected: The id of the iterator that waits for an item. If a loop begins now, it belongs to this iterator.
    """

    def __init__(self, pipeline: Iterable[Any], errors_end_it: bool = False) -> None:
        self.error: BaseException | None = None
        self.expected: int | None = None
        self._errors_end_it = errors_end_it
        self._pipeline, self._number, self._lock = pipeline, 0, threading.Lock()
        self._items: Iterator[Any] = iter(())
        self._held: list[Any] = []  # the first item, until the first loop begins
        self._is_ahead = False  # whether first() has begun a loop over the pipeline, before the first loop of TensorFlow
        # The id of the iterator of the running loop, or None if the iterator does not report received items.
        self._receiver: int | None = None
        self._taken = deque[Any]()  # positions of the items that TensorFlow has read in advance
        self._position: Any = None  # position of the last received item

    def length(self) -> int | None:
        """Return the number of items in a loop, or ``None`` if unknown."""
        try:
            return len(self._pipeline)  # type: ignore[arg-type]  # which not every iterable has
        except TypeError:
            return None

    @property
    def has_begun(self) -> bool:
        """Whether TensorFlow has begun a loop."""
        return self._number > 0

    def first(self) -> Any:
        """Return the first item. The first loop also begins with this item."""
        self._begin()
        self._is_ahead = True
        for item in self._items:
            self._held = [item]
            self._take()
            return item
        raise ValueError("to_dataset: the pipeline yields no item, so the types of the items are unknown; pass signature=")

    def begin(self) -> int:
        """Begin a loop, and return its number."""
        with self._lock:
            self._receiver, self.expected = self.expected, None
            try:
                if not self._is_ahead:
                    self._end()
                    self._begin()
            except BaseException as error:
                self.error = error
                raise
            self._is_ahead, self.error = False, None
            self._number += 1
            if self._receiver is None:
                self._tell(PipelineError(_NOT_TOLD))
            return self._number

    def _begin(self) -> None:
        self._items = iter(self._pipeline)
        self._held, self._taken = [], deque()
        self._tell(self._pipeline.position() if isinstance(self._pipeline, Positioned) else None)

    def _end(self) -> None:
        if (close := getattr(self._items, "close", None)) is not None:
            close()

    def _tell(self, position: Any) -> None:
        """Set the state of the pipeline to the state at ``position``."""
        self._position = position
        if isinstance(self._pipeline, Positioned):
            self._pipeline.received(position)

    def _take(self) -> None:
        if isinstance(self._pipeline, Positioned):
            self._taken.append(self._pipeline.position())

    def received(self, receiver: _Iterator, is_end: bool = False) -> None:
        """Note that the loop of an iterator has received the next item, or has ended."""
        if self._receiver == id(receiver):
            with contextlib.suppress(IndexError):  # the pipeline has no positions
                self._tell(self._taken.popleft())
            if is_end:
                self._tell(None)

    def raise_original(self, error: BaseException | None) -> None:
        """Raise the original error of the pipeline instead of the error of TensorFlow."""
        if isinstance(error, tf.errors.OpError) and self.error is not None:
            raise self.error from None

    def forget(self, receiver: _Iterator) -> None:
        """Note that an iterator will not report which items it has received."""
        if self._receiver == id(receiver):
            self._receiver = None
            self._tell(PipelineError(_NOT_TOLD))

    def left(self, receiver: _Iterator) -> None:
        """Note that an iterator was deleted. If its loop has not ended, skip the remaining items of the epoch."""
        if self._receiver == id(receiver):
            self._receiver = None
            if isinstance(self._pipeline, Pipeline) and self._position is not None:
                self._pipeline.received(self._position, is_left=True)

    def close(self, error: BaseException | None) -> None:
        """End a running loop, unless TensorFlow is reading an item. After an error, the state stays at the position of the loop."""
        if self._number and self._lock.acquire(blocking=False):
            try:
                self._end()
                self._number += 1
                if error is None:
                    self._tell(None)
            finally:
                self._lock.release()

    def arrays(self, number: int, spec: Any) -> list[Any]:
        """Return the arrays of the next item of loop ``number``. The first array is a bool: whether the loop continues."""
        with self._lock:
            try:
                if number != self._number and not self._errors_end_it:
                    raise PipelineError(
                        "to_dataset: another loop over the dataset has begun, or its with block has ended; a pipeline supports only one "
                        "loop at a time"
                    )
                for item in self._held or self._items if number == self._number else ():
                    if not self._held:
                        self._take()
                    self._held = []
                    return [np.True_, *arrays_of(spec, item, "item")]
                self._take()  # the end
            except BaseException as error:
                self.error = error
                if not self._errors_end_it:
                    raise
            return [np.False_, *[np.empty(0, dtype.as_numpy_dtype) for dtype in dtypes_of(spec)]]

"""Hand-over to TensorFlow, which brings its own installation: ``pip install tensorflow``, or ``tensorflow-cpu``."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Iterable, Iterator
from typing import Any, Self

import numpy as np

try:
    import tensorflow as tf
except ImportError as error:
    from highway.errors import ConfigError

    raise ConfigError("highway.adapters.tensorflow needs tensorflow: pip install tensorflow, or tensorflow-cpu") from error
from tensorflow.python.data.ops.iterator_ops import OwnedIterator

from highway.errors import PipelineError

HELD = 4  # items at most that TensorFlow has taken, and the loop has not got
ENDLESS = 2**62  # items of a dataset that is ended by what comes in
NARROW = {np.dtype(np.int64): np.int32, np.dtype(np.float64): np.float32}  # as highway.engine.batch has Python's own numbers


def to_dataset(pipeline: Iterable[Any], signature: Any = None) -> PipelineDataset:
    """Return a ``tf.data.Dataset`` of what a pipeline yields: each loop over it is one over the pipeline, so an epoch.

    ::

        with Pipeline([...]) as pipeline:
            for images, labels in to_dataset(pipeline):
                ...

    Tuples and dicts stay what they are. A list of arrays of different length in a field becomes a ``RaggedTensor``. Batches in aligned
    memory, which highway's are, become tensors without a copy; others are copied once.

    One loop at a time: where a second one begins, the first gets an error. A loop that is left early loses the up to four items that
    TensorFlow holds then, and ``pipeline.state_dict()`` counts these as taken.

    Args:
        pipeline: A :class:`~highway.Pipeline`, a :class:`~highway.Connection`, or any iterable of arrays, tuples or dicts.
        signature: A ``tf.TensorSpec`` or ``tf.RaggedTensorSpec`` for each field, in a tuple or dict as the items are. ``None``: as the
            first item is, which is waited for here and comes first in the first loop. If its arrays all have one length, they are batches,
            of which the others may have another length.

    Raises:
        ValueError: there is no first item to see the signature in.
        TypeError: a field is of a type that tensors do not have.
        Exception: what a stage raised.
    """
    return dataset_of(Loops(pipeline), signature)


def dataset_of(loops: Loops, signature: Any = None) -> PipelineDataset:
    """Return the dataset of some loops; :func:`to_dataset` says how."""
    spec = signature_of(loops.first()) if signature is None else signature
    alive = weakref.proxy(loops)  # TensorFlow keeps the functions for ever, and the dataset keeps the loops

    def begin(_: Any) -> Any:
        return tf.numpy_function(lambda: np.int64(alive.begin()), [], tf.int64)

    def take(number: Any) -> Any:
        return tuple(tf.numpy_function(lambda number: alive.arrays(int(number), spec), [number], [tf.bool, *_dtypes(spec)]))

    items = tf.data.Dataset.range(1).map(begin).flat_map(lambda number: tf.data.Dataset.range(ENDLESS).map(lambda _: take(number)))
    items = items.take_while(lambda goes_on, *_: goes_on)
    # One call at a time: TensorFlow would otherwise choose a number, and so how many items it holds.
    items = items.map(lambda _, *tensors: _assembled(spec, iter(tensors)), num_parallel_calls=1)
    return PipelineDataset(items.prefetch(2), loops)


class PipelineDataset(tf.data.Dataset):
    """What :func:`to_dataset` returns.

    TensorFlow tells of an error in the pipeline in words alone. A loop over the dataset itself raises the original one; around ``fit``, or
    a loop over what ``map`` and the like have made of the dataset, a ``with`` block does::

        with to_dataset(pipeline) as dataset:
            model.fit(dataset.map(augment))

    Attributes:
        error: What the pipeline has raised, or ``None``.
    """

    def __init__(self, dataset: Any, loops: Loops) -> None:
        self._dataset, self._loops = dataset, loops
        super().__init__(dataset._variant_tensor)

    @property
    def error(self) -> BaseException | None:
        """What the pipeline has raised, or ``None``."""
        return self._loops.error

    @property
    def element_spec(self) -> Any:
        """What its elements are, as a ``tf.TensorSpec`` or ``tf.RaggedTensorSpec`` for each field."""
        return self._dataset.element_spec

    def _inputs(self) -> list[Any]:
        return [self._dataset]

    def __iter__(self) -> Iterator[Any]:
        iterator: Iterator[Any] = _Iterator(self) if tf.executing_eagerly() else super().__iter__()
        return iterator

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, tf.errors.OpError) and self.error is not None:
            raise self.error from None


class _Iterator(OwnedIterator):
    """An iterator that raises what the pipeline has raised, where others say it in words."""

    def __init__(self, dataset: PipelineDataset) -> None:
        super().__init__(dataset)
        self._pipeline_dataset = dataset

    def __next__(self) -> Any:
        with self._pipeline_dataset:
            return super().__next__()


class Loops:
    """The loops over a pipeline that TensorFlow makes on its threads, one after the other.

    Args:
        pipeline: What is looped over.
        errors_end_it: Whether an error is no error for TensorFlow, but the end; who takes the items then asks for it.

    Attributes:
        error: What the pipeline has raised in the last loop.
    """

    def __init__(self, pipeline: Iterable[Any], errors_end_it: bool = False) -> None:
        self.error: BaseException | None = None
        self._errors_end_it = errors_end_it
        self._pipeline, self._number, self._lock = pipeline, 0, threading.Lock()
        self._items: Iterator[Any] = iter(())
        self._held: list[Any] = []  # the first item, until the first loop begins
        self._is_ahead = False  # whether the first loop over the pipeline has begun before that of TensorFlow

    def first(self) -> Any:
        """Return the first item, which the first loop yields all the same."""
        self._items, self._is_ahead = iter(self._pipeline), True
        for item in self._items:
            self._held = [item]
            return item
        raise ValueError("to_dataset: the pipeline yields nothing, so that no item says what they are; give signature=")

    def begin(self) -> int:
        """Begin a loop, and return its number."""
        with self._lock:
            try:
                if not self._is_ahead:
                    if (close := getattr(self._items, "close", None)) is not None:
                        close()
                    self._items, self._held = iter(self._pipeline), []
            except BaseException as error:
                self.error = error
                raise
            self._is_ahead, self.error = False, None
            self._number += 1
            return self._number

    def arrays(self, number: int, spec: Any) -> list[Any]:
        """Return whether a loop goes on, and the arrays of its next item, of which TensorFlow copies those that are not aligned."""
        with self._lock:
            try:
                if number != self._number:
                    raise PipelineError("to_dataset: another loop over the dataset has begun; a pipeline has one at a time")
                for item in self._held or self._items:
                    self._held = []
                    return [np.True_, *_arrays(spec, item, "item")]
            except BaseException as error:
                self.error = error
                if not self._errors_end_it:
                    raise
            return [np.False_, *[np.empty(0, dtype.as_numpy_dtype) for dtype in _dtypes(spec)]]


def signature_of(item: Any) -> Any:
    """Return what ``to_dataset(signature=...)`` takes, as an item is.

    Raises:
        TypeError: a field is of a type that tensors do not have.
    """
    item = tuple(item) if isinstance(item, list) else item  # the item's own list is one of fields
    lengths = {len(value) if isinstance(value, list) else np.shape(value)[:1] for value in _fields(item)}
    lengths = {(length,) if isinstance(length, int) else length for length in lengths}
    return _spec(item, "item", is_batch=len(lengths) == 1 and () not in lengths)


def _fields(item: Any) -> Iterator[Any]:
    if isinstance(item, (dict, tuple)):
        for value in item.values() if isinstance(item, dict) else item:
            yield from _fields(value)
    else:
        yield item


def _spec(value: Any, place: str, is_batch: bool) -> Any:
    if isinstance(value, dict):
        return {name: _spec(part, f"{place}[{name!r}]", is_batch) for name, part in value.items()}
    if isinstance(value, tuple):
        return tuple(_spec(part, f"{place}[{number}]", is_batch) for number, part in enumerate(value))
    if _is_ragged(value):
        rows = _array(value[0], place)
        return tf.RaggedTensorSpec([None, None, *rows.shape[1:]], _dtype(rows, place), ragged_rank=1)
    array = _array(value, place)
    return tf.TensorSpec([None, *array.shape[1:]] if is_batch else array.shape, _dtype(array, place))


def _is_ragged(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and np.ndim(value[0]) > 0


def _dtypes(spec: Any) -> list[Any]:
    """Return the types of the tensors that items are handed over in: for a ragged one its values, and where each row begins."""
    return [
        dtype for leaf in _fields(spec) for dtype in ([leaf.dtype, tf.int64] if isinstance(leaf, tf.RaggedTensorSpec) else [leaf.dtype])
    ]


def _assembled(spec: Any, tensors: Iterator[Any]) -> Any:
    """Return what an item was, of its tensors."""
    if isinstance(spec, dict):
        return {name: _assembled(part, tensors) for name, part in spec.items()}
    if isinstance(spec, tuple):
        return tuple(_assembled(part, tensors) for part in spec)
    tensor = next(tensors)
    if isinstance(spec, tf.RaggedTensorSpec):
        offsets = next(tensors)
        tensor.set_shape([None, *spec.shape[2:]])
        offsets.set_shape([None])
        return tf.RaggedTensor.from_row_splits(tensor, offsets, validate=False)
    tensor.set_shape(spec.shape)
    return tensor


def _arrays(spec: Any, value: Any, place: str) -> list[np.ndarray]:
    """Return the arrays of an item, in the order of :func:`_dtypes`.

    Raises:
        ValueError: it is not as its signature says.
    """
    if isinstance(spec, (dict, tuple)):
        names = list(spec) if isinstance(spec, dict) else list(range(len(spec)))
        expected: Any = dict if isinstance(spec, dict) else (tuple, list)
        if not isinstance(value, expected) or set(value if isinstance(value, dict) else range(len(value))) != set(names):
            what = f"fields {', '.join(map(repr, value))}" if isinstance(value, dict) else f"{type(value).__name__} of {np.size(value)}"
            raise ValueError(f"to_dataset: {place} has {what}; the signature has {', '.join(map(repr, names))}. {_WAY_OUT}")
        return [array for name in names for array in _arrays(spec[name], value[name], f"{place}[{name!r}]")]
    if not isinstance(spec, tf.RaggedTensorSpec):
        return [_checked(_array(value, place), spec.dtype, spec.shape, place)]
    rows = [_checked(_array(row, place), spec.dtype, spec.shape[1:], place) for row in value]
    values = np.concatenate(rows) if rows else np.empty([0, *spec.shape[2:]], spec.dtype.as_numpy_dtype)
    return [values, np.cumsum([0, *map(len, rows)], dtype=np.int64)]


_WAY_OUT = "Give to_dataset(signature=...) what all items have in common, or make them alike before"


def _checked(array: np.ndarray, dtype: Any, shape: Any, place: str) -> np.ndarray:
    if _dtype(array, place) != dtype or not shape.is_compatible_with(array.shape):
        raise ValueError(f"to_dataset: {place} is {array.dtype} {array.shape}; the signature has {dtype.name} {tuple(shape)}. {_WAY_OUT}")
    return array if array.dtype.isnative else array.astype(array.dtype.newbyteorder("="))


def _array(value: Any, place: str) -> np.ndarray:
    """Return a value as an array; Python's own numbers as int32 and float32, as in batches."""
    if isinstance(value, np.ndarray):
        return value
    array = np.asarray(value)
    narrow = NARROW.get(array.dtype) if not hasattr(value, "__array__") else None
    if narrow is None:
        return array
    if array.dtype.kind == "i" and not np.array_equal(array.astype(narrow), array):
        raise ValueError(f"to_dataset: {place} is {value!r}, which int32 has no room for; make it an array, such as np.int64(value)")
    return array.astype(narrow)


def _dtype(array: np.ndarray, place: str) -> Any:
    try:
        return tf.string if array.dtype.kind in "USO" else tf.as_dtype(array.dtype)
    except TypeError as error:
        error.add_note(f"to_dataset: {place} is an array of {array.dtype}, which tensors cannot be; convert it, or leave it out")
        raise

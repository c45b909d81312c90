"""Convert items to tensors of TensorFlow. A signature describes the tensors."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import tensorflow as tf

from highway.engine.batch import rebuild

# highway.engine.batch converts Python numbers to the same dtypes.
NARROW = {np.dtype(np.int64): np.int32, np.dtype(np.float64): np.float32}


def signature_of(item: Any) -> Any:
    """Return the argument ``signature`` of ``to_dataset`` that describes an item.

    Raises:
        TypeError: a field has a type that tensors do not support.
        ValueError: a Python integer does not fit into int32.
    """
    item = tuple(item) if isinstance(item, list) else item  # if the item itself is a list, its elements are the fields
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
        return rebuild(value, [_spec(part, f"{place}[{number}]", is_batch) for number, part in enumerate(value)])
    if _is_ragged(value):
        rows = _array(value[0], place)
        return tf.RaggedTensorSpec([None, None, *rows.shape[1:]], _dtype(rows, place), ragged_rank=1)
    array = _array(value, place)
    return tf.TensorSpec([None, *array.shape[1:]] if is_batch else array.shape, _dtype(array, place))


def _is_ragged(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and np.ndim(value[0]) > 0


def dtypes_of(spec: Any) -> list[Any]:
    """Return the dtypes of the tensors of ``spec``. A ragged tensor has two dtypes, for its values and for its row splits."""
    return [
        dtype for leaf in _fields(spec) for dtype in ([leaf.dtype, tf.int64] if isinstance(leaf, tf.RaggedTensorSpec) else [leaf.dtype])
    ]


def assembled(spec: Any, tensors: Iterator[Any]) -> Any:
    """Return an item with the structure of ``spec`` and the given tensors."""
    if isinstance(spec, dict):
        return {name: assembled(part, tensors) for name, part in spec.items()}
    if isinstance(spec, tuple):
        return rebuild(spec, [assembled(part, tensors) for part in spec])
    tensor = next(tensors)
    if isinstance(spec, tf.RaggedTensorSpec):
        offsets = next(tensors)
        tensor.set_shape([None, *spec.shape[2:]])
        offsets.set_shape([None])
        return tf.RaggedTensor.from_row_splits(tensor, offsets, validate=False)
    tensor.set_shape(spec.shape)
    return tensor


def arrays_of(spec: Any, value: Any, place: str) -> list[np.ndarray]:
    """Return the arrays of an item, in the order of :func:`dtypes_of`.

    Raises:
        TypeError: a field has a type that tensors do not support.
        ValueError: the item does not match the signature, or a Python integer does not fit into int32.
    """
    if isinstance(spec, (dict, tuple)):
        names = list(spec) if isinstance(spec, dict) else list(range(len(spec)))
        expected: Any = dict if isinstance(spec, dict) else (tuple, list)
        if not isinstance(value, expected) or set(value if isinstance(value, dict) else range(len(value))) != set(names):
            what = f"fields {', '.join(map(repr, value))}" if isinstance(value, dict) else f"{type(value).__name__} of {np.size(value)}"
            raise ValueError(f"to_dataset: {place} has {what}, but the signature has {', '.join(map(repr, names))}. {_WAY_OUT}")
        return [array for name in names for array in arrays_of(spec[name], value[name], f"{place}[{name!r}]")]
    if not isinstance(spec, tf.RaggedTensorSpec):
        return [_checked(_array(value, place), spec.dtype, spec.shape, place)]
    rows = [_checked(_array(row, place), spec.dtype, spec.shape[1:], place) for row in value]
    values = np.concatenate(rows) if rows else np.empty([0, *spec.shape[2:]], spec.dtype.as_numpy_dtype)
    return [values, np.cumsum([0, *map(len, rows)], dtype=np.int64)]


_WAY_OUT = "Pass a signature that fits all items, to_dataset(signature=...), or give all items the same fields, types and shapes"


def _checked(array: np.ndarray, dtype: Any, shape: Any, place: str) -> np.ndarray:
    if _dtype(array, place) != dtype or not shape.is_compatible_with(array.shape):
        raise ValueError(
            f"to_dataset: {place} is {array.dtype} {array.shape}, but the signature has {dtype.name} {tuple(shape)}. {_WAY_OUT}"
        )
    return array if array.dtype.isnative else array.astype(array.dtype.newbyteorder("="))


def _array(value: Any, place: str) -> np.ndarray:
    """Return a value as an array. Python numbers become int32 and float32, as in batches."""
    if isinstance(value, np.ndarray):
        return value
    array = np.asarray(value)
    narrow = NARROW.get(array.dtype) if not hasattr(value, "__array__") else None
    if narrow is None:
        return array
    if array.dtype.kind == "i" and not np.array_equal(array.astype(narrow), array):
        raise ValueError(f"to_dataset: {place} is {value!r}, which does not fit into int32; make it an array, such as np.int64(value)")
    return array.astype(narrow)


def _dtype(array: np.ndarray, place: str) -> Any:
    try:
        return tf.string if array.dtype.kind in "USO" else tf.as_dtype(array.dtype)
    except TypeError as error:
        error.add_note(
            f"to_dataset: {place} is an array of {array.dtype}, a dtype that tensors do not support; convert it, or remove it with Select"
        )
        raise

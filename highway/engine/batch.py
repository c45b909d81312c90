"""Functions for items. An item is a sample or a batch: a tuple or dict of numpy arrays.

In a *batch*, the first axis of each field is the batch axis. A *sample* has no batch axis. A field is addressed by its name (in a dict) or
by its index (in a tuple or list). Negative indexes count from the end. Any other value, such as an array, counts as an item with one field,
``0``. A *tree* is a field that has fields itself: a dict or tuple.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import attrgetter, methodcaller
from typing import Any, Final

import numpy as np

from highway.process.aligned import aligned

MOST_MORE: Final = 32  # extra items that can wait in a channel if items are small, so that threads switch less often
_SOME_MORE: Final = 6  # extra items that can wait in a channel if items have a medium size
_SMALL, _SMALLISH = 1 << 12, 1 << 18  # maximum bytes of a small item, and of an item of medium size


Field = str | int
Item = Any  # by convention tuple[np.ndarray, ...] | dict[str, np.ndarray]; within a process, any object can be an item


def names(item: Item) -> tuple[Field, ...]:
    """Return the names of an item's fields: the keys of a dict, or the indexes ``0, 1, ...``."""
    if isinstance(item, dict):
        return tuple(item)
    return tuple(range(len(item))) if isinstance(item, (tuple, list)) else (0,)


def fields(item: Item) -> tuple[Any, ...]:
    """Return the values of an item's fields, in the order of :func:`names`."""
    if isinstance(item, dict):
        return tuple(item.values())
    return tuple(item) if isinstance(item, (tuple, list)) else (item,)


def get(item: Item, field: Field) -> Any:
    """Return one field.

    Raises:
        KeyError: the field does not exist. The message lists the fields.
    """
    _check(item, field)
    values: Any = item
    return values[field] if isinstance(item, (dict, tuple, list)) else item


def replace(item: Item, values: Mapping[Field, Any]) -> Item:
    """Return a copy of ``item`` in which ``values`` replace the values of some fields. ``item`` is not changed.

    Raises:
        KeyError: ``values`` names a field that ``item`` does not have.
    """
    for field in values:
        _check(item, field)
    if isinstance(item, dict):
        return {**item, **values}
    changed = list(fields(item))
    for field, value in values.items():
        changed[field] = value  # type: ignore[index]  # an index, as checked above
    return rebuild(item, changed)


def rebuild(item: Item, values: Sequence[Any]) -> Item:
    """Return an item with new ``values`` and the form of ``item``: a dict with the same keys, a tuple, a list or a bare value."""
    if isinstance(item, dict):
        return dict(zip(item, values, strict=True))
    if isinstance(item, list):
        return list(values)
    if isinstance(item, tuple):
        return type(item)(*values) if hasattr(item, "_fields") else tuple(values)
    return values[0]


def extended(item: Item, values: Sequence[Any], more: Mapping[Field, Any], what: str) -> Item:
    """Return an item as :func:`rebuild` does, and add the fields in ``more``.

    In a dict, the new field for a key ``name`` of ``more`` is called ``<name>_<what>``. In a tuple or list, the new fields come last.

    Raises:
        ValueError: the item already has a field with the name of a new field.
    """
    if isinstance(item, dict):
        named = {f"{name}_{what}": value for name, value in more.items()}
        if taken := named.keys() & item.keys():
            raise ValueError(f"a field {min(taken)!r} already exists; rename it with Rename")
        return {**dict(zip(item, values, strict=True)), **named}
    together = [*values, *more.values()]
    return together if isinstance(item, list) else tuple(together)


def collate(samples: Sequence[Item], as_lists: bool = False) -> Item:
    """Stack samples into a batch. Each field gets a new first axis of length ``len(samples)``, in memory aligned to 64 bytes.

    Python numbers and lists of numbers become int32 or float32. A field that is a dict, tuple or named tuple keeps its type, and its values
    are stacked.

    Args:
        samples: At least one sample.
        as_lists: Whether each field of the batch is a list of the samples' values instead of an array.

    Raises:
        ValueError: there are no samples; the samples differ in type or fields; the shape or dtype of a field differs between samples; a
            number does not fit into int32; or a text or byte string ends with a zero, which arrays drop. The message names the field.
    """
    known, values = columns(samples)
    return rebuild(samples[0], values if as_lists else list(map(stack, known, values)))


def columns(samples: Sequence[Item]) -> tuple[tuple[Field, ...], list[list[Any]]]:
    """Return the names of the samples' fields, and for each field the list of its values. Raises the errors of :func:`collate`."""
    if not samples:
        raise ValueError("collate: no samples")
    first, known = samples[0], names(samples[0])
    form, values = _form_and_values(first)
    if len(set(map(type, samples))) > 1 or len(set(map(form, samples))) > 1:
        position = next(n for n, sample in enumerate(samples) if names(sample) != known or type(sample) is not type(first))
        raise ValueError(
            f"collate: sample {position} is a {_kind(samples[position])}, but sample 0 is a {_kind(first)}; all samples of a batch must "
            "have the same type and fields"
        )
    return known, [list(samples)] if values is None else list(map(list, zip(*map(values, samples), strict=True)))


def split(batch: Item) -> list[Item]:
    """Return the samples of a batch, as views.

    Raises:
        ValueError: the first axes of the fields have different lengths, or a field has no axis.
    """
    rows = [split(value) if is_tree(value) else value for value in fields(batch)]
    lengths = {name: _length(value) for name, value in zip(names(batch), rows, strict=True)}
    if len(set(lengths.values())) != 1 or None in lengths.values():
        raise ValueError(f"split: the fields must share a batch axis, but their lengths are {lengths}")
    return [rebuild(batch, row) for row in zip(*rows, strict=True)]


def length(item: Item) -> int | None:
    """Return the length of the first axis, if it is the same in all fields (as in a batch); else ``None``."""
    lengths = {_length(value) for value in fields(item)}
    return lengths.pop() if len(lengths) == 1 else None


def nbytes(item: Item) -> int:
    """Return the bytes of the arrays, lists of arrays and byte strings in ``item``. Other values count 0."""
    values = fields(item)
    return sum([value.nbytes for value in values]) if set(map(type, values)) == _ARRAYS else weighed(item)[0]


def weighed(item: Item) -> tuple[int, int]:
    """Return :func:`nbytes` of an item, and how many extra items of this size can wait in a channel (0 if the item is large).

    For the number of extra items, a view counts as the whole array that it is part of. If the item holds an object other than numbers,
    texts, bytes and arrays, its size is unknown, and no extra items can wait. The same applies to an array whose memory belongs to an
    object that is not an array.
    """
    total, besides, known, shape = 0, 0, True, type(item)
    for value in item.values() if shape is dict else item if shape is tuple else fields(item):
        kind = type(value)
        if kind is _ARRAY:
            size, base = value.nbytes, value.base
            total += size
            if base is not None:
                if type(base) is _ARRAY:
                    besides += base.nbytes - size
                else:
                    known = False
            if value.dtype.hasobject:
                known = False
        elif kind in _NUMBERS:
            pass
        elif kind is str:
            besides += len(value)
        elif isinstance(value, (bytes, bytearray)):
            total += len(value)
        else:
            known = False
            if isinstance(value, (np.ndarray, memoryview)):
                total += value.nbytes if isinstance(value, np.ndarray) else len(value)
            elif isinstance(value, _TREES) or (isinstance(value, list) and value and isinstance(value[0], np.ndarray)):
                total += nbytes(value)
    if not known:
        return total, 0
    kept = total + besides
    return total, MOST_MORE if kept <= _SMALL else _SOME_MORE if kept <= _SMALLISH else 0


def _check(item: Item, field: Field) -> None:
    known = names(item)
    if field not in known and not (isinstance(field, int) and isinstance(item, (tuple, list)) and -len(known) <= field < 0):
        raise KeyError(f"no field {field!r}; the item has {', '.join(map(repr, known)) or 'no fields'}")


def stack(name: Field, values: list[Any], is_part: bool = False) -> Any:
    """Stack the values of a field into an array with a new first axis, or into a tree of such arrays. Raises the errors of :func:`collate`.

    Args:
        name: Name of the field.
        values: One value per sample.
        is_part: Whether the field is part of a tree.
    """
    if isinstance(values[0], _TREES):
        return _stacked_tree(name, values)
    kind = type(values[0]) if len(set(map(type, values))) == 1 else None
    if kind in (int, float):
        numbers = np.asarray(values)
        if numbers.dtype.kind == ("i" if kind is int else "f") and _fits(numbers):
            batch = aligned(numbers.shape, _NARROW[numbers.dtype])
            batch[:] = numbers
            return batch
    arrays = values if kind is np.ndarray else [value if type(value) is np.ndarray else array_of(name, value) for value in values]
    shapes, dtypes = set(map(_SHAPE, arrays)), set(map(_DTYPE, arrays))
    if len(shapes) > 1:
        way_out = "crop, pad or resize to one shape before batching"
        if not is_part and () not in shapes and len({shape[1:] for shape in shapes}) == 1:
            way_out += f", or, if samples have different numbers of rows, pass ragged='pad' and add {name!r} to its fields"
        raise ValueError(f"collate: field {name!r} has shapes {sorted(shapes)}; {way_out}")
    if len(dtypes) > 1 and any(d.kind not in "USO" for d in dtypes):
        raise ValueError(f"collate: field {name!r} has dtypes {sorted(map(str, dtypes))}; convert to one dtype before batching")
    return stacked(arrays)


def stacked(arrays: Sequence[np.ndarray]) -> np.ndarray:
    """Stack arrays of one shape and compatible dtypes along a new first axis, in memory aligned to 64 bytes."""
    shape, dtype = arrays[0].shape, np.result_type(*set(map(_DTYPE, arrays)))
    batch = aligned((len(arrays), *shape), dtype)
    if shape:
        np.concatenate(arrays, out=batch.reshape(len(arrays) * shape[0], *shape[1:]))
    elif dtype.kind in "OV":  # an assignment would unpack objects such as lists into rows
        np.stack(arrays, out=batch)
    else:
        batch[:] = arrays
    return batch


_TREES: Final = (dict, tuple)
_ARRAY: Final = np.ndarray
_ARRAYS = {np.ndarray}
_NUMBERS = frozenset([int, float, bool, type(None), *(kind for kind in np.sctypeDict.values() if issubclass(kind, (np.number, np.bool)))])
_SHAPE, _DTYPE, _VALUES = attrgetter("shape"), attrgetter("dtype"), methodcaller("values")
_ZERO = ("\0", b"\0")
_NARROW = {np.dtype(np.int64): np.dtype(np.int32), np.dtype(np.float64): np.dtype(np.float32)}


def array_of(name: Field, value: Any) -> np.ndarray:
    """Convert a field's value to an array, with the dtype that the field has in batches. Raises the errors of :func:`collate`."""
    if isinstance(value, (str, bytes)) and value[-1:] in _ZERO:
        shown = f"{value[-20:]!r} at the end" if len(value) > 20 else repr(value)
        raise ValueError(
            f"collate: field {name!r} contains {shown}, but arrays of {type(value).__name__} drop zeros at the end; make lists: "
            "Batch(batch_size, as_list=True), after a reader without batch_size"
        )
    has_dtype = hasattr(value, "__array__") or hasattr(value, "__dlpack__")  # arrays, and tensors of frameworks
    array: np.ndarray[Any, Any] = np.asarray(value) if hasattr(value, "__array__") or not has_dtype else np.from_dlpack(value)
    if has_dtype:
        return array
    if not _fits(array) or _was_large(value, array):
        shown = str(value) if len(str(value)) <= 60 else "a number"
        raise ValueError(
            f"collate: field {name!r} contains {shown}, which does not fit into int32; make it an array, such as np.int64(value)"
        )
    return array.astype(_NARROW[array.dtype]) if array.dtype in _NARROW else array


def _was_large(value: Any, array: np.ndarray) -> bool:
    """Return whether integers are too large for one 64-bit dtype. If so, NumPy has converted them to objects or inexact floats."""
    may_be = array.dtype == object or (array.dtype == np.float64 and array.max(initial=0.0) >= 2**63)
    return may_be and all(type(number) is int for number in np.asarray(value, object).flat)


def _stacked_tree(name: Field, values: list[Any]) -> Any:
    try:
        known, parts = columns(values)
    except ValueError as error:
        raise ValueError(
            f"collate: field {name!r} differs from sample to sample: {str(error).removeprefix('collate: ')}. Give its values the same form "
            "in all samples, remove the field, or make lists: Batch(batch_size, as_list=True)"
        ) from None
    return rebuild(values[0], [stack(f"{name}.{part}", column, True) for part, column in zip(known, parts, strict=True)])


def is_tree(value: Any) -> bool:
    """Return whether a field of a batch is a tree: a dict, or a tuple that consists of arrays, lists and trees."""
    return isinstance(value, dict) or (
        isinstance(value, tuple) and all(isinstance(part, (np.ndarray, list)) or is_tree(part) for part in value)
    )


def how_to_flatten(name: Field, kind: type) -> str:
    """Return advice on how to flatten a field, for errors of code that accepts no trees. If ``kind`` is not a tree, the advice is empty."""
    is_tree = issubclass(kind, _TREES)
    return f"; flatten it in an earlier map: a field '{name}.KEY' for each KEY in it" if is_tree else ""


def _fits(array: np.ndarray) -> bool:
    """Return whether the numbers in the array fit into int32. Only integers are checked."""
    return array.dtype.kind != "i" or not array.size or bool(-(2**31) <= array.min() <= array.max() < 2**31)


def _form_and_values(sample: Item) -> tuple[Callable[[Item], Any], Callable[[Item], Iterable[Any]] | None]:
    """Return two functions. The first returns the form of a sample, to compare samples. The second returns the values of a sample.

    For a bare value, the second function is ``None``.
    """
    if isinstance(sample, dict):
        return tuple, _VALUES
    return (len, iter) if isinstance(sample, (tuple, list)) else (type, None)


def _length(value: Any) -> int | None:
    if is_tree(value):
        return length(value)
    if isinstance(value, np.ndarray):
        return value.shape[0] if value.ndim else None
    return len(value) if isinstance(value, (list, tuple, bytes)) else None


def _kind(item: Item) -> str:
    kind = type(item).__name__
    return f"{kind} with fields {names(item)}" if isinstance(item, (dict, tuple, list)) else kind

"""Ragged fields: fields whose first axis differs between samples. A batch holds a ragged field padded, concatenated or as a list."""

# No annotations from __future__: components in other modules inherit these hints, and would evaluate strings in the wrong module.
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import pairwise
from operator import attrgetter
from typing import Any, Literal

import numpy as np

from highway.engine.batch import Field, Item, array_of, collate, columns, extended, get, names, rebuild, split, stack
from highway.parameters.checks import require
from highway.parameters.ranges import Count
from highway.process.aligned import aligned, aligned_copy

Fill = float | dict[str | int, float]
_NDIM, _DTYPE = attrgetter("ndim"), attrgetter("dtype")
_BEHIND = {"pad": "count", "offsets": "offsets"}  # by form: suffix of the second field


@dataclass
class RaggedOptions:
    """How to batch ragged fields: fields whose first axis differs between samples, such as boxes. Base class of components.

    Args:
        ragged: The form of ragged fields in a batch. ``"pad"``: an array ``(B, N, ...)``, where N is the largest size in the batch, rounded
            up. A second field, int32 ``(B,)``, holds the size of each sample. ``"offsets"``: the concatenated values, ``(sum, ...)``. A
            second field, int32 ``(B + 1,)``, holds the start of each sample and the end of the last sample. ``"list"``: a list of the
            samples' arrays. ``None``: no field is ragged.
        fields: Names or indexes of the ragged fields. ``None``: all fields that have an axis. In this case, N is not rounded up for a
            field that has the same size in all samples of a batch.
        multiple: N is rounded up to a multiple of this number, so that batches have few different shapes.
        pad_to: A fixed N: one number for all fields, or a dict by field. A larger sample is an error.
        fill: The padding value: one number for all fields, or a dict by field.

    The second field of a field ``boxes`` is called ``boxes_count`` or ``boxes_offsets``. In a tuple, all second fields come last.
    """

    ragged: Literal["pad", "list", "offsets"] | None = None
    fields: list[str | int] | None = None
    multiple: Count = 8
    pad_to: Count | dict[str | int, Count] | None = None
    fill: Fill = 0.0

    def __post_init__(self) -> None:
        for name in ("fields", "multiple", "pad_to", "fill"):
            how = ["pad", "list", "offsets"] if name == "fields" else ["pad"]
            given = getattr(self, name) != getattr(type(self), name)
            require(not given or self.ragged in how, self, name, f"no value unless ragged={' or '.join(map(repr, how))}")

    def collated(self, samples: Sequence[Item], size: int | None = None) -> Item:
        """Return a batch of samples.

        If ``size`` is given, it is N for all padded fields, in place of ``multiple`` and ``pad_to``.

        Raises:
            ValueError: the samples do not fit together; a sample is larger than ``pad_to`` or ``size``; ``pad_to`` or ``fill`` names a
                field that is not padded; a dtype cannot hold its padding value; or a padded or concatenated field contains Python objects.
                The message names the field.
            KeyError: ``fields`` names a field that does not exist.
        """
        if self.ragged is None:
            return collate(samples)
        values, behind = list[Any](), dict[Field, np.ndarray]()
        for name, column in zip(*columns(samples), strict=True):
            if not self.has(name, samples[0]):
                values.append(stack(name, column))
                continue
            arrays = ragged_arrays(name, column)
            counts = np.array([len(array) for array in arrays])
            if self.ragged == "pad":
                values.append(_padded(name, arrays, counts, self._size(name, counts, size), self.fill))
                behind[name] = aligned_copy(counts.astype(np.int32))
            elif self.ragged == "offsets":
                values.append(_joined(name, arrays, counts))
                behind[name] = aligned_copy(np.append(0, np.cumsum(counts)).astype(np.int32))
            else:
                values.append(arrays)
        if self.ragged == "pad":
            expect_named("pad_to", self.pad_to, behind)
            expect_named("fill", self.fill, behind)
        return extended(samples[0], values, behind, _BEHIND[self.ragged]) if behind else rebuild(samples[0], values)

    def has(self, name: Field, sample: Item) -> bool:
        """Return whether a field is ragged. ``sample`` is any of the samples."""
        if self.fields is None:
            return not isinstance(value := get(sample, name), (dict, tuple)) and array_of(name, value).ndim > 0
        for field in self.fields:
            get(sample, field)  # raises if there is no such field
        return name in self.fields or (isinstance(name, int) and name - len(names(sample)) in self.fields)

    def _size(self, name: Field, counts: np.ndarray, size: int | None) -> int:
        """Return N, the length to which a field is padded."""
        if size is None:
            size = self.pad_to if isinstance(self.pad_to, int) else (self.pad_to or {}).get(name)
        longest = int(counts.max())
        if size is None:
            agree = self.fields is None and longest == counts.min()
            return longest if agree else max(-(-longest // self.multiple), 1) * self.multiple
        if longest > size:
            where = f"in sample {int(counts.argmax())}"
            raise ValueError(
                f"collate: field {name!r} has length {longest} {where}, more than pad_to={size}; truncate the field, or raise pad_to"
            )
        return size


def taken_apart(batch: Item, ragged: Literal["pad", "offsets"], fields: Sequence[Field] | None = None) -> list[Item]:
    """Undo :meth:`RaggedOptions.collated`: return the samples of a batch as views, without padding, counts and offsets.

    Args:
        batch: A dict, tuple or list.
        ragged: The form of the ragged fields.
        fields: Names of the ragged fields of a dict, or indexes (from 0) of the ragged fields of a tuple or list. ``None``: all fields of
            a dict that have a second field with counts or offsets.

    Raises:
        KeyError: a field, or the second field with its counts or offsets, does not exist.
        ValueError: no field is ragged; an index is negative; the counts or offsets do not fit the values; or the fields have different
            numbers of samples.
    """
    known, what = names(batch), _BEHIND[ragged]
    beside: dict[Field, Field]
    if isinstance(batch, dict):
        beside = {field: f"{field}_{what}" for field in known if f"{field}_{what}" in batch}
        beside = beside if fields is None else {field: f"{field}_{what}" for field in fields}
    else:
        positions = sorted(field for field in fields or () if isinstance(field, int) and field >= 0)
        beside = {field: len(known) - len(positions) + place for place, field in enumerate(positions)}
    if len(beside) != len(fields or beside) or not beside:
        raise ValueError(
            f"split: cannot tell which fields are ragged: the batch has {known}, and fields={fields}. In a dict, a ragged field needs a "
            f"second field with the name ..._{what}. In a tuple, select the ragged fields by their positions, from 0: fields=[1]"
        )
    parts = {name: _PARTS[ragged](name, get(batch, name), np.asarray(get(batch, beside[name]))) for name in beside}
    samples = split({name: parts.get(name, get(batch, name)) for name in known if name not in beside.values()})
    return samples if isinstance(batch, dict) else [type(batch)(sample.values()) for sample in samples]


def _without_padding(name: Field, values: Any, counts: np.ndarray) -> list[np.ndarray]:
    shape = np.shape(values)
    if len(shape) < 2 or counts.shape != shape[:1] or counts.min(initial=0) < 0 or counts.max(initial=0) > shape[1]:
        raise ValueError(f"split: the counts of field {name!r}, {counts.tolist()}, do not match its array {shape}")
    return [row[:count] for row, count in zip(values, counts.tolist(), strict=True)]


def _between_offsets(name: Field, values: Any, offsets: np.ndarray) -> list[np.ndarray]:
    if offsets.ndim != 1 or not len(offsets) or offsets[0] != 0 or offsets[-1] != len(values) or (np.diff(offsets) < 0).any():
        raise ValueError(f"split: the offsets of field {name!r}, {offsets.tolist()}, do not match its {len(values)} rows")
    return [values[begin:end] for begin, end in pairwise(offsets.tolist())]


_PARTS = {"pad": _without_padding, "offsets": _between_offsets}


def ragged_arrays(name: Field, column: Sequence[Any]) -> list[np.ndarray]:
    """Return the values of a ragged field as arrays. The arrays are allowed to differ only in the length of the first axis.

    Raises:
        ValueError: the arrays differ in an axis other than the first, or in dtype (except strings); an array has no axis; or a value is an
            empty list, which has no dtype.
    """
    arrays = list(column)
    if set(map(type, arrays)) != {np.ndarray}:
        for place, value in enumerate(column):
            if isinstance(value, (list, tuple)) and not value:
                way_out = "make it an array such as np.zeros((0, 4), np.float32)"
                raise ValueError(f"collate: field {name!r} is an empty list in sample {place}, which has no dtype; {way_out}")
        arrays = [array_of(name, value) for value in column]
    axes, dtypes = set(map(_NDIM, arrays)), set(map(_DTYPE, arrays))
    if 0 in axes:
        flat = [array.ndim for array in arrays].index(0)
        raise ValueError(f"collate: field {name!r} has no axis in sample {flat} that could be ragged; remove it from fields")
    shapes = {()} if axes == {1} else {array.shape[1:] for array in arrays}
    if len(shapes) > 1:
        shown = ", ".join(sorted(str(("*", *shape)).replace("'", "") for shape in shapes))
        raise ValueError(f"collate: field {name!r} has shapes {shown}; all axes except the first must be equal")
    if len(dtypes) > 1 and any(dtype.kind not in "US" for dtype in dtypes):
        raise ValueError(f"collate: field {name!r} has dtypes {sorted(map(str, dtypes))}; convert to one dtype before batching")
    return arrays


def _padded(name: Field, arrays: Sequence[np.ndarray], counts: np.ndarray, size: int, fill: Fill) -> np.ndarray:
    dtype = _expect_no_objects(name, np.result_type(*arrays))
    batch = aligned((len(arrays), size, *arrays[0].shape[1:]), dtype)
    value = fill_value(name, dtype, fill)
    for row, array, count in zip(batch, arrays, counts.tolist(), strict=True):
        row[:count] = array
        row[count:] = value
    return batch


def expect_named(parameter: str, given: Any, fields: Collection[Field]) -> None:
    """Raise a ValueError if a parameter is a dict with a key that is not in ``fields``."""
    for name in given if isinstance(given, dict) else ():
        if name not in fields:
            there = ", ".join(map(repr, fields)) or "none"
            raise ValueError(f"collate: {parameter}={given} is for a field {name!r}, but the padded fields are {there}; correct the name")


def fill_value(name: Field, dtype: np.dtype[Any], fill: Fill) -> Any:
    """Return the padding value of a field.

    Raises:
        ValueError: the dtype of the field cannot hold the padding value.
    """
    value = fill.get(name, 0.0) if isinstance(fill, dict) else fill
    if dtype.kind in "US":
        return "" if dtype.kind == "U" else b""
    if dtype.kind not in "iub":
        return value
    lowest, highest = (0, 1) if dtype.kind == "b" else (np.iinfo(dtype).min, np.iinfo(dtype).max)
    if not (float(value).is_integer() and lowest <= value <= highest):
        raise ValueError(f"collate: field {name!r} has dtype {dtype}, which cannot hold fill={value:g}")
    return int(value)


def _joined(name: Field, arrays: Sequence[np.ndarray], counts: np.ndarray) -> np.ndarray:
    dtype = _expect_no_objects(name, np.result_type(*arrays))
    if (total := int(counts.sum())) >= 2**31:
        raise ValueError(
            f"collate: field {name!r} has {total:,} values in a batch, more than int32 offsets can count; make batches smaller"
        )
    values = aligned((total, *arrays[0].shape[1:]), dtype)
    np.concatenate(arrays, out=values)
    return values


def _expect_no_objects(name: Field, dtype: np.dtype[Any]) -> np.dtype[Any]:
    if dtype.hasobject:
        raise ValueError(f"collate: field {name!r} contains Python objects; pass ragged='list'")
    return dtype

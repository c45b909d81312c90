"""A finished cache: samples in a mapped file, and the index that says where each of their fields is."""

from __future__ import annotations

import mmap
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from highway.batch import Item, rebuild


@dataclass(frozen=True)
class FieldSpec:
    """What one field of every sample is: an array of a dtype and number of axes, or a ``str`` or ``bytes`` kept as uint8."""

    kind: Literal["array", "str", "bytes"]
    dtype: str
    ndim: int


@dataclass(frozen=True)
class Layout:
    """What all samples have in common.

    Args:
        form: What a sample is: a tuple, a dict, or one bare value.
        names: How its fields are addressed.
        fields: What they are.
    """

    form: Literal["tuple", "dict", "value"]
    names: list[str | int]
    fields: list[FieldSpec]

    def item(self, values: Sequence[Any]) -> Item:
        """Return a sample or batch of these fields."""
        return rebuild({"tuple": (), "dict": dict.fromkeys(self.names), "value": None}[self.form], values)


class CacheFile:
    """A finished cache. Arrays that come out are read-only views of the mapped file; they hold on to it as long as they live.

    Args:
        memory: The mapped file.
        layout: What the samples have in common.
        batch_size: Samples in the batches that it was made from.
        index: Arrays by name: ``offsets`` (samples, fields), ``shapes-I`` (samples, ndim) for each field, and the keys.
    """

    def __init__(self, memory: mmap.mmap, layout: Layout, batch_size: int, index: dict[str, np.ndarray]) -> None:
        self.layout, self.batch_size = layout, batch_size
        self._memory, self._keys, self._ends = memory, index["keys"], index["ends"]
        self._offsets = index["offsets"]
        self._shapes = [index[f"shapes-{number}"] for number in range(len(layout.fields))]
        self._fixed = [tuple(shapes[0].tolist()) if (shapes == shapes[0]).all() else None for shapes in self._shapes]

    def __len__(self) -> int:
        """Samples."""
        return len(self._offsets)

    @property
    def nbytes(self) -> int:
        """Bytes of the file."""
        return len(self._memory)

    def values(self, field: int, rows: Sequence[int]) -> list[Any]:
        """Return one field of some samples."""
        spec, fixed, shapes = self.layout.fields[field], self._fixed[field], self._shapes[field]
        dtype = np.dtype(spec.dtype)
        views = [
            np.ndarray(fixed if fixed is not None else tuple(shapes[row].tolist()), dtype, self._memory, offset)
            for row, offset in zip(rows, self._offsets[rows, field].tolist(), strict=True)
        ]
        if spec.kind == "array":
            return views
        return [view.tobytes().decode() if spec.kind == "str" else view.tobytes() for view in views]

    def keys(self, rows: Sequence[int]) -> tuple[str, ...]:
        """Return the keys of some samples."""
        spans = [(int(self._ends[row - 1]) if row else 0, int(self._ends[row])) for row in rows]
        return tuple(key for begin, end in spans for key in self._keys[begin:end].tobytes().decode().split("\0") if key)

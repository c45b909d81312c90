"""Convert the fields of samples to columns. :mod:`highway.datasets.tables.values` converts columns to fields.

=======================================  =======================================================================================
field                                    column
=======================================  =======================================================================================
``bytes``; ``str``                       binary; string
a NumPy number or boolean                the same dtype
a Python number or boolean               int64, float64, bool
``np.datetime64``, ``np.timedelta64``    date, timestamp or duration of the same unit; datetimes in seconds raise an error
an array of one dimension                list of the same dtype
an array of several dimensions           ``arrow.variable_shape_tensor``: data and shape
a dict or list that JSON can represent   ``arrow.json``
=======================================  =======================================================================================
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from highway.datasets.tables.backend import pa
from highway.datasets.tables.values import EXTENSION, JSON, TENSOR
from highway.datasets.writing import NUMBERS, kind_of
from highway.errors import ItemError

_LARGEST = 1 << 30  # maximum number of bytes of a value, because the values of a block must have less than 2 GiB in total
_TIMES = {f"{kind}8[{unit}]" for kind, units in {"M": ("D", "ms", "us", "ns"), "m": ("s", "ms", "us", "ns")}.items() for unit in units}
_WAY_OUT = "make it bytes, a str, a number, an array of numbers, or a dict or list that JSON can hold"


class Kind(NamedTuple):
    """The type of a field. All values of a field have the same type.

    Args:
        what: ``"bytes"``, ``"str"``, ``"json"``, ``"number"`` or ``"array"``.
        dtype: Type of numbers and arrays.
        ndim: Number of axes of arrays; 0 for numbers.
    """

    what: str
    dtype: str = ""
    ndim: int = 0

    def __str__(self) -> str:
        words = {"number": f"one {self.dtype}", "array": f"an array of {self.dtype} of dimension {self.ndim}", "json": "a dict or list"}
        return words.get(self.what, self.what)


def cell(value: Any) -> tuple[Kind, Any, int]:
    """Convert a value. Return its kind, the value to write, and the approximate number of bytes of the written value.

    Raises:
        ItemError: no column can contain the value.
    """
    if (kind := kind_of(value)) is None:
        raise ItemError(f"a {type(value).__name__}; {_WAY_OUT}")
    return _CELLS[kind](value)


def _json_cell(value: Any) -> tuple[Kind, Any, int]:
    if not _is_json(value):
        raise ItemError(f"a {type(value).__name__} that JSON would change; convert it to arrays in separate fields")
    text = json.dumps(value)
    return _of_size(Kind("json"), text, len(text))


def _array_cell(value: Any) -> tuple[Kind, Any, int]:
    array = _array(value)
    return _of_size(Kind("array" if array.ndim else "number", str(array.dtype), array.ndim), array, array.nbytes)


def _of_size(kind: Kind, value: Any, size: int) -> tuple[Kind, Any, int]:
    if size > _LARGEST:
        raise ItemError(f"{size >> 20} MiB, but a value can have at most {_LARGEST >> 20} MiB; split it into several samples")
    return kind, value, size


def _is_json(value: Any) -> bool:
    if isinstance(value, dict):
        return all(type(name) is str and _is_json(part) for name, part in value.items())
    return all(map(_is_json, value)) if isinstance(value, list) else type(value) in (str, int, float, bool, type(None))


def _utf8(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise ItemError(f"a text that UTF-8 cannot encode: {error}; write it as bytes") from error


def _array(value: Any) -> np.ndarray:
    if isinstance(value, int) and not -(2**63) <= value < 2**63:
        raise ItemError(f"{value}, which does not fit into int64; make it a str")
    array: np.ndarray = np.asarray(value, NUMBERS.get(type(value)))
    dtype = array.dtype.newbyteorder("=")
    is_time = dtype.str[1:] in _TIMES and array.ndim == 0 and not np.isnat(array)  # Parquet has no datetimes in seconds
    if not (is_time or (dtype.kind in "biuf" and dtype.itemsize <= 8)):
        shown = f"an array of {array.dtype}, shape {array.shape}" if array.ndim else repr(array[()])
        raise ItemError(f"{shown}; {_WAY_OUT}")
    return array.astype(dtype)  # a copy, because the user can change the array before it is written


def column_type(name: str, kind: Kind) -> pa.Field:
    """Return the name and type of the column for values of a kind."""
    if kind.what in _TEXTS:
        return pa.field(name, _TEXTS[kind.what](), metadata={EXTENSION: JSON} if kind.what == "json" else None)
    element = pa.from_numpy_dtype(np.dtype(kind.dtype))
    if kind.ndim < 2:
        return pa.field(name, pa.list_(element) if kind.ndim else element)
    parts = [pa.field("data", pa.list_(element)), pa.field("shape", pa.list_(pa.int32(), kind.ndim))]
    return pa.field(name, pa.struct(parts), metadata={EXTENSION: TENSOR, b"ARROW:extension:metadata": b"{}"})


def column_of(values: Sequence[Any], field: pa.Field, kind: Kind) -> pa.Array:
    """Return a column. The values are from :func:`cell`, and all of one kind."""
    if kind.what in _TEXTS:
        return pa.array(values, field.type)
    if kind.ndim == 0:
        return pa.array(np.stack(values), field.type)
    offsets = np.zeros(len(values) + 1, np.int32)
    np.cumsum([value.size for value in values], out=offsets[1:])
    data = pa.ListArray.from_arrays(pa.array(offsets), pa.array(np.concatenate([value.reshape(-1) for value in values])))
    if kind.ndim == 1:
        return data
    shapes = pa.array(np.array([value.shape for value in values], np.int32).reshape(-1))
    parts = [data, pa.FixedSizeListArray.from_arrays(shapes, kind.ndim)]
    return pa.StructArray.from_arrays(parts, fields=list(field.type))


_CELLS: dict[str, Callable[[Any], tuple[Kind, Any, int]]] = {
    "bytes": lambda value: _of_size(Kind("bytes"), bytes(value), len(value)),
    "str": lambda value: _of_size(Kind("str"), str(value), len(_utf8(value))),
    "number": _array_cell,
    "array": _array_cell,
    "json": _json_cell,
}
_TEXTS: dict[str, Callable[[], pa.DataType]] = {"bytes": lambda: pa.binary(), "str": lambda: pa.string(), "json": lambda: pa.string()}

"""Convert the fields of a sample to arrays, which a cache stores, and record the original types."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any, Literal, cast

import numpy as np

from highway.datasets.cache_files.layout import FieldSpec, Kind
from highway.datasets.writing import NUMBERS
from highway.engine.batch import Field, Item, fields, how_to_flatten, names
from highway.errors import ItemError

Arrays = Callable[[Item], list[tuple[FieldSpec, np.ndarray]]]

FORMS: dict[Literal["tuple", "list", "dict"], type] = {"tuple": tuple, "list": list, "dict": dict}
_KEPT = "a cache keeps arrays, numbers, str, bytes, and lists and dicts of plain numbers and texts"


def arrays_of(sample: Item) -> list[tuple[FieldSpec, np.ndarray]]:
    """Convert a sample for a cache whose samples are read as rows of batches. Return the type and the array of each field.

    Raises:
        ItemError: a field is not an array, number, ``str`` or ``bytes``, or it cannot be stored.
    """
    return [_as_row(name, value) for name, value in zip(names(sample), fields(sample), strict=True)]


def arrays_as_they_came(sample: Item) -> list[tuple[FieldSpec, np.ndarray]]:
    """Convert a sample for a cache whose samples are read with their original types. Return the type and the array of each field.

    Raises:
        ItemError: the sample has no fields.
        ItemError: a field could not be read back with its original type. The message names the field.
    """
    kind = type(sample)
    for form in FORMS.values():
        if isinstance(sample, form) and kind is not form:
            raise ItemError(
                f"Cache: the sample is a {kind.__name__}, but would be read back as a {form.__name__}; convert it to a {form.__name__} "
                f"before the cache"
            )
    if not names(sample):
        raise ItemError(f"Cache: the sample is an empty {kind.__name__}; drop it before the cache (a map can return DROP)")
    return [_as_it_came(name, value) for name, value in zip(names(sample), fields(sample), strict=True)]


def _as_row(name: Field, value: Any) -> tuple[FieldSpec, np.ndarray]:
    if isinstance(value, bytes):
        return _as_bytes("bytes", value)
    try:
        if isinstance(value, str):
            return _as_bytes("str", value.encode())
        values = _contiguous(value)
    except ValueError as error:  # a list of lists of different lengths, or half of a surrogate pair
        raise ItemError(f"Cache: field {name!r}, a {type(value).__name__}, cannot be stored: {error}") from error
    if values.dtype.kind not in "biufc":
        found = f"{value}, which does not fit into 64 bits" if isinstance(value, int) else f"a {type(value).__name__}"
        raise ItemError(f"Cache: field {name!r} is {found}; expected an array of numbers, a number, a str or bytes")
    return FieldSpec("array", values.dtype.str, values.ndim), values


def _as_it_came(name: Field, value: Any) -> tuple[FieldSpec, np.ndarray]:
    kind = type(value)
    if not isinstance(name, (str, int)):
        raise ItemError(f"Cache: a field is named {name!r}; expected a str or a whole number")
    if kind in (str, bytes):
        return _as_row(name, value)
    if kind in NUMBERS:
        return _as_number(name, value)
    if value is None or kind in (list, dict):
        return _as_bytes("json", _json(name, value))
    if kind not in (np.ndarray, np.memmap) and (not isinstance(value, np.generic) or isinstance(value, (str, bytes))):
        raise ItemError(
            f"Cache: field {name!r} is a {kind.__name__}, whose type the cache cannot restore: {_KEPT}; convert it before the "
            f"cache, such as with np.asarray(value), or remove the field{how_to_flatten(name, kind)}"
        )
    values: np.ndarray = _contiguous(value)
    if values.dtype.kind not in "biufc":
        raise ItemError(f"Cache: field {name!r} is an array of {values.dtype}; expected an array of numbers")
    return FieldSpec("scalar" if isinstance(value, np.generic) else "array", values.dtype.str, values.ndim), values


def _as_number(name: Field, value: Any) -> tuple[FieldSpec, np.ndarray]:
    try:
        values: np.ndarray = np.asarray(value, NUMBERS[type(value)])
    except OverflowError:
        raise ItemError(f"Cache: field {name!r} contains {value}, which does not fit into int64; make it a str") from None
    return FieldSpec(cast(Kind, type(value).__name__), values.dtype.str, 0), values


def _as_bytes(kind: Kind, data: bytes) -> tuple[FieldSpec, np.ndarray]:
    return FieldSpec(kind, np.dtype(np.uint8).str, 1), np.frombuffer(data, np.uint8)


def _json(name: Field, value: Any) -> bytes:
    for other in _not_plain(value):
        way_out = f"{'' if isinstance(value, dict) else 'make it an array, or '}put its content into separate fields"
        way_out += how_to_flatten(name, type(value))
        raise ItemError(f"Cache: field {name!r} is a {type(value).__name__} that contains {other}: {_KEPT}; {way_out}")
    return json.dumps(value).encode()


def _not_plain(value: Any) -> Iterator[str]:
    """Yield a description of each part of a value that would change in JSON."""
    if type(value) is list:
        for part in value:
            yield from _not_plain(part)
    elif type(value) is dict:
        for name, part in value.items():
            yield from () if type(name) is str else (f"the name {name!r}",)
            yield from _not_plain(part)
    elif value is not None and type(value) not in (bool, int, float, str):
        yield f"a {type(value).__name__}"


def _contiguous(value: Any) -> np.ndarray[Any, Any]:
    return np.ascontiguousarray(value) if np.ndim(value) else np.asarray(value)

"""Append samples to the datasets of an HDF5 file. Each dataset gets one row per sample."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from highway.datasets.hdf5.backend import h5py
from highway.datasets.hdf5.output import Call
from highway.datasets.npy.writer import RowsWriter, alike, as_array
from highway.datasets.writing import kind_of
from highway.errors import ItemError

_CHUNK = 1 << 20  # approximate bytes of a chunk; also limits the values that wait to be written
_ROWS = 1024  # maximum number of rows of a chunk
_KINDS = "biufcSV"  # kinds of NumPy dtypes that HDF5 supports


class _Column:
    """A dataset to which rows are appended.

    Args:
        file: The h5py file.
        call: A function that calls h5py; see :func:`~highway.datasets.hdf5.output.h5py_file`.
        name: The name of the field.
        row: A function that returns a copy of a value, in the form that h5py writes. It raises ItemError if the first value had another
            type or shape.
        dtype: Dtype of the dataset in h5py.
        shape: Shape of a row.
        rows: Number of rows per chunk.
        compression: The compression filter of HDF5, or ``None``.
    """

    def __init__(
        self,
        file: Any,
        call: Call[Any],
        name: str,
        row: Callable[[Any], Any],
        dtype: np.dtype[Any],
        shape: tuple[int, ...] = (),
        rows: int = _ROWS,
        compression: str | None = None,
    ) -> None:
        if name.startswith("/") or {"", ".", ".."} & set(name.split("/")):
            raise ItemError(f"field {name!r} cannot be the name of a dataset; rename it")
        self._call, self._row, self._shape, self._dtype, self._rows = call, row, shape, dtype, rows
        self._waiting: list[Any] = []
        self._bytes = 0
        most, chunks = (None, *(length or None for length in shape)), (rows, *(max(1, length) for length in shape))
        try:
            self._dataset = call(
                lambda: file.create_dataset(name, (0, *shape), dtype, maxshape=most, chunks=chunks, compression=compression)
            )
        except (TypeError, ValueError) as error:
            raise ItemError(f"field {name!r} cannot be a dataset: {error}") from error

    def add(self, value: Any) -> None:
        """Append a value. Raises ItemError if the first value had another type or shape."""
        row = self._row(value)
        self._waiting.append(row)
        self._bytes += len(row) if isinstance(row, str) else row.nbytes
        if len(self._waiting) >= self._rows or self._bytes >= 4 * _CHUNK:
            self.flush()

    def flush(self) -> None:
        """Write the waiting values."""
        waiting, self._waiting, self._bytes = self._waiting, [], 0
        if not waiting:
            return
        rows = np.empty((len(waiting), *self._shape), self._dtype)
        for place, row in enumerate(waiting):  # one by one, because numpy would merge rows of equal length into one array
            rows[place] = row

        def append() -> None:
            begin = len(self._dataset)
            self._dataset.resize(begin + len(rows), axis=0)
            space = self._dataset.id.get_space()
            space.select_hyperslab((begin, *(0 for _ in self._shape)), rows.shape)
            self._dataset.id.write(h5py.h5s.create_simple(rows.shape), space, rows)

        self._call(append)


def _text(name: str, value: Any) -> str:
    """Check a string. It must not contain a zero character, because HDF5 ends a string at the first zero."""
    if not isinstance(value, str) or "\0" in value:
        what = "a text with a zero character" if isinstance(value, str) else f"a {type(value).__name__}"
        raise ItemError(f"field {name!r} holds {what}; expected a str, as in the first sample")
    try:
        value.encode()  # raise the error here, not after many samples
    except UnicodeEncodeError as error:
        raise ItemError(f"field {name!r} contains a text that UTF-8 cannot encode: {error}; write it as bytes") from error
    return str(value)


def _bytes(name: str, value: Any) -> np.ndarray:
    if kind_of(value) != "bytes":
        raise ItemError(f"field {name!r} holds a {type(value).__name__}; expected bytes, as in the first sample")
    return np.frombuffer(bytes(value), np.uint8)


def columns_of(file: Any, compression: str | None, call: Call[Any]) -> RowsWriter[_Column]:
    """Return an object that appends samples to an h5py file. The object uses ``call`` to call h5py."""

    def column(name: str, value: Any) -> _Column:
        kind = kind_of(value)
        if kind == "str":
            return _Column(file, call, name, partial(_text, name), h5py.string_dtype())
        if kind == "bytes":  # not compressed, because HDF5 would compress only the references to the bytes
            return _Column(file, call, name, partial(_bytes, name), h5py.vlen_dtype(np.uint8))
        first = as_array(name, value)
        shape, dtype = first.shape, first.dtype
        if dtype.kind not in _KINDS:
            raise ItemError(f"field {name!r} is {dtype}, which HDF5 does not support; convert it to numbers, or to a str")
        rows = max(1, min(_ROWS, _CHUNK // max(first.nbytes, 1)))
        return _Column(file, call, name, lambda value: alike(name, value, shape, dtype).copy(), dtype, shape, rows, compression)

    return RowsWriter(column)

"""Write samples into ``.npy`` and ``.npz`` files. A sample becomes a row of each array."""

from __future__ import annotations

import os
import shutil
import tempfile
import zipfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import IO, Any, Generic, Protocol, TypeVar

import numpy as np

from highway.datasets.npy.rows import KEYS
from highway.datasets.writing import NUMBERS, writing
from highway.engine.batch import how_to_flatten
from highway.errors import ItemError


class _Rows:
    """Collects the rows of an array, in a temporary file without a name."""

    def __init__(self, name: str, first: np.ndarray, folder: str) -> None:
        self._name, self._shape, self._dtype = name, first.shape, first.dtype
        self.file: IO[bytes] = tempfile.TemporaryFile(dir=folder)  # noqa: SIM115  # npz_writer() and npy_writer() close the file

    def add(self, value: Any) -> None:
        self.file.write(alike(self._name, value, self._shape, self._dtype).tobytes())  # tobytes() always returns C order

    def save(self, out: IO[bytes], count: int) -> None:
        header = {"descr": np.lib.format.dtype_to_descr(self._dtype), "fortran_order": False, "shape": (count, *self._shape)}
        np.lib.format.write_array_header_1_0(out, header)
        self.file.seek(0)
        shutil.copyfileobj(self.file, out, 1 << 20)


class _Texts:
    """Collects strings. At the end, when the longest string is known, they become an array."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._texts: list[str] = []

    def add(self, text: Any) -> None:
        if not isinstance(text, str) or text.endswith("\0"):
            what = "a text that ends in a zero character, which arrays drop" if isinstance(text, str) else f"a {type(text).__name__}"
            raise ItemError(f"field {self._name!r} holds {what}; expected a str, as in the first sample")
        self._texts.append(text)

    def save(self, out: IO[bytes], count: int) -> None:
        np.lib.format.write_array(out, np.array(self._texts, np.str_), allow_pickle=False)


class ColumnLike(Protocol):
    """Collects the values of one field."""

    def add(self, value: Any, /) -> None:
        """Append a value. Raises ItemError if the first value had another shape or dtype."""


C = TypeVar("C", bound=ColumnLike)


class RowsWriter(Generic[C]):
    """Writes samples into columns, one for each field. All samples must have the same fields; see :func:`npz_writer`.

    Args:
        column: A function that returns the column for a field. The arguments are the name and the first value of the field. The field
            ``__key__`` contains the keys.
    """

    def __init__(self, column: Callable[[str, Any], C]) -> None:
        self._column = column
        self.columns: dict[str, C] = {}
        self.samples = 0

    def add(self, key: str, sample: Mapping[str, Any]) -> None:
        """Append a sample.

        Raises:
            ItemError: the first sample had other fields, or a field had another shape or dtype.
            ItemError: the sample has no fields, or a field ``__key__``, or a value that no array can contain.
        """
        row = {KEYS: key, **sample}
        if not self.samples:
            if KEYS in sample or not sample:
                raise ItemError(f"the sample has {f'a field {KEYS!r}, where its key is kept' if sample else 'no fields'}")
            self.columns = {name: self._column(name, value) for name, value in row.items()}
        elif row.keys() != self.columns.keys():
            raise ItemError(
                f"the sample has {_listed(row)}, but the first sample has {_listed(self.columns)}; give all samples the same fields"
            )
        for name, column in self.columns.items():
            column.add(row[name])
        self.samples += 1


def _arrays_for(path: str, stack: ExitStack) -> RowsWriter[_Rows | _Texts]:
    def column(name: str, value: Any) -> _Rows | _Texts:
        if isinstance(value, str):
            return _Texts(name)
        rows = _Rows(name, as_array(name, value), os.path.dirname(path) or ".")
        stack.callback(rows.file.close)
        return rows

    return RowsWriter(column)


def _listed(names: Mapping[str, Any]) -> str:
    return ", ".join(name for name in names if name != KEYS)


def alike(name: str, value: Any, shape: tuple[int, ...], dtype: np.dtype[Any]) -> np.ndarray:
    """Return a value as an array of this shape and dtype.

    Raises:
        ItemError: the value is neither an array nor a number, or has another shape or dtype.
    """
    row = as_array(name, value)
    if (row.shape, row.dtype) != (shape, dtype):
        raise ItemError(
            f"field {name!r} is {row.dtype} {row.shape}, but {dtype} {shape} in the first sample; all rows of an array have the same "
            f"dtype and shape: crop, pad or convert the values before, or write a format that allows different shapes, such as .ten"
        )
    return row


def as_array(name: str, value: Any) -> np.ndarray:
    """Return a value as an array. Numbers become int64, float64 or bool.

    Raises:
        ItemError: the value is neither an array nor a number.
    """
    if (dtype := NUMBERS.get(type(value))) is not None:
        return np.asarray(value, dtype)
    if isinstance(value, (np.ndarray, np.generic)) and not isinstance(value, (str, bytes)) and not value.dtype.hasobject:
        return np.asarray(value)
    raise ItemError(
        f"field {name!r} is a {type(value).__name__}, which cannot be the row of an array; make it an array or a number, remove it, or "
        f"write a format that supports it, such as shards{how_to_flatten(name, type(value))}"
    )


@contextmanager
def npz_writer(path: str) -> Iterator[RowsWriter[_Rows | _Texts]]:
    """Write samples into an uncompressed ``.npz`` file. The file gets its final name only when it is complete.

    All samples must have the same fields. Each field becomes an array with one row per sample. Numbers become int64, float64 or bool. A
    ``str`` takes as much space as the longest ``str`` in the same field. The array ``__key__`` contains the keys of the samples.
    """
    with writing(path, durable=True) as part, ExitStack() as stack:
        writer = _arrays_for(part, stack)
        yield writer
        with zipfile.ZipFile(part, "w", zipfile.ZIP_STORED) as archive:
            for name, column in writer.columns.items():
                member = zipfile.ZipInfo(f"{name}.npy")  # without a time, so that equal samples result in equal files
                with archive.open(member, "w", force_zip64=True) as out:
                    column.save(out, writer.samples)


@contextmanager
def npy_writer(path: str) -> Iterator[RowsWriter[_Rows | _Texts]]:
    """Write samples with one field into a ``.npy`` file, without their keys. The file gets its final name only when it is complete.

    Raises:
        ItemError: samples have no field, or several fields (at the end of the ``with`` block).
    """
    with writing(path, durable=True) as part, ExitStack() as stack:
        writer = _arrays_for(part, stack)
        yield writer
        columns = [column for name, column in writer.columns.items() if name != KEYS]
        if len(columns) != 1:
            raise ItemError(
                f"{path}: a .npy file contains one array, but samples have {_listed(writer.columns) or 'no fields'}; write a .npz file"
            )
        with open(part, "wb") as out:
            columns[0].save(out, writer.samples)

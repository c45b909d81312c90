"""Read the rows of an HDF5 dataset (an array in a file) by index. The method depends on the layout of the dataset:

=========================================  =============================================================================================
layout in the file                         reading
=========================================  =============================================================================================
contiguous rows of equal size              by position, like a ``.npy`` file, without h5py; many threads can read
chunks of several rows                     whole chunks; recent chunks are cached
large values of varying length (bytes)     by position (:mod:`highway.datasets.hdf5.heap`)
all other layouts                          one call of h5py per request
=========================================  =============================================================================================
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from highway.datasets.hdf5.backend import LOCK, h5py
from highway.datasets.hdf5.heap import HeapCheck, HeapRows, heap_rows
from highway.datasets.npy.rows import StoredRows
from highway.errors import DatasetError
from highway.stores.unchanging import FileState, UnchangingFile


class OtherFiles:
    """Checks the external files of a dataset.

    A virtual dataset, or a dataset with external storage, has values in other files. If values are missing there, HDF5 returns a fill value
    without an error.

    Args:
        dataset: The h5py dataset.
        path: The file that contains the dataset.
        name: Name of the dataset in messages.
        allowed: Whether external files are allowed.

    Raises:
        DatasetError: the dataset has external files that are not allowed, do not exist, or are too short.
    """

    def __init__(self, dataset: Any, path: str, name: str, allowed: bool) -> None:
        self._name, self.states = name, dict[str, FileState]()
        if not (dataset.is_virtual or dataset.external):
            return
        if not allowed:
            kind = "a virtual dataset" if dataset.is_virtual else "a dataset in external storage"
            raise DatasetError(
                f"{name}: the values of {kind} are in other files, which can be any files of this machine; if you trust this HDF5 file, "
                f"pass other_files=True, otherwise select other datasets by fields={{...}}"
            )
        folder = os.path.dirname(os.path.abspath(path))
        for file, offset, size in dataset.external or ():
            prefix = os.environ.get("HDF5_EXTFILE_PREFIX", "").replace("${ORIGIN}", folder)  # the same path as HDF5 uses
            self._add(os.path.abspath(os.path.join(prefix, os.fsdecode(file))), 0 if size == h5py.h5f.UNLIMITED else offset + size)
        for source in dataset.virtual_sources() if dataset.is_virtual else ():
            self._check_source(dataset, path, folder, source)

    def _check_source(self, dataset: Any, path: str, folder: str, source: Any) -> None:
        if "%" in source.file_name:
            raise DatasetError(
                f"{self._name}: the source {source.file_name!r} is a pattern of file names, which highway does not support; write the "
                f"virtual dataset again with the name of each source file"
            )
        place = path if source.file_name == "." else os.path.join(folder, source.file_name)
        if source.file_name != ".":
            self._add(place, 0)
        try:
            with h5py.File(place, "r", locking="best-effort") as file:
                shape = file[source.dset_name].shape
        except Exception as error:  # h5py raises many types of errors
            raise DatasetError(f"{self._name}: its source {source.dset_name!r} in {place!r} cannot be read: {error}") from error
        wanted = source.src_space
        if wanted.get_select_type() == h5py.h5s.SEL_ALL:
            fits = math.prod(shape) == source.vspace.get_select_npoints()
        else:
            ends = wanted.get_select_bounds()[1]
            fits = len(shape) == len(ends) and all(end < length for end, length in zip(ends, shape, strict=True))
        if not fits:
            raise DatasetError(
                f"{self._name}: the shape of its source {source.dset_name!r} in {place!r} is {shape}, which does not match this dataset"
            )

    def _add(self, place: str, size: int) -> None:
        try:
            self.states[place] = state = FileState.of(place)
        except FileNotFoundError:
            raise DatasetError(f"{self._name}: its values are in {place!r}, which does not exist; restore this file") from None
        if state.size < size:
            raise DatasetError(f"{self._name}: {place!r}, the file of its values, has {state.size} bytes; expected at least {size}")

    def check(self) -> None:
        """Raise DatasetError if one of the files has changed."""
        for place, state in self.states.items():
            if not os.path.exists(place) or FileState.of(place) != state:
                raise DatasetError(f"{self._name}: {place!r} has changed since it was first read; start the program again")


_LARGEST = 1 << 30  # maximum bytes of a row or chunk, because memory is allocated before reading
_MOST = 512  # maximum rows in one call of h5py, because calls with more rows take longer per row


class Chunks:
    """A cache of chunks. If the cache exceeds the limit, the oldest chunks are removed.

    Args:
        limit: Maximum number of bytes.
    """

    def __init__(self, limit: int) -> None:
        self._limit, self._bytes = limit, 0
        self._kept: dict[tuple[str, int], np.ndarray] = {}

    def get(self, name: str, number: int) -> np.ndarray | None:
        """Return a cached chunk of a dataset, or ``None``."""
        return self._kept.get((name, number))

    def put(self, name: str, number: int, rows: np.ndarray) -> None:
        """Add a chunk. Only one thread at a time can call this method."""
        self._kept[name, number] = rows
        self._bytes += rows.nbytes
        while self._bytes > self._limit and len(self._kept) > 1:
            self._bytes -= self._kept.pop(next(iter(self._kept))).nbytes


class Column:
    """Reads the rows of a dataset.

    Args:
        dataset: The h5py dataset.
        file: The file.
        name: Name of the dataset in messages.
        chunks: The cache for chunks.
        other_files: Whether values can be in external files; see :class:`OtherFiles`.

    Raises:
        DatasetError: the rows have an unsupported type, or are too large.
        DatasetError: values are in external files, but ``other_files`` is false.
    """

    def __init__(self, dataset: Any, file: UnchangingFile, name: str, chunks: Chunks, other_files: bool) -> None:
        self._dataset, self._file, self._name, self._chunks = dataset, file, name, chunks
        self.others = OtherFiles(dataset, file.path, name, other_files)
        self._shape, self._dtype = shape, dtype = dataset.shape, dataset.dtype  # stored, because h5py computes both on each access
        if not shape:
            raise DatasetError(
                f"{name}: the dataset is a single value; expected a dataset with rows: select other datasets by fields={{...}}"
            )
        self.length = int(shape[0])
        self._finish = _finish_of(name, dtype, len(shape))
        self.row_bytes = 0 if dtype.hasobject else math.prod(shape[1:]) * dtype.itemsize
        """Number of bytes of a row; 0 if rows differ in size."""
        self.chunk = int(dataset.chunks[0]) if dataset.chunks and not dtype.hasobject else 1
        """Number of rows in a chunk; 1 if the dataset has no chunks, or its rows differ in size."""
        if self.row_bytes * self.chunk > _LARGEST:
            raise DatasetError(
                f"{name}: its chunks of {self.chunk} rows have {self.row_bytes * self.chunk} bytes; expected at most {_LARGEST} bytes: "
                f"copy the dataset with smaller chunks, by h5repack or hdf5_writer"
            )
        self._check_heap = HeapCheck(dataset, file, name) if dtype.hasobject else None
        self._stored, self._heap = _stored_rows(dataset, file, name), heap_rows(dataset, file)

    def __call__(self, numbers: Sequence[int]) -> Sequence[Any]:
        """Return rows by their indexes, from 0."""
        if self._stored is not None:
            rows: Sequence[Any] = self._stored(numbers)  # type: ignore[assignment]  # an array
        elif self.chunk > 1:
            rows = self._from_chunks(np.asarray(numbers, np.int64))  # type: ignore[assignment]  # an array
        elif self._heap is not None:
            return self._from_heap(self._heap, np.asarray(numbers, np.int64))
        else:
            rows = self._by_h5py(np.asarray(numbers, np.int64))
        return rows if self._finish is None else [self._finish(row) for row in rows]

    def _from_chunks(self, numbers: np.ndarray) -> np.ndarray:
        rows = np.empty((len(numbers), *self._shape[1:]), self._dtype)
        chunk, within = np.divmod(numbers, self.chunk)
        for one in np.unique(chunk).tolist():
            places = chunk == one
            rows[places] = self._read_chunk(one)[within[places]]
        return rows

    def _read_chunk(self, number: int) -> np.ndarray:
        if (kept := self._chunks.get(self._name, number)) is not None:
            return kept
        with LOCK:
            # Check again: another thread might have read the chunk while this thread waited.
            if (kept := self._chunks.get(self._name, number)) is None:
                kept = self._read(slice(number * self.chunk, min((number + 1) * self.chunk, self.length)))
                self._chunks.put(self._name, number, kept)
            return kept

    def _from_heap(self, heap: HeapRows, numbers: np.ndarray) -> list[bytes]:
        rows = heap(numbers)
        left = [place for place, row in enumerate(rows) if row is None]
        found = dict(zip(left, map(_bytes, self._by_h5py(numbers[left])), strict=True))
        return [found[place] if row is None else row for place, row in enumerate(rows)]

    def _by_h5py(self, numbers: np.ndarray) -> list[Any]:
        wanted, places = np.unique(numbers, return_inverse=True)  # h5py requires increasing indexes
        if self._check_heap is not None:
            self._check_heap(wanted)
        rows: list[Any] = []
        for first in range(0, len(wanted), _MOST):
            some = wanted[first : first + _MOST]
            together = slice(int(some[0]), int(some[-1]) + 1) if some[-1] - some[0] == len(some) - 1 else some
            with LOCK:
                rows += list(self._read(together))
        return [rows[place] for place in places]

    def _read(self, selection: slice | np.ndarray) -> np.ndarray:
        try:
            rows: np.ndarray = self._dataset[selection]
        except Exception as error:  # h5py raises many types of errors for damaged files
            self._file.check()
            raise DatasetError(f"{self._name}: its rows cannot be read; the dataset is damaged or needs a filter: {error}") from error
        self._file.check()
        self.others.check()
        return rows


def _stored_rows(dataset: Any, file: UnchangingFile, name: str) -> StoredRows | None:
    """Return a reader of rows by byte offset. Return ``None`` if rows are not contiguous, or if h5py must convert them."""
    offset = dataset.id.get_offset()
    if offset is None or dataset.external or dataset.chunks or dataset.dtype.hasobject:
        return None
    if not dataset.id.get_type().equal(h5py.h5t.py_create(dataset.dtype, logical=True)):
        return None
    return StoredRows(file, name, offset, dataset.shape, dataset.dtype)


def _finish_of(name: str, dtype: np.dtype[Any], axes: int) -> Callable[[Any], Any] | None:
    """Return a function that converts a row from h5py; ``None`` if rows need no conversion."""
    if h5py.check_string_dtype(dtype) is not None:
        return _text if axes == 1 else _texts
    inner = h5py.check_vlen_dtype(dtype)
    if dtype.hasobject and (inner is None or axes > 1 or not isinstance(inner, np.dtype) or inner.hasobject):
        what = "references" if h5py.check_ref_dtype(dtype) is not None else "values of a type"
        raise DatasetError(f"{name}: the dataset contains {what} that highway does not support; select other datasets by fields={{...}}")
    if inner == np.uint8 or (dtype.kind == "V" and dtype.names is None and dtype.subdtype is None and axes == 1):
        return _bytes  # encoded images have this type
    return None


def _bytes(value: Any) -> bytes:
    return bytes(value.tobytes())


def _text(value: bytes) -> str:
    return value.decode()


def _texts(row: np.ndarray) -> np.ndarray:
    return np.array([value.decode() for value in row.ravel()], np.str_).reshape(row.shape)

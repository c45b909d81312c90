"""Bytes of varying length in an HDF5 file, read where they lie: by many threads at once, without h5py, and copied once.

A row of such a dataset is a reference: how many bytes it has, the address of a collection in the file, and the number of an object in it.

::

    reference   uint32 length, uint64 address of the collection, uint32 number of the object               all little-endian
    collection  "GCOL", a version and three zeros, uint64 size; then objects, the last of number 0 for what is left
    object      uint16 number, uint16 references, four zeros, uint64 size, the bytes, zeros up to a multiple of 8

https://support.hdfgroup.org/documentation/hdf5/latest/_f_m_t3.html ("Global Heap")
"""

from __future__ import annotations

import struct
from typing import Any

import numpy as np

from highway.datasets.file import UnchangingFile
from highway.datasets.hdf5.backend import LOCK, h5py
from highway.stores.file import FileRange, read_ranges

_LARGE = 1 << 12  # bytes of a row from which on it is worth it: smaller ones share collections with many, which h5py keeps
_MOST = 1 << 30  # bytes of a row: memory for it is taken before it is read
_HOPS = 32  # objects that are looked at to find one: a collection with several has 64 kB at most
_REFERENCE = np.dtype([("length", "<u4"), ("address", "<u8"), ("number", "<u4")])
_COLLECTION, _OBJECT = struct.Struct("<4sB3xQ"), struct.Struct("<H6xQ")


class HeapRows:
    """The rows of a dataset of uint8 of varying length.

    Args:
        dataset: That of h5py.
        file: The file.
    """

    def __init__(self, dataset: Any, file: UnchangingFile) -> None:
        self._dataset, self._file = dataset, file
        self._base: int = dataset.file.userblock_size
        self._chunk = int(dataset.chunks[0]) if dataset.chunks else len(dataset)
        self._chunks: dict[int, int | None] = {}

    def __call__(self, numbers: np.ndarray) -> list[bytes | None]:
        """Return rows by their numbers, from 0; ``None`` for those that are left to h5py: small ones, and what is not as it should be."""
        references = self._references(numbers)
        large = np.flatnonzero((references["length"] >= _LARGE) & (references["length"] <= _MOST)).tolist()
        rows: list[bytes | None] = [None] * len(numbers)
        length, address, number = (references[name][large].tolist() for name in ("length", "address", "number"))
        wanted = [place for place, at in enumerate(address) if self._is_within(at, _COLLECTION.size + _OBJECT.size + length[place])]
        starts = read_ranges([self._range(address[place], _COLLECTION.size + _OBJECT.size) for place in wanted])
        found = [self._find(address[place], start, number[place], length[place]) for place, start in zip(wanted, starts, strict=True)]
        there = [(large[place], self._range(at, length[place])) for place, at in zip(wanted, found, strict=True) if at]
        for (row, _), data in zip(there, read_ranges([data for _, data in there]), strict=True):
            rows[row] = data
        return rows

    def _range(self, address: int, size: int) -> FileRange:
        return FileRange(self._file, self._base + address, size)

    def _is_within(self, address: int, size: int) -> bool:
        return self._base + address + size <= self._file.state.size

    def _references(self, numbers: np.ndarray) -> np.ndarray:
        """Return the references of rows; zeros for rows that were never written."""
        chunks, within = (column.tolist() for column in np.divmod(numbers, self._chunk))
        found = np.zeros(len(numbers), _REFERENCE)
        begins = [self._begin(chunk) for chunk in chunks]
        there = [place for place, begin in enumerate(begins) if begin is not None]
        ranges = [FileRange(self._file, begins[place] + within[place] * _REFERENCE.itemsize, _REFERENCE.itemsize) for place in there]
        found[there] = np.frombuffer(b"".join(read_ranges(ranges)), _REFERENCE)
        return found

    def _begin(self, chunk: int) -> Any:
        """Return where the references of a chunk of rows begin in the file; ``None`` if it was never written."""
        if chunk not in self._chunks:
            one = self._dataset.id
            with LOCK:
                self._chunks[chunk] = (
                    one.get_chunk_info_by_coord((chunk * self._chunk,)).byte_offset if self._dataset.chunks else one.get_offset()
                )
        return self._chunks[chunk]

    def _find(self, address: int, start: bytes, number: int, length: int) -> int | None:
        """Return where an object's bytes are; ``None`` if it is not soon found. ``start`` is what its collection begins with."""
        magic, version, size = _COLLECTION.unpack_from(start)
        if magic != b"GCOL" or version != 1:
            return None
        at, header = address + _COLLECTION.size, start[_COLLECTION.size :]
        for _ in range(_HOPS):
            one, nbytes = _OBJECT.unpack(header)
            if one == number:
                return at + _OBJECT.size if nbytes == length else None
            at += _OBJECT.size + (nbytes + 7 & ~7)
            if one == 0 or at + _OBJECT.size + length > address + size or not self._is_within(at, _OBJECT.size + length):
                return None
            header = self._range(at, _OBJECT.size).read()
        return None


def heap_rows(dataset: Any, file: UnchangingFile) -> HeapRows | None:
    """Return what reads the rows of a dataset, if they are bytes of varying length whose references lie in the file as they are."""
    if h5py.check_vlen_dtype(dataset.dtype) != np.uint8 or dataset.ndim != 1:
        return None
    plist = dataset.id.get_create_plist()
    plain = plist.get_layout() in (h5py.h5d.CONTIGUOUS, h5py.h5d.CHUNKED) and not plist.get_nfilters() and not plist.get_external_count()
    usual = dataset.file.id.get_create_plist().get_sizes() == (8, 8) and dataset.id.get_type().get_super().equal(h5py.h5t.STD_U8LE)
    return HeapRows(dataset, file) if plain and usual else None

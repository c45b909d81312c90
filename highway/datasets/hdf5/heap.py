"""Read bytes of varying length in an HDF5 file by byte offset, without h5py. Many threads can read at the same time.

HDF5 stores such bytes outside the dataset, in collections of objects. A row of the dataset is a reference to an object, which contains the
bytes:

::

    reference   uint32 length, uint64 address of the collection in the file, uint32 number of the object   all little-endian
    collection  "GCOL", a version and three zeros, uint64 size; then objects; the last object has number 0 and is free space
    object      uint16 number, uint16 references, four zeros, uint64 size, the bytes, zeros up to a multiple of 8

https://support.hdfgroup.org/documentation/hdf5/latest/_f_m_t3.html ("Global Heap")
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from itertools import product
from typing import Any

import numpy as np

from highway.datasets.hdf5.backend import LOCK, h5py
from highway.errors import DatasetError
from highway.stores.file import read_ranges
from highway.stores.unchanging import FileRange, UnchangingFile

_LARGE = 1 << 12  # smaller rows are as fast with h5py, which caches collections
_MOST = 1 << 30  # maximum bytes of a row, because memory is allocated before reading
_HOPS = 32  # maximum number of objects to inspect in a collection; a collection with several objects has at most 64 kB
_REFERENCE = np.dtype([("length", "<u4"), ("address", "<u8"), ("number", "<u4")])
_ROWS = 1024  # number of rows to check together, if a dataset has no chunks
_WINDOW = 1 << 13  # number of bytes of a collection to read at first
_NO_ADDRESS = 2**64 - 1
_COLLECTION, _OBJECT = struct.Struct("<4sB3xQ"), struct.Struct("<H6xQ")


class HeapRows:
    """Reads rows that are bytes of varying length.

    Args:
        dataset: The h5py dataset.
        file: The file.
    """

    def __init__(self, dataset: Any, file: UnchangingFile) -> None:
        self._dataset, self._file = dataset, file
        self._base: int = dataset.file.userblock_size
        self._chunk = int(dataset.chunks[0]) if dataset.chunks else len(dataset)
        self._chunks: dict[int, int | None] = {}

    def __call__(self, numbers: np.ndarray) -> list[bytes | None]:
        """Return rows by index. A row is ``None`` if h5py must read this row, because it is small or stored in an unusual way."""
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
        """Return the references of rows. A row that was never written gets zeros."""
        chunks, within = (column.tolist() for column in np.divmod(numbers, self._chunk))
        found = np.zeros(len(numbers), _REFERENCE)
        begins = [self._begin(chunk) for chunk in chunks]
        there = [place for place, begin in enumerate(begins) if begin is not None]
        ranges = [FileRange(self._file, begins[place] + within[place] * _REFERENCE.itemsize, _REFERENCE.itemsize) for place in there]
        found[there] = np.frombuffer(b"".join(read_ranges(ranges)), _REFERENCE)
        return found

    def _begin(self, chunk: int) -> Any:
        """Return the byte offset of a chunk in the file, or ``None`` if the chunk was never written."""
        if chunk not in self._chunks:
            one = self._dataset.id
            with LOCK:
                self._chunks[chunk] = (
                    one.get_chunk_info_by_coord((chunk * self._chunk,)).byte_offset if self._dataset.chunks else one.get_offset()
                )
        return self._chunks[chunk]

    def _find(self, address: int, start: bytes, number: int, length: int) -> int | None:
        """Return the byte offset of an object's bytes. Return ``None`` if the object is not among the first :data:`_HOPS` objects.

        Args:
            address: The address of the collection.
            start: The first bytes of the collection.
            number: The object's number in the collection.
            length: The expected number of bytes of the object.
        """
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
    """Return a reader of the rows. Return ``None`` if rows are not bytes of varying length, or references are stored with filters.

    :class:`HeapCheck` must have accepted the dataset.
    """
    if h5py.check_vlen_dtype(dataset.dtype) != np.uint8 or dataset.ndim != 1 or dataset.id.get_create_plist().get_nfilters():
        return None
    return HeapRows(dataset, file) if dataset.id.get_type().get_super().equal(h5py.h5t.STD_U8LE) else None


class HeapCheck:
    """Checks the collections that contain the rows of a dataset, before h5py reads the rows.

    HDF5 reads all objects of a collection, one after another. If zeros have overwritten an object, HDF5 loops forever, and does not release
    h5py's lock.

    Args:
        dataset: The h5py dataset.
        file: The file.
        name: Name of the dataset in messages.

    Raises:
        DatasetError: the references of the dataset cannot be found.
    """

    def __init__(self, dataset: Any, file: UnchangingFile, name: str) -> None:
        self._dataset, self._file, self._name = dataset, file, name
        self._base: int = dataset.file.userblock_size
        self._plist = plist = dataset.id.get_create_plist()
        plain = plist.get_layout() in (h5py.h5d.CONTIGUOUS, h5py.h5d.CHUNKED) and not plist.get_external_count()
        if not plain or dataset.file.id.get_create_plist().get_sizes() != (8, 8):
            raise DatasetError(
                f"{name}: highway cannot read values of varying length that are stored in the header or in other files, or whose addresses "
                f"do not have 8 bytes; copy the dataset into a new file with h5py"
            )
        self._block: tuple[int, ...] = dataset.chunks or (_ROWS, *dataset.shape[1:])
        self._blocks, self._collections = set[int](), set[int]()

    def __call__(self, numbers: np.ndarray) -> None:
        """Raise DatasetError if a collection of these rows is damaged."""
        for block in set((numbers // self._block[0]).tolist()) - self._blocks:
            for data in self._stored(block):
                addresses = np.frombuffer(data, _REFERENCE)["address"]
                for address in set(addresses.tolist()) - self._collections - {0, _NO_ADDRESS}:
                    self._check(address)
                    self._collections.add(address)
            self._blocks.add(block)

    def _stored(self, block: int) -> Iterator[bytes]:
        """Yield the references in a block of rows."""
        one, first, shape = self._dataset.id, block * self._block[0], self._dataset.shape
        if not self._dataset.chunks:
            row = int(np.prod(shape[1:], dtype=np.int64)) * _REFERENCE.itemsize
            if (begin := one.get_offset()) is not None:
                yield self._file.read(begin + first * row, (min(first + _ROWS, shape[0]) - first) * row)
            return
        inner = [range(0, length, step) for length, step in zip(shape[1:], self._block[1:], strict=True)]
        for place in product([first], *inner):
            with LOCK:
                chunk = one.get_chunk_info_by_coord(place)
            if chunk.byte_offset is not None:
                yield self._unfiltered(place) if self._plist.get_nfilters() else self._file.read(chunk.byte_offset, chunk.size)

    def _unfiltered(self, place: tuple[int, ...]) -> bytes:
        """Return the references of a chunk that has filters. HDF5 decodes the chunk, in a file that is only in memory."""
        found = np.empty(self._block, f"V{_REFERENCE.itemsize}")
        try:
            with LOCK, h5py.File("chunk", "w", driver="core", backing_store=False) as memory:
                skipped, data = self._dataset.id.read_direct_chunk(place)
                plist = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
                plist.set_chunk(self._block)
                for number in range(self._plist.get_nfilters()):
                    if not skipped >> number & 1:  # a set bit marks a filter that HDF5 did not apply
                        plist.set_filter(*self._plist.get_filter(number)[:3])
                copy = h5py.h5d.create(memory.id, b"x", h5py.h5t.py_create(found.dtype), h5py.h5s.create_simple(self._block), plist)
                copy.write_direct_chunk((0,) * len(place), data)
                copy.read(h5py.h5s.ALL, h5py.h5s.ALL, found)
        except Exception as error:  # h5py raises many types of errors for damaged files
            self._file.check()
            raise DatasetError(f"{self._name}: its rows cannot be read; the dataset is damaged or needs a filter: {error}") from error
        return found.tobytes()

    def _check(self, address: int) -> None:
        """Raise DatasetError if the sizes of the objects do not lead to the end of the collection."""
        there = self._file.state.size - self._base - address
        if there < _COLLECTION.size:
            return  # h5py raises an error
        data = self._file.read(self._base + address, min(there, _WINDOW))
        magic, version, size = _COLLECTION.unpack_from(data)
        if magic != b"GCOL" or version != 1 or size > there:
            return  # h5py raises an error
        at = _COLLECTION.size
        while at + _OBJECT.size <= size:
            header = data[at : at + _OBJECT.size]
            if len(header) < _OBJECT.size:
                header = self._file.read(self._base + address + at, _OBJECT.size)
            number, nbytes = _OBJECT.unpack(header)
            step = _OBJECT.size + (nbytes + 7 & ~7) if number else nbytes
            if step < _OBJECT.size or at + step > size:
                raise DatasetError(
                    f"{self._name}: byte {self._base + address + at}: the values of its rows are damaged: an object of {nbytes} bytes in a "
                    f"collection of {size}"
                )
            at += step

"""Read a finished cache. An index contains the byte offset of each field, and the checksum of each sample.

A cache in a folder is read, not mapped into memory. If the file is truncated or the disk fails, reading raises an error, and the cache can
be repaired. Access to a truncated mapped file would end the process (SIGBUS). A cache in memory is mapped, because no other process can
change the memory.
"""

from __future__ import annotations

import errno
import math
import mmap
import os
import weakref
from collections.abc import Sequence
from typing import Any

import numpy as np

from highway.datasets.cache_files.layout import FROM_BYTES, Kind, Layout
from highway.datasets.index.file import checksum
from highway.engine.batch import Item
from highway.engine.cancel import check_cancelled
from highway.errors import DamagedError
from highway.images.buffers import BufferPool
from highway.process.aligned import aligned

ALIGNMENT = 64  # each field of a sample begins at a multiple of this number of bytes
_POOLED = 1 << 16  # pieces of memory with fewer bytes are not reused
_KEPT = 1 << 27  # number of bytes to keep for reuse; at least four pieces of memory are kept
_AT_ONCE = 32  # number of samples to read together when all samples are checked


class _Indexed:
    """A finished cache. The index is in memory. A sample is read when it is requested.

    The index contains these arrays for N samples:

    - ``offsets`` ``(N, fields)``: the byte offset of each field in the file;
    - ``shapes-I`` ``(N, ndim)``: the shapes of field I;
    - ``sums`` ``(N,)``: the checksums of the samples;
    - ``positions`` ``(N,)``: the position of each sample in the epoch;
    - ``keys`` and ``ends``: all keys as bytes, and where the keys of each sample end.

    These arrays are optional:

    - ``places`` ``(N,)``: the index of each sample among the samples of the rank (a process of distributed training). Present if samples
      are missing or not in order;
    - ``bad`` and ``dropped``: the indexes of bad samples (which could not be read) and of dropped samples (which a stage removed) among the
      samples of the rank;
    - ``epoch``: the epoch whose order the samples have, if this is not epoch 0;
    - ``items``, int64 ``(2, items)``: the index and the number of samples of each item (a batch or sample) in the first epoch. Present if
      the items were not consecutive batches of one size.

    Args:
        layout: The structure of the samples, which is the same for all samples.
        batch_size: Samples in each batch that was cached; 0 if single samples were cached.
        nbytes: Number of bytes of the samples.
        index: A dict of the arrays above.

    Attributes:
        settled: Whether the cache is final. ``False``: samples were skipped when the cache was written, and a second try might add these
            samples.
        plan: For each sample of an epoch, its index in the cache, or -1 for a bad sample, or -2 for a dropped sample. ``None``: the epoch
            has all samples of the cache, in order.
    """

    settled = True

    def __init__(self, layout: Layout, batch_size: int, nbytes: int, index: dict[str, np.ndarray]) -> None:
        self.layout, self.batch_size, self.nbytes, self.index = layout, batch_size, nbytes, index
        self._keys, self._ends, self._offsets = index["keys"], index["ends"], index["offsets"]
        self._positions = index["positions"]
        self._shapes = [index[f"shapes-{number}"] for number in range(len(layout.fields))]
        self._fixed = [tuple(shapes[0].tolist()) if (shapes == shapes[0]).all() else None for shapes in self._shapes]
        self._dtypes = [np.dtype(spec.dtype) for spec in layout.fields]
        self.plan = _plan(index["places"], index["bad"], index["dropped"]) if "places" in index else None

    def __len__(self) -> int:
        return len(self._offsets)

    def keys(self, rows: Sequence[int]) -> tuple[str, ...]:
        """Return the keys of the samples at these indexes."""
        spans = [(int(self._ends[row - 1]) if row else 0, int(self._ends[row])) for row in rows]
        return tuple(key for begin, end in spans for key in self._keys[begin:end].tobytes().decode().split("\0") if key)

    def positions(self, rows: Sequence[int]) -> tuple[int, ...]:
        """Return the positions of samples in the epoch in which they were cached."""
        return tuple(self._positions[rows].tolist())

    @property
    def made_in(self) -> list[int]:
        """The number of samples, and the epoch in which they were cached. The order of the samples depends on these two numbers."""
        return [len(self), int(self.index["epoch"][0]) if "epoch" in self.index else 0]

    @property
    def has_one_key_each(self) -> bool:
        """Whether each sample has exactly one key."""
        return bool((np.diff(self._ends, prepend=0) > 0).all() and (self._keys != 0).all())

    def _shape(self, field: int, row: int) -> tuple[int, ...]:
        fixed = self._fixed[field]
        return fixed if fixed is not None else tuple(self._shapes[field][row].tolist())

    def _plain(self, field: int, arrays: list[np.ndarray]) -> list[Any]:
        decode = FROM_BYTES.get(self.layout.fields[field].kind)
        return arrays if decode is None else [decode(array.tobytes()) for array in arrays]


class MemoryFile(_Indexed):
    """A cache in memory. The arrays of samples are read-only views of this memory."""

    def __init__(self, memory: mmap.mmap, layout: Layout, batch_size: int, index: dict[str, np.ndarray]) -> None:
        super().__init__(layout, batch_size, len(memory), index)
        self._memory = memory

    def columns(self, rows: Sequence[int]) -> list[Any]:
        """Return the fields of samples. Each field is a list with one value per sample."""
        memory, offsets = self._memory, self._offsets
        return [
            self._plain(field, [np.ndarray(self._shape(field, row), dtype, memory, int(offsets[row, field])) for row in rows])
            for field, dtype in enumerate(self._dtypes)
        ]


class DiskFile(_Indexed):
    """A cache in a folder. When a sample is first read, its checksum is checked.

    Args:
        path: The file that contains the samples.
    """

    def __init__(self, path: str, layout: Layout, batch_size: int, index: dict[str, np.ndarray]) -> None:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        weakref.finalize(self, os.close, descriptor)
        super().__init__(layout, batch_size, os.fstat(descriptor).st_size, index)
        self.path, self._descriptor = path, descriptor
        self._checked = np.zeros(len(self), bool)
        self._pools: dict[int, BufferPool] = {}

    @property
    def name(self) -> str:
        """The name of the file. Each cache has a unique name."""
        return os.path.basename(self.path)

    def columns(self, rows: Sequence[int]) -> list[Any]:
        """Return the fields of samples. Each field is one array, or a list with one value per sample.

        Raises:
            DamagedError: a sample does not match its checksum.
        """
        places = [self._places(field, rows) for field in range(len(self.layout.fields))]
        damaged = [row for row, *parts in zip(rows, *(parts for _, parts in places), strict=True) if not self._read(row, parts)]
        if damaged:
            keys = ", ".join(self.keys(damaged[:3]))
            which = f"{', '.join(map(str, damaged[:3]))}{', ...' if len(damaged) > 3 else ''}{f' ({keys})' if keys else ''}"
            raise DamagedError(f"{self.path}: damaged: samples {which} do not match their checksums", damaged)
        return [self._column(field, rows, *place) for field, place in enumerate(places)]

    def damaged(self) -> list[int]:
        """Check the checksums of all samples, and return the indexes of the damaged samples."""
        found: list[int] = []
        self._checked[:] = False
        for start in range(0, len(self), _AT_ONCE):
            check_cancelled()
            try:
                self.columns(range(start, min(start + _AT_ONCE, len(self))))
            except DamagedError as error:
                found += error.rows
        return found

    def restore(self, row: int, span: Sequence[np.ndarray]) -> None:
        """Repair a damaged sample in the file. Several processes can repair the same sample at the same time.

        Args:
            row: The index of the sample.
            span: The bytes of the sample, from :func:`span_of`.

        Raises:
            OSError: the file cannot be written.
        """
        with open(self.path, "r+b", buffering=0) as file:
            os.lseek(file.fileno(), int(self._offsets[row, 0]), os.SEEK_SET)
            for part in span:
                while part.nbytes:
                    part = part[os.write(file.fileno(), part.data) :]
            if os.fstat(file.fileno()).st_size < self.nbytes:  # the end of the file is missing
                os.ftruncate(file.fileno(), self.nbytes)
            os.fsync(file.fileno())

    def _places(self, field: int, rows: Sequence[int]) -> tuple[np.ndarray, list[np.ndarray]]:
        """Return memory for a field of several samples, and the part of this memory for each sample."""
        if (fixed := self._fixed[field]) is not None:
            size = self._dtypes[field].itemsize * math.prod(fixed)
            whole = self._memory(field, len(rows) * size).reshape(len(rows), size)
            return whole, list(whole)
        sizes = [self._dtypes[field].itemsize * int(n) for n in self._shapes[field][rows].prod(axis=1)]
        ends = np.cumsum([-(-n // ALIGNMENT) * ALIGNMENT for n in sizes]).tolist()
        whole = self._memory(field, ends[-1])
        return whole, [whole[begin : begin + n] for begin, n in zip([0, *ends], sizes, strict=False)]

    def _memory(self, field: int, nbytes: int) -> np.ndarray:
        if nbytes < _POOLED:
            return aligned((nbytes,), np.uint8)
        if field not in self._pools or self._pools[field].nbytes < nbytes:
            size = nbytes if self._fixed[field] is not None else nbytes + nbytes // 8
            self._pools[field] = BufferPool(size, keep=max(4, _KEPT // size))  # several small pieces, or four large pieces
        return self._pools[field].take((nbytes,))

    def _read(self, row: int, parts: Sequence[np.ndarray]) -> bool:
        """Read a sample into ``parts``, and return whether it matches its checksum."""
        offsets = self._offsets[row].tolist()
        buffers, end = [parts[0]], offsets[0] + parts[0].nbytes
        for offset, part in zip(offsets[1:], parts[1:], strict=True):
            buffers += [np.empty(offset - end, np.uint8), part] if offset > end else [part]
            end = offset + part.nbytes
        if not _read_exactly(self._descriptor, buffers, offsets[0], end - offsets[0]):
            return False
        if not self._checked[row]:
            if checksum(buffers) != self.index["sums"][row]:
                return False
            self._checked[row] = True
        return True

    def _column(self, field: int, rows: Sequence[int], whole: np.ndarray, parts: list[np.ndarray]) -> Any:
        if (fixed := self._fixed[field]) is not None and self.layout.fields[field].kind not in FROM_BYTES:
            return whole.view(self._dtypes[field]).reshape(len(rows), *fixed)
        arrays = [part.view(self._dtypes[field]).reshape(self._shape(field, row)) for row, part in zip(rows, parts, strict=True)]
        for array in arrays:
            array.flags.writeable = False
        return self._plain(field, arrays)


CacheFile = MemoryFile | DiskFile


def _plan(places: np.ndarray, bad: np.ndarray, dropped: np.ndarray) -> np.ndarray:
    whole = np.sort(np.concatenate([places, bad, dropped]))
    rows = np.full(len(whole), -1)
    rows[np.searchsorted(whole, dropped)] = -2
    rows[np.searchsorted(whole, places)] = np.arange(len(places))
    return rows


def samples_of(file: CacheFile, rows: Sequence[int]) -> list[Item]:
    """Return samples with their original types. The arrays are read-only.

    Raises:
        DamagedError: a sample does not match its checksum.
    """
    columns = list(zip(file.layout.fields, file.columns(rows), strict=True))
    return [file.layout.item([_as_it_came(spec.kind, column[place : place + 1]) for spec, column in columns]) for place in range(len(rows))]


def _as_it_came(kind: Kind, column: Any) -> Any:
    """Return the only value of a column, with its original type."""
    if kind in FROM_BYTES:
        return column[0]
    value: np.ndarray = column[0, ...] if isinstance(column, np.ndarray) else column[0]
    if kind == "array":
        value.flags.writeable = False
        return value
    return value[()] if kind == "scalar" else value.item()


def span_of(values: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Return the bytes of a sample, as arrays uint8 ``(N,)``. Each field begins at a multiple of 64 bytes."""
    span: list[np.ndarray] = []
    for value in (value.reshape(-1).view(np.uint8) for value in values):
        if span and (gap := -span[-1].nbytes % ALIGNMENT):
            span.append(np.zeros(gap, np.uint8))
        span.append(value)
    return span


def _read_exactly(descriptor: int, buffers: list[Any], offset: int, size: int) -> bool:
    """Fill buffers, which have ``size`` bytes in total, from a byte offset of a file. Return whether the file has enough bytes."""
    try:
        if os.preadv(descriptor, buffers, offset) == size:
            return True
        for buffer in buffers:  # too few bytes: a call reads at most 2 GiB, or the file is too short
            while buffer.nbytes:
                count = os.preadv(descriptor, [buffer], offset)
                if not count:
                    return False
                buffer, offset = buffer[count:], offset + count
        return True
    except OSError as error:
        if error.errno == errno.EIO:
            return False
        raise

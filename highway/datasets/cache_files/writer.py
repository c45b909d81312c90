"""Write a cache: first the samples, then their index."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import io
import mmap
import os
import tempfile
from array import array
from collections.abc import Iterator, Mapping, Sequence
from typing import IO, cast

import numpy as np

from highway.datasets.cache_files.fields import FORMS, Arrays, arrays_of
from highway.datasets.cache_files.file import ALIGNMENT, CacheFile, DiskFile, MemoryFile, span_of
from highway.datasets.cache_files.layout import FieldSpec, Layout
from highway.datasets.index.file import checksum
from highway.engine.batch import Item, names
from highway.errors import CacheFullError

DATA_START = b"highway cache, samples\n".ljust(ALIGNMENT, b"\0")
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.ENOMEM)


class CacheWriter:
    """Writes samples into an unfinished cache.

    Args:
        path: The file for the samples, or ``""`` for memory.
        budget: Maximum total number of bytes of the samples.
    """

    def __init__(self, path: str, budget: int) -> None:
        self.path, self.budget = path, budget
        self._layout: Layout | None = None
        self._offsets, self._sums, self._ends, self._keys = array("q"), array("Q"), array("q"), bytearray()
        self._positions = array("q")
        self._shapes: list[array[int]] = []
        self._file: IO[bytes] = self._create()
        self._file.write(DATA_START)
        self._end = len(DATA_START)

    def __len__(self) -> int:
        return len(self._ends)

    @property
    def nbytes(self) -> int:
        """Number of bytes written so far."""
        return self._end

    def _create(self) -> IO[bytes]:
        if self.path:
            return open(self.path, "xb+")
        if hasattr(os, "memfd_create"):
            return os.fdopen(os.memfd_create("highway-cache", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING), "w+b")
        return cast(IO[bytes], tempfile.TemporaryFile())

    def add(self, sample: Item, keys: Sequence[str] = (), arrays: Arrays = arrays_of, position: int | None = None) -> None:
        """Append a sample.

        Args:
            sample: Sample to append.
            keys: The keys of the sample.
            arrays: The function that converts the sample to arrays.
            position: The position of the sample in the epoch. ``None``: the number of samples in the cache before this sample.

        Raises:
            CacheFullError: the sample does not fit into the budget or on the disk. No further samples can be appended.
            ValueError: the sample has different fields than earlier samples, or a field has a different type, dtype or number of axes.
            ItemError: a field of the sample has a type that the cache cannot store.
        """
        found = arrays(sample)
        self._expect_alike(sample, [spec for spec, _ in found])
        span = span_of([values for _, values in found])
        with full_disk():
            self._write(span)
        for (_, values), shapes in zip(found, self._shapes, strict=True):
            self._offsets.append(self._end)
            self._end += values.nbytes + -values.nbytes % ALIGNMENT
            shapes.extend(values.shape)
        self._sums.append(checksum(span) if self.path else 0)
        self._positions.append(len(self) - 1 if position is None else position)
        self._keys += "\0".join(keys).encode()
        self._ends.append(len(self._keys))

    def _write(self, span: Sequence[np.ndarray]) -> None:
        size = sum(part.nbytes for part in span)
        if self._end + size > self.budget + len(DATA_START):
            raise CacheFullError(f"the budget of {self.budget:,} bytes is used up")
        for part in span:
            self._file.write(part.data)
        self._file.write(bytes(-size % ALIGNMENT))

    def _expect_alike(self, sample: Item, specs: list[FieldSpec]) -> None:
        layout = Layout(next((form for form, kind in FORMS.items() if isinstance(sample, kind)), "value"), list(names(sample)), specs)
        if self._layout is None:
            self._layout, self._shapes = layout, [array("q") for _ in specs]
        elif layout != self._layout:
            raise ValueError(
                f"Cache: sample {len(self)} has {_describe(layout)}, but sample 0 has {_describe(self._layout)}; give all "
                f"samples the same fields and types"
            )

    def finish(self, batch_size: int, places: Mapping[str, np.ndarray]) -> CacheFile:
        """Wait until all samples are on the disk, and return the finished cache.

        Args:
            batch_size: Samples in each batch that was cached; 0 if single samples were cached.
            places: The optional arrays of the index, by name (listed in ``file``).

        Raises:
            CacheFullError: the disk is full.
        """
        assert self._layout is not None
        with full_disk():
            self._file.flush()
            if self.path:
                os.fsync(self._file.fileno())
        index = self._index(self._layout) | dict(places)
        if self.path:
            return DiskFile(self.path, self._layout, batch_size, index)
        if hasattr(fcntl, "F_ADD_SEALS"):
            with contextlib.suppress(OSError):  # a temporary file cannot be sealed, but no other process can open it
                fcntl.fcntl(self._file.fileno(), fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK)
        memory = mmap.mmap(self._file.fileno(), self._end, access=mmap.ACCESS_READ)
        return MemoryFile(memory, self._layout, batch_size, index)

    def _index(self, layout: Layout) -> dict[str, np.ndarray]:
        count = len(self)
        index: dict[str, np.ndarray] = {
            "offsets": np.array(self._offsets, np.int64).reshape(count, -1),
            "sums": np.array(self._sums, np.uint64),
            "positions": np.array(self._positions, np.int64),
            "keys": np.frombuffer(bytes(self._keys), np.uint8),
            "ends": np.array(self._ends, np.int64),
        }
        for number, (spec, shapes) in enumerate(zip(layout.fields, self._shapes, strict=True)):
            index[f"shapes-{number}"] = np.array(shapes, np.int64).reshape(count, spec.ndim)
        return index

    def close(self) -> None:
        with contextlib.suppress(OSError):  # if the disk is full, closing the file fails, too
            self._file.close()


def packed_index(index: dict[str, np.ndarray]) -> bytes:
    """Return an index as bytes."""
    file = io.BytesIO()
    for values in index.values():
        np.lib.format.write_array(file, values, allow_pickle=False)
    return file.getvalue()


def unpacked_index(data: bytes, arrays: Sequence[str]) -> dict[str, np.ndarray]:
    """Return an index from its bytes. ``arrays`` are the names of its arrays. Raises ValueError if the bytes are not an index."""
    file = io.BytesIO(data)
    return {name: np.lib.format.read_array(file, allow_pickle=False) for name in arrays}


@contextlib.contextmanager
def full_disk() -> Iterator[None]:
    """Convert an error of a full disk to a :class:`CacheFullError`."""
    try:
        yield
    except OSError as error:
        if error.errno not in _FULL:
            raise
        raise CacheFullError(os.strerror(error.errno)) from error


def _describe(layout: Layout) -> str:
    kinds = (
        f"{name!r}: {f'{np.dtype(spec.dtype)} with {spec.ndim} axes' if spec.kind in ('array', 'scalar') else spec.kind}"
        for name, spec in zip(layout.names, layout.fields, strict=True)
    )
    return f"{layout.form} {', '.join(kinds)}"

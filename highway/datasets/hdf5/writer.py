"""Write samples as the rows of datasets into an HDF5 file."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Literal

from highway.datasets.npy.writer import RowsWriter
from highway.datasets.writing import writing


@contextmanager
def hdf5_writer(path: str, compression: Literal["gzip", "lzf"] | None = None) -> Iterator[RowsWriter[Any]]:
    """Write samples with the same fields into an HDF5 file. The file gets its name only when it is complete.

    Each field becomes a dataset with one row per sample, in chunks of about a megabyte. ``bytes`` become uint8 of variable length, and
    ``str`` becomes text. Numbers do not change. Arrays must have one shape. A ``/`` in a field's name creates groups. The keys are in the
    dataset ``__key__``.

    Args:
        path: The file.
        compression: The compression filter for arrays, if any. ``bytes`` are not compressed.

    Raises:
        ConfigError: h5py is not installed.
        OSError: the file cannot be written.
        ItemError: a sample has other fields than the first sample, or a value that HDF5 cannot hold (raised when it is added).
    """
    from highway.datasets.hdf5.growing import columns_of  # imported here, because only writing needs h5py
    from highway.datasets.hdf5.output import h5py_file

    with writing(path, durable=True) as part, h5py_file(part) as (file, call):
        writer = columns_of(file, compression, call)
        yield writer
        for column in writer.columns.values():
            column.flush()

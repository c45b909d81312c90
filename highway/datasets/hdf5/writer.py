"""Write samples into an HDF5 file."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Literal

from highway.datasets.npy.writer import RowsWriter
from highway.datasets.writing import writing


@contextmanager
def hdf5_writer(path: str, compression: Literal["gzip", "lzf"] | None = None) -> Iterator[RowsWriter[Any]]:
    """Write samples into an HDF5 file. All samples must have the same fields. The file gets its final name only when it is complete.

    Each field becomes a dataset (an array in the file) with one row per sample. A dataset has chunks of about a megabyte. ``bytes`` become
    uint8 of variable length, and ``str`` becomes text. The arrays of a field must have the same shape and dtype in all samples. A ``/`` in
    the name of a field creates a group. The dataset ``__key__`` contains the keys of the samples.

    Args:
        path: The file.
        compression: The compression filter for arrays, or ``None``. ``bytes`` are not compressed.

    Raises:
        ConfigError: h5py is not installed.
        OSError: the file cannot be written.
        ItemError: a sample does not have the fields of the first sample, or has a value that HDF5 cannot hold (when the sample is added).
    """
    from highway.datasets.hdf5.growing import columns_of  # imported here, because h5py is needed only when a file is written
    from highway.datasets.hdf5.output import h5py_file

    with writing(path, durable=True) as part, h5py_file(part) as (file, call):
        writer = columns_of(file, compression, call)
        yield writer
        for column in writer.columns.values():
            column.flush()

"""Samples written as the rows of datasets, into an HDF5 file."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Literal

from highway.datasets.npy.writer import RowsWriter
from highway.datasets.writing import writing


@contextmanager
def hdf5_writer(path: str, compression: Literal["gzip", "lzf"] | None = None) -> Iterator[RowsWriter[Any]]:
    """Write samples that are alike into an HDF5 file, which has its name only when it is whole.

    A dataset for each field, in chunks of about a megabyte, with a row for each sample: ``bytes`` as uint8 of variable length, ``str`` as
    text, and numbers and arrays unchanged, of one shape. A ``/`` in a field's name makes groups. The keys are the dataset ``__key__``.

    Args:
        path: The file.
        compression: The filter that arrays go through, if any. Encoded images are compressed already.

    Raises:
        ConfigError: h5py is not installed.
        OSError: the file cannot be written.
        ItemError: a sample has other fields than the first, or a value that HDF5 does not hold (where it is added).
    """
    from highway.datasets.hdf5.growing import columns_of  # here, since only who writes needs h5py
    from highway.datasets.hdf5.output import h5py_file

    with writing(path, durable=True) as part, h5py_file(part) as (file, call):
        writer = columns_of(file, compression, call)
        yield writer
        for column in writer.columns.values():
            column.flush()

"""Write Parquet and Arrow files, sample by sample."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from highway.datasets.writing import SampleWriter, writing


@contextmanager
def parquet_writer(
    path: str, rows_per_block: int | None = None, compression: str = "snappy", durable: bool = False
) -> Iterator[SampleWriter]:
    """Write a Parquet file. It gets its name only when it is complete; see :func:`highway.datasets.writing.writing`.

    :class:`~highway.datasets.Parquet` reads the same samples again, with fields, dtypes, shapes and keys. The keys are in the column
    ``__key__``.

    Args:
        path: The file.
        rows_per_block: Rows of a row group; ``None``: as many rows as fit into 16 MiB.
        compression: ``"snappy"``, ``"zstd"``, ``"none"``, or another compression of Parquet.
        durable: Whether to wait until the file is on the disk, so that it survives a crash of the machine.

    >>> with parquet_writer("photos.parquet") as writer:
    ...     writer.add("cat/01", {"image": data, "label": np.int32(1)})
    """
    from highway.datasets.tables.table_writer import begin_parquet, table_writer  # here, since it needs pyarrow

    with writing(path, durable) as name, table_writer(path, lambda s: begin_parquet(name, s, compression), rows_per_block) as writer:
        yield writer


@contextmanager
def arrow_writer(path: str, rows_per_block: int | None = None, durable: bool = False) -> Iterator[SampleWriter]:
    """Write an uncompressed Arrow file, whose rows can be read one by one. Otherwise the same as :func:`parquet_writer`.

    Args:
        path: The file.
        rows_per_block: Rows of a record batch; ``None``: as many rows as fit into 16 MiB.
        durable: Whether to wait until the file is on the disk, so that it survives a crash of the machine.

    >>> with arrow_writer("photos.arrow") as writer:
    ...     writer.add("cat/01", {"image": data, "label": np.int32(1)})
    """
    from highway.datasets.tables.table_writer import begin_arrow, table_writer  # here, since it needs pyarrow

    with writing(path, durable) as name, table_writer(path, lambda s: begin_arrow(name, s), rows_per_block) as writer:
        yield writer

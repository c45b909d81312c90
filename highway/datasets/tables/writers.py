"""Write samples into Parquet and Arrow files."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from highway.datasets.tables.backend import ipc, pa, pq
from highway.datasets.tables.cells import Kind, cell, column_of, column_type
from highway.datasets.tables.schema import KEY
from highway.datasets.writing import SampleWriter, writing
from highway.engine.batch import how_to_flatten
from highway.errors import ItemError

_BLOCK = 16 << 20  # default limit of the bytes of a block: a row group (Parquet) or record batch (Arrow)
_ROWS = 1 << 16  # default limit of the rows of a block
_MOST = 1 << 29  # limit of the bytes of a block, if the user sets the number of rows


class TableWriter:
    """Writes samples into a file; see :func:`parquet_writer`."""

    def __init__(self, path: str, begin: Callable[[pa.Schema], Any], rows_per_block: int | None) -> None:
        self._path, self._begin = path, begin
        self._rows, self._bytes = (_ROWS, _BLOCK) if rows_per_block is None else (rows_per_block, _MOST)
        self._kinds: dict[str, Kind] = {}
        self._columns: dict[str, list[Any]] = {}
        self._file: Any = None
        self._size = 0
        self.samples = 0

    def add(self, key: str, sample: Mapping[str, Any]) -> None:
        """Append a sample. Its fields must have the same names and types as the fields of the first sample.

        Raises:
            ItemError: the first sample had other fields, or a field had another type.
            ItemError: the sample has no fields, or a field ``__key__``.
            ItemError: no column can contain the value of a field.
        """
        cells = {
            KEY: self._cell(key, KEY, key),
            **{field: self._cell(key, field, value) for field, value in sample.items() if field != KEY},
        }
        if KEY in sample:
            raise ItemError(f"{self._path}: sample {key!r} has a field {KEY!r}, the name of the key column; rename the field")
        kinds = {field: kind for field, (kind, _, _) in cells.items()}
        if self._file is None:
            if len(kinds) == 1:
                raise ItemError(f"{self._path}: sample {key!r} has no fields")
            self._kinds, self._columns = kinds, {field: [] for field in kinds}
            self._schema = pa.schema([column_type(field, kind) for field, kind in kinds.items()])
            self._file = self._begin(self._schema)
        elif kinds != self._kinds:
            raise ItemError(
                f"{self._path}: sample {key!r} {self._difference(kinds)} in earlier samples; give all samples the same fields and types"
            )
        for field, (_, value, size) in cells.items():
            self._columns[field].append(value)
            self._size += size
        self.samples += 1
        if len(self._columns[KEY]) >= self._rows or self._size >= self._bytes:
            self._flush()

    def _cell(self, key: str, field: str, value: Any) -> tuple[Kind, Any, int]:
        try:
            return cell(value)
        except ItemError as error:
            way_out = how_to_flatten(field, type(value))
            raise ItemError(f"{self._path}: sample {key!r}: field {field!r} is {error}{way_out}") from error

    def _difference(self, kinds: Mapping[str, Kind]) -> str:
        if set(kinds) != set(self._kinds):
            there, here = (", ".join(field for field in one if field != KEY) for one in (self._kinds, kinds))
            return f"has the fields {here}, but the fields are {there}"
        field = next(field for field, kind in kinds.items() if kind != self._kinds[field])
        return f"has {kinds[field]} in the field {field!r}, but the field has {self._kinds[field]}"

    def _flush(self) -> None:
        columns = [column_of(self._columns[field.name], field, self._kinds[field.name]) for field in self._schema]
        self._file.write_batch(pa.RecordBatch.from_arrays(columns, schema=self._schema))
        self._columns, self._size = {field: [] for field in self._kinds}, 0

    def finish(self) -> None:
        """Write the remaining samples and the end of the file. Raises ValueError if no sample was added."""
        if self._file is None:
            raise ValueError(f"{self._path}: no sample was added, so the columns are unknown; add a sample, or do not write this file")
        if self._columns[KEY]:
            self._flush()
        self._file.close()

    def forget(self) -> None:
        """Close the file, if it was created. If the file is already closed, do nothing."""
        if self._file is not None:
            self._file.close()


def begin_parquet(path: str, schema: pa.Schema, compression: str) -> Any:
    """Create a Parquet file with page checksums. Columns with short values also get dictionaries and statistics."""
    short = [field.name for field in schema if not pa.types.is_binary(field.type) and not field.type.num_fields]
    options = {"use_dictionary": short, "write_statistics": short, "write_page_checksum": True}
    return pq.ParquetWriter(path, schema, compression=compression, **options)


def begin_arrow(path: str, schema: pa.Schema) -> Any:
    return ipc.new_file(path, schema)


@contextmanager
def table_writer(path: str, begin: Callable[[pa.Schema], Any], rows_per_block: int | None) -> Iterator[TableWriter]:
    """Yield a writer. At the end of the ``with`` block, close the file. If there was no error, complete the file first.

    Args:
        path: The final path of the file, for messages.
        begin: A function that creates the temporary file. The function is called when the first sample is added.
        rows_per_block: Number of rows of a block; see :func:`parquet_writer`.
    """
    writer = TableWriter(path, begin, rows_per_block)
    try:
        yield writer
        writer.finish()
    finally:
        writer.forget()


@contextmanager
def parquet_writer(
    path: str, rows_per_block: int | None = None, compression: str = "snappy", durable: bool = False
) -> Iterator[SampleWriter]:
    """Write a Parquet file. The file gets its final name only when it is complete; see :func:`highway.datasets.writing.writing`.

    The samples that :class:`~highway.datasets.Parquet` reads have the same fields, dtypes, shapes and keys as the samples that were
    written. The column ``__key__`` contains the keys.

    Args:
        path: The file.
        rows_per_block: Number of rows of a row group. A row group also ends when its values reach 512 MiB. ``None``: a row group ends
            after 65,536 rows, or when its values reach 16 MiB.
        compression: ``"snappy"``, ``"zstd"``, ``"none"``, or another compression of Parquet.
        durable: Whether to wait until the file is on the disk. The file then survives a crash of the machine.

    >>> with parquet_writer("photos.parquet") as writer:
    ...     writer.add("cat/01", {"image": data, "label": np.int32(1)})
    """
    with writing(path, durable) as name, table_writer(path, lambda s: begin_parquet(name, s, compression), rows_per_block) as writer:
        yield writer


@contextmanager
def arrow_writer(path: str, rows_per_block: int | None = None, durable: bool = False) -> Iterator[SampleWriter]:
    """Write an uncompressed Arrow file, from which single rows can be read.

    As in :func:`parquet_writer`, the file gets its final name only when it is complete, and the column ``__key__`` contains the keys.

    Args:
        path: The file.
        rows_per_block: Number of rows of a record batch. A record batch also ends when its values reach 512 MiB. ``None``: a record batch
            ends after 65,536 rows, or when its values reach 16 MiB.
        durable: Whether to wait until the file is on the disk. The file then survives a crash of the machine.

    >>> with arrow_writer("photos.arrow") as writer:
    ...     writer.add("cat/01", {"image": data, "label": np.int32(1)})
    """
    with writing(path, durable) as name, table_writer(path, lambda s: begin_arrow(name, s), rows_per_block) as writer:
        yield writer

"""Parquet files, read row group by row group."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from highway.datasets.tables.backend import pa, pq
from highway.datasets.tables.files import FilesTable
from highway.datasets.tables.rows import DecodedRows
from highway.datasets.tables.stream import FileStream, fetched
from highway.datasets.tables.table import Piece
from highway.errors import DatasetError
from highway.stores.file import FileRange, UnchangingFile

_FOOTER = 1 << 16  # bytes at a file's end that are read at once; most footers have fewer
_AT_ONCE = 64  # files of which that is asked for at once, and row groups of which the keys are


class ParquetTable(FilesTable):
    """The rows of Parquet files."""

    format, piece = "Parquet", "row group"

    def __init__(self, *args: Any) -> None:
        self._metadata: list[pq.FileMetaData] = []
        super().__init__(*args)
        for piece in self.pieces:
            self._check_size(piece)

    def _layout(self, file: int) -> tuple[pa.Schema, list[int]]:
        if file % _AT_ONCE == 0:
            sizes = [(one, one.state.size) for one in map(self.open, range(file, min(file + _AT_ONCE, len(self.files))))]
            self._footers = fetched([FileRange(one, max(size - _FOOTER, 0), min(size, _FOOTER)) for one, size in sizes])
        opened = pq.ParquetFile(FileStream(self.open(file), self._footers[file % _AT_ONCE]))
        self._metadata.append(opened.metadata)
        return opened.schema_arrow, [opened.metadata.row_group(number).num_rows for number in range(opened.num_row_groups)]

    def _check_size(self, piece: Piece) -> None:
        """Raise DatasetError if a row group does not fit into the memory that there is for all of them."""
        group, columns = self._metadata[piece.file].row_group(piece.index), self.selection.columns
        if group.total_byte_size <= self.budget:
            return
        if (size := sum(leaf.total_uncompressed_size for leaf in _leaves(group, columns))) > self.budget:
            raise DatasetError(
                f"{self.names[piece.file]}: row group {piece.index} has {piece.rows} rows of {size >> 20} MB together, and is read as a "
                f"whole; more than cache_mb={self.budget >> 20} allows: write the file anew with smaller row groups (parquet_writer does), "
                "raise cache_mb, or read fewer columns by fields="
            )

    def _read(self, file: int, groups: Sequence[int], columns: list[str]) -> Iterator[pa.Table]:
        """Yield columns of row groups of a file; from a store all are fetched at once."""
        opened, metadata = self.open(file), self._metadata[file]
        leaves = [] if opened.is_here else [leaf for group in groups for leaf in _leaves(metadata.row_group(group), columns)]
        held = [part for parts in fetched([_range(opened, leaf) for leaf in leaves]) for part in parts]
        parquet = pq.ParquetFile(FileStream(opened, held), metadata=metadata, pre_buffer=False, page_checksum_verification=True)
        for group in groups:
            yield parquet.read_row_group(group, columns, use_threads=False)

    def _decode_piece(self, piece: Piece) -> tuple[DecodedRows, int]:
        (table,) = self._read(piece.file, [piece.index], self.in_files)
        if table.num_rows != piece.rows:
            raise pa.ArrowInvalid(f"expected {piece.rows} rows, found {table.num_rows}")
        table.validate(full=True)  # since nothing looks after offsets when single rows are read
        return DecodedRows(self.with_partitions(table.to_batches(), piece), self.selection.columns), table.get_total_buffer_size()

    def _column_of(self, file: int, name: str) -> Iterable[pa.RecordBatch]:
        groups = range(self._metadata[file].num_row_groups)
        for first in groups[::_AT_ONCE]:
            for table in self._read(file, groups[first : first + _AT_ONCE], [name]):
                yield from table.to_batches()


def _leaves(group: Any, columns: list[str]) -> list[Any]:
    """Return what a row group has of some columns; one with a structure is several."""
    leaves = (group.column(number) for number in range(group.num_columns))
    return [leaf for leaf in leaves if leaf.path_in_schema.partition(".")[0] in columns or leaf.path_in_schema in columns]


def _range(file: UnchangingFile, leaf: Any) -> FileRange:
    """Return where in the file it lies."""
    begin = leaf.dictionary_page_offset if leaf.has_dictionary_page and leaf.dictionary_page_offset else leaf.data_page_offset
    return FileRange(file, begin, leaf.total_compressed_size)

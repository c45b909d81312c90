"""Parquet files, read row group by row group."""

from __future__ import annotations

import io
from collections.abc import Iterable
from typing import Any

from highway.datasets.file import UnchangingFile
from highway.datasets.tables.files import FilesTable
from highway.datasets.tables.library import pa, pq
from highway.datasets.tables.rows import DecodedRows
from highway.datasets.tables.table import Piece
from highway.engine.cancel import check_cancelled
from highway.errors import DatasetError


class _Stream(io.RawIOBase):
    """A file as pyarrow reads one; each has a position of its own."""

    def __init__(self, file: UnchangingFile) -> None:
        self._file, self._position = file, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._position = offset + (0, self._position, self._file.state.size)[whence]
        return self._position

    def size(self) -> int:
        return self._file.state.size

    def read(self, size: int = -1) -> bytes:
        check_cancelled()
        there = self._file.state.size - self._position
        data = self._file.read(self._position, there if size < 0 else min(size, there))
        self._position += len(data)
        return data


class ParquetTable(FilesTable):
    """The rows of Parquet files."""

    format, piece = "Parquet", "row group"

    def __init__(self, *args: Any) -> None:
        self._metadata: list[pq.FileMetaData] = []
        super().__init__(*args)
        for piece in self.pieces:
            self._check_size(piece)

    def _file(self, file: int, metadata: Any = None) -> pq.ParquetFile:
        return pq.ParquetFile(_Stream(self.open(file)), metadata=metadata, pre_buffer=False)

    def _layout(self, file: int) -> tuple[pa.Schema, list[int]]:
        opened = self._file(file)
        self._metadata.append(opened.metadata)
        return opened.schema_arrow, [opened.metadata.row_group(number).num_rows for number in range(opened.num_row_groups)]

    def _check_size(self, piece: Piece) -> None:
        """Raise DatasetError if a row group does not fit into the memory that there is for all of them."""
        group, columns = self._metadata[piece.file].row_group(piece.index), self.selection.columns
        if group.total_byte_size <= self.budget:
            return
        leaves = [group.column(number) for number in range(group.num_columns)]
        wanted = [leaf for leaf in leaves if leaf.path_in_schema.partition(".")[0] in columns or leaf.path_in_schema in columns]
        if (size := sum(leaf.total_uncompressed_size for leaf in wanted)) > self.budget:
            raise DatasetError(
                f"{self.names[piece.file]}: row group {piece.index} has {piece.rows} rows of {size >> 20} MB together, and is read as a "
                f"whole; more than cache_mb={self.budget >> 20} allows: write the file anew with smaller row groups (parquet_writer does), "
                "raise cache_mb, or read fewer columns by fields="
            )

    def _decode_piece(self, piece: Piece) -> tuple[DecodedRows, int]:
        columns = self.selection.columns
        table = self._file(piece.file, self._metadata[piece.file]).read_row_group(
            piece.index, list(dict.fromkeys(columns)), use_threads=False
        )
        if table.num_rows != piece.rows:
            raise pa.ArrowInvalid(f"expected {piece.rows} rows, found {table.num_rows}")
        table.validate(full=True)
        return DecodedRows(table.to_batches(), columns), table.get_total_buffer_size()

    def _column_of(self, file: int, name: str) -> Iterable[pa.RecordBatch]:
        column: pa.Table = self._file(file, self._metadata[file]).read([name], use_threads=False)
        yield from column.to_batches()

"""The rows of several files as one table."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from itertools import accumulate
from typing import Any, ClassVar

from highway.datasets.tables.backend import UNREADABLE, pa
from highway.datasets.tables.partitions import TableFile, columns_of
from highway.datasets.tables.rows import DecodedRows
from highway.datasets.tables.schema import Selection, check_same, select
from highway.datasets.tables.table import Piece, Table
from highway.engine.cancel import check_cancelled
from highway.errors import DatasetError, StoreError
from highway.stores.file import open_file, states_of
from highway.stores.url import shown

_OPEN = 100  # files that are open at once; most processes may open 1024


class FilesTable(Table):
    """The rows of several files.

    Args:
        found: Their paths, and the values in the names of their folders.
        fields: As for :func:`select`.
        key: As for :func:`select`.
        nulls: What stands for nulls, by field.
        budget: Bytes that decoded pieces may take.
    """

    format: ClassVar[str]  # what such files are called in messages
    selection: Selection

    def __init__(
        self, found: list[TableFile], fields: Mapping[str, str] | None, key: str | None, nulls: Mapping[str, Any] | None, budget: int
    ) -> None:
        files = [file.path for file in found]
        self.files, self.names, self.budget = files, list(map(shown, files)), budget
        states = [state for _, state in states_of((path, path) for path in files)]
        self.open = lru_cache(_OPEN)(lambda file: open_file(files[file], states[file]))
        pieces: list[Piece] = []
        for number, path in enumerate(self.names):
            check_cancelled()
            with self._naming(number, "no file of that format, damaged or cut short"):
                schema, rows = self._layout(number)
                if number == 0:
                    self.partitions = columns_of(found, schema.names)
                for name, values in self.partitions.items():
                    schema = schema.append(pa.field(name, values.type))
                if number == 0:
                    first, selection = schema, select(schema, fields, key, path)
                    if selection.key in self.partitions:
                        raise DatasetError(
                            f"{path}: key={key!r} is the name of a folder, which many rows share; name a column of the files"
                        )
                else:
                    check_same(selection, first, self.names[0], schema, path)
            firsts = accumulate(rows, initial=0)
            pieces += [Piece(number, index, begin, count) for index, (begin, count) in enumerate(zip(firsts, rows)) if count]
        super().__init__(pieces, first, selection, nulls, budget, self.names[0])

    @abstractmethod
    def _layout(self, file: int) -> tuple[pa.Schema, list[int]]:
        """Return the columns of a file, and how many rows each of its pieces has."""

    @abstractmethod
    def _decode_piece(self, piece: Piece) -> tuple[DecodedRows, int]:
        """Return what :meth:`_decode` does; raises what pyarrow does."""

    @abstractmethod
    def _column_of(self, file: int, name: str) -> Iterable[pa.RecordBatch]:
        """Return one column of a file; raises what pyarrow does."""

    def _check(self, file: int) -> None:
        if (opened := self.open(file)).is_here:  # of those in a store each answer says what they are
            opened.check()

    def _decode(self, piece: Piece) -> tuple[DecodedRows, int]:
        with self._naming(piece.file, f"{self.piece} {piece.index} is damaged or cut short"):
            self._check(piece.file)
            return self._decode_piece(piece)

    def _column(self, name: str) -> Iterator[pa.RecordBatch]:
        for number, path in enumerate(self.names):
            with self._naming(number, f"column {name!r} is damaged or cut short"):
                for batch in self._column_of(number, name):
                    if batch.column(name).null_count:
                        raise DatasetError(f"{path}: column {name!r} has nulls among the keys; name another one by key=")
                    yield batch

    @property
    def in_files(self) -> list[str]:
        """The columns to read that are in the files, and not in the names of their folders."""
        return [name for name in dict.fromkeys(self.selection.columns) if name not in self.partitions]

    def with_partitions(self, batches: list[pa.RecordBatch], piece: Piece) -> list[pa.RecordBatch]:
        """Return the rows of a piece with the columns that are in the names of its folders."""
        values = {name: column[piece.file] for name, column in self.partitions.items() if name in self.selection.columns}
        if not self.in_files:
            return [pa.record_batch({name: pa.repeat(value, piece.rows) for name, value in values.items()})]
        for name, value in values.items():
            batches = [batch.append_column(name, pa.repeat(value, batch.num_rows)) for batch in batches]
        return batches

    def _where(self, piece: Piece, row: int) -> str:
        return f"{self.names[piece.file]}: row {piece.first + row}"

    @contextmanager
    def _naming(self, file: int, what: str) -> Iterator[None]:
        """Have errors of pyarrow say which file they are about."""
        try:
            yield
        except UNREADABLE as error:
            if isinstance(error, (StoreError, FileNotFoundError, PermissionError)) or (isinstance(error, OSError) and error.errno):
                raise
            raise DatasetError(f"{self.names[file]}: {self.format}: {what}; {error}") from error

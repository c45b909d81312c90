"""Base class of tables whose rows are in several files."""

from __future__ import annotations

import glob
import os
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate
from typing import Any, ClassVar, Generic, TypeVar

from highway.datasets.opened import MOST_OPEN
from highway.datasets.paths import files_below, files_of
from highway.datasets.tables.backend import pa, unreadable
from highway.datasets.tables.partitions import TableFile, columns_of, table_files
from highway.datasets.tables.rows import DecodedRows
from highway.datasets.tables.schema import Selection, check_same, select
from highway.datasets.tables.stream import Held
from highway.datasets.tables.table import Piece, Table, TableLayout
from highway.engine.cancel import check_cancelled
from highway.errors import DatasetError, StoreError
from highway.parameters.ranges import Count
from highway.stores.file import fingerprint_of, open_file, states_of
from highway.stores.unchanging import UnchangingFile
from highway.stores.url import is_url, shown, without_options

_HIDDEN = (".", "_")

F = TypeVar("F")


class FilesLayout(TableLayout, Generic[F]):
    """The files of a table.

    Args:
        found: The files, each with the column values in the names of its folders; see :mod:`highway.datasets.tables.partitions`.

    Attributes:
        names: Names of the files in messages.
        open: A function that opens a file. The argument is the index of the file.
        details: Information about each file, such as its Parquet metadata.
        footers: The last bytes of the next files, if these bytes were fetched in advance.
        partitions: The columns whose values are in the names of folders, with one value per file.
    """

    def __init__(self, found: list[TableFile]) -> None:
        files = [file.path for file in found]
        self.files, self.names = files, list(map(shown, files))
        states = [state for _, state in states_of((path, path) for path in files)]
        self.open: Callable[[int], UnchangingFile] = lru_cache(MOST_OPEN)(lambda file: open_file(files[file], states[file]))
        self.details: list[F] = []
        self.footers: Sequence[Sequence[Held]] = ()
        self.partitions: Mapping[str, pa.Array] = {}

    def settle(self, pieces: list[Piece], schema: pa.Schema, selection: Selection, nulls: Mapping[str, Any] | None, budget: int) -> None:
        """Set the pieces and columns. This method must be called after all files were opened."""
        super().__init__(pieces, schema, selection, nulls, budget, self.names[0])

    @property
    def in_files(self) -> list[str]:
        """The names of the columns to read from the files, without the columns in the names of folders."""
        return [name for name in dict.fromkeys(self.selection.columns) if name not in self.partitions]

    def with_partitions(self, batches: list[pa.RecordBatch], piece: Piece) -> list[pa.RecordBatch]:
        """Add the columns in the names of folders to the batches of a piece."""
        values = {name: column[piece.file] for name, column in self.partitions.items() if name in self.selection.columns}
        if not self.in_files:
            return [pa.record_batch({name: pa.repeat(value, piece.rows) for name, value in values.items()})]
        for name, value in values.items():
            batches = [batch.append_column(name, pa.repeat(value, batch.num_rows)) for batch in batches]
        return batches


@dataclass
class FilesTable(Table[FilesLayout[F]]):
    """Base class of datasets whose rows are in several files."""

    format: ClassVar[str]  # the name of the file format in messages
    suffixes: ClassVar[tuple[str, ...]]

    paths: str | list[str]
    fields: dict[str, str] | None = None
    key: str | None = None
    nulls: dict[str, Any] | None = None
    cache_mb: Count = 1024

    @abstractmethod
    def _details(self, layout: FilesLayout[F], file: int) -> tuple[F, pa.Schema, list[int]]:
        """Return information about a file, the columns of the file, and the number of rows of each piece."""

    @abstractmethod
    def _decode_piece(self, layout: FilesLayout[F], piece: Piece) -> tuple[DecodedRows, int]:
        """Decode a piece for :meth:`_decode`. Raises pyarrow's errors."""

    @abstractmethod
    def _column_of(self, layout: FilesLayout[F], file: int, name: str) -> Iterable[pa.RecordBatch]:
        """Yield one column of a file. Raises pyarrow's errors."""

    @property
    def files(self) -> list[str]:
        """The paths of the files that exist now."""
        return [file.path for file in self._found()]

    def _found(self) -> list[TableFile]:
        paths = [self.paths] if isinstance(self.paths, str) else self.paths
        return table_files([(path, self._files_at(path)) for path in paths])

    def _files_at(self, path: str) -> Sequence[str]:
        return files_at(path, self.suffixes)

    def fingerprint(self) -> str:
        """Return a string that changes when files are added, removed, renamed or written to.

        The string also depends on ``fields``, ``key`` and ``nulls``.
        """
        return f"{fingerprint_of((path, path) for path in self.files)} {self.fields} {self.key} {self.nulls}"

    def _open(self) -> FilesLayout[F]:
        found = self._found()
        layout = FilesLayout[F](found)
        pieces: list[Piece] = []
        for number, path in enumerate(layout.names):
            check_cancelled()
            with self._naming(path, "not a file of this format, or damaged or truncated"):
                details, schema, rows = self._details(layout, number)
                layout.details.append(details)
                if number == 0:
                    layout.partitions = columns_of(found, schema.names)
                for name, values in layout.partitions.items():
                    schema = schema.append(pa.field(name, values.type))
                if number == 0:
                    first, selection = schema, self._selection(schema, layout)
                else:
                    check_same(selection, first, layout.names[0], schema, path)
            firsts = accumulate(rows, initial=0)
            pieces += [Piece(number, index, begin, count) for index, (begin, count) in enumerate(zip(firsts, rows)) if count]
        layout.settle(pieces, first, selection, self.nulls, self.cache_mb << 20)
        return layout

    def _selection(self, schema: pa.Schema, layout: FilesLayout[F]) -> Selection:
        path, selection = layout.names[0], select(schema, self.fields, self.key, layout.names[0])
        if selection.key in layout.partitions:
            raise DatasetError(
                f"{path}: key={self.key!r} is a column in folder names, whose values many rows share; select a column of the files"
            )
        return selection

    def _check(self, layout: FilesLayout[F], file: int) -> None:
        if (found := layout.open(file)).is_here:  # for a file in an object store, each response is checked
            found.check()

    def _decode(self, layout: FilesLayout[F], piece: Piece) -> tuple[DecodedRows, int]:
        with self._naming(layout.names[piece.file], f"{self.piece} {piece.index} is damaged or truncated"):
            self._check(layout, piece.file)
            return self._decode_piece(layout, piece)

    def _column(self, layout: FilesLayout[F], name: str) -> Iterator[pa.RecordBatch]:
        for number, path in enumerate(layout.names):
            with self._naming(path, f"column {name!r} is damaged or truncated"):
                for batch in self._column_of(layout, number, name):
                    if batch.column(name).null_count:
                        raise DatasetError(f"{path}: the key column {name!r} contains nulls; select another column by key=")
                    yield batch

    def _where(self, layout: FilesLayout[F], piece: Piece, row: int) -> str:
        return f"{layout.names[piece.file]}: row {piece.first + row}"

    @contextmanager
    def _naming(self, name: str, what: str) -> Iterator[None]:
        """Convert pyarrow's errors to DatasetErrors that name the file."""
        try:
            yield
        except unreadable() as error:
            if isinstance(error, (StoreError, FileNotFoundError, PermissionError)) or (isinstance(error, OSError) and error.errno):
                raise
            raise DatasetError(f"{name}: {self.format}: {what}; {error}") from error


def files_at(path: str, suffixes: Sequence[str]) -> list[str]:
    """Return the files of a path. For a folder, return the files that have one of the suffixes, also in subfolders.

    For any other path, braces and patterns are expanded. As in pyarrow, files and folders whose names begin with ``.`` or ``_`` are
    skipped. Usually, these are unfinished files, backups or metadata.

    Raises:
        FileNotFoundError: the path has no files.
    """
    if is_url(path):
        name = without_options(path)
        if glob.has_magic(name) or _ends(name, suffixes):
            return files_of(path)
        from highway.stores.listing import listing_of  # imported here, because local files do not need this module

        listing = listing_of(path)
        seen = [number for number, key in enumerate(listing.keys) if not any(part.startswith(_HIDDEN) for part in key.split("/"))]
        found = [listing.object(number).url.with_options for number in seen if _ends(listing.keys[number], suffixes)]
    elif os.path.isdir(path):
        found = [os.path.join(path, key) for key in files_below(path, hidden=_HIDDEN) if _ends(key, suffixes)]
    else:
        return files_of(path)
    if not found:
        raise FileNotFoundError(f"{shown(path)!r}: no file in this folder or its subfolders ends in {' or '.join(suffixes)}")
    return found


def _ends(name: str, suffixes: Sequence[str]) -> bool:
    return name.lower().endswith(tuple(suffixes))

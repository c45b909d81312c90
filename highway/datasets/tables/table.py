"""The rows of several files as one table, read piece by piece: row groups, record batches."""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate, pairwise
from typing import Any, ClassVar

from highway.datasets.file import FileState, UnchangingFile
from highway.datasets.opened import opened
from highway.datasets.tables.library import UNREADABLE, pa
from highway.datasets.tables.pieces import Pieces
from highway.datasets.tables.schema import check_same, class_names, select
from highway.datasets.tables.values import IN_MEMORY, Access, Value, values_of
from highway.engine.cancel import check_cancelled
from highway.errors import DatasetError

log = logging.getLogger("highway")

_OPEN = 100  # files that are open at once; most processes may open 1024
_OFTEN = 64  # pieces that were decoded again before it is worth a word


@dataclass(frozen=True, slots=True)
class Piece:
    """What is decoded together.

    Args:
        file: The number of its file.
        index: Its number there.
        first: The number of its first row in the file.
        rows: How many it has.
    """

    file: int
    index: int
    first: int
    rows: int


class DecodedRows:
    """Rows that have been decoded.

    Args:
        batches: The rows, one batch after the other.
        columns: Those whose values are wanted.
        access: How they are got at.
    """

    def __init__(self, batches: Sequence[pa.RecordBatch], columns: Sequence[str], access: Access = IN_MEMORY) -> None:
        self._starts = list(accumulate((batch.num_rows for batch in batches[:-1]), initial=0))
        self._values = [[values_of(batch.column(name), batch.schema.field(name), access) for name in columns] for batch in batches]

    def at(self, row: int) -> tuple[list[Value], int]:
        """Return what returns the values of a row, and its number for these."""
        if len(self._starts) == 1:
            return self._values[0], row
        batch = bisect_right(self._starts, row) - 1
        return self._values[batch], row - self._starts[batch]


class Table(ABC):
    """The rows of several files.

    Args:
        files: Their paths.
        fields: As for :func:`select`.
        key: As for :func:`select`.
        nulls: What stands for nulls, by field.
        budget: Bytes that decoded pieces may take.
    """

    format: ClassVar[str]  # what such files are called in messages
    piece: ClassVar[str]

    def __init__(
        self, files: list[str], fields: Mapping[str, str] | None, key: str | None, nulls: Mapping[str, Any] | None, budget: int
    ) -> None:
        self.files, self.budget, self._nulls = files, budget, nulls or {}
        self._states: list[FileState] = []
        self.open = lru_cache(_OPEN)(lambda file: UnchangingFile(files[file], self._states[file] if file < len(self._states) else None))
        self.pieces: list[Piece] = []
        for number, path in enumerate(files):
            check_cancelled()
            self._states.append(self.open(number).state)
            with self._naming(number, "no file of that format, damaged or cut short"):
                schema, rows = self._layout(number)
                if number == 0:
                    self.schema, self.selection = schema, select(schema, fields, key, path)
                else:
                    check_same(self.selection, self.schema, files[0], schema, path)
            firsts = accumulate(rows, initial=0)
            self.pieces += [Piece(number, index, first, count) for index, (first, count) in enumerate(zip(firsts, rows)) if count]
        if strange := [field for field in self._nulls if field not in self.selection.fields]:
            raise DatasetError(f"{files[0]}: nulls= names {strange[0]!r}; the fields are {', '.join(self.selection.fields)}")
        self.classes = class_names(self.schema, self.selection)
        self._ends = list(accumulate((piece.rows for piece in self.pieces), initial=0))
        self._decoded = Pieces(self._decode_named, budget)
        self._given = self._times = 0  # samples, and times that a piece was decoded

    @abstractmethod
    def _layout(self, file: int) -> tuple[pa.Schema, list[int]]:
        """Return the columns of a file, and how many rows each of its pieces has."""

    @abstractmethod
    def _decode(self, piece: Piece) -> tuple[DecodedRows, int]:
        """Return the rows of a piece, the values being those of ``selection.columns``, and how many bytes of memory they take."""

    @abstractmethod
    def _column(self, file: int, name: str) -> Iterable[pa.RecordBatch]:
        """Return one column of a file."""

    def __len__(self) -> int:
        return self._ends[-1]

    def samples(self, numbers: Sequence[int]) -> list[dict[str, Any]]:
        """Return several samples, each piece that has some of them being decoded once."""
        places: dict[int, list[tuple[int, int]]] = {}
        for place, number in enumerate(numbers):
            number = range(self._ends[-1])[number]
            piece = bisect_right(self._ends, number) - 1
            places.setdefault(piece, []).append((place, number - self._ends[piece]))
        samples: list[dict[str, Any]] = [{}] * len(numbers)
        for piece, rows in self._decoded.each(places):
            self.open(self.pieces[piece].file).check()
            for place, row in places[piece]:
                samples[place] = self._sample(piece, row, *rows.at(row))
        self._given += len(numbers)
        return samples

    def _sample(self, piece: int, row: int, values: Sequence[Value], at: int) -> dict[str, Any]:
        sample: dict[str, Any] = {}
        for field, value in zip(self.selection.fields, values):
            try:
                found = value(at)
                if found is None:
                    found = self._for_null(field)
            except ValueError as error:  # DatasetError, too
                column = self.selection.columns[len(sample)]
                raise DatasetError(f"{self.locate(self._ends[piece] + row)}, column {column!r}: {error}") from error
            sample[field] = found
        return sample

    def _for_null(self, field: str) -> Any:
        if field not in self._nulls:
            raise DatasetError(f"it is null; say nulls={{{field!r}: ...}} for what is to stand there, or leave the column out by fields=")
        return self._nulls[field]

    def _decode_named(self, number: int) -> tuple[DecodedRows, int]:
        piece = self.pieces[number]
        with self._naming(piece.file, f"{self.piece} {piece.index} is damaged or cut short"):
            decoded = self._decode(piece)
        self._times += 1
        if self._decoded.again == _OFTEN and self._given < self._times * len(self) / len(self.pieces) / 4:
            rows, where = len(self) // len(self.pieces), self.files[0]
            rows, where = len(self) // len(self.pieces), self.files[0]
            log.warning(
                f"{where}: {self.piece}s were decoded {self._times} times for {self._given} samples, though each has some {rows}; read it "
                f"by shuffle='blocks' with a window that fits into cache_mb={self.budget >> 20}, or have `highway convert` write an Arrow "
                "file, whose rows are read one by one"
            )
        return decoded

    @contextmanager
    def _naming(self, file: int, what: str) -> Iterator[None]:
        """Have errors of pyarrow say which file they are about."""
        try:
            yield
        except UNREADABLE as error:
            if isinstance(error, OSError) and error.errno:  # of the system
                raise
            raise DatasetError(f"{self.files[file]}: {self.format}: {what}; {error}") from error

    @opened
    def _keys(self) -> DecodedRows | None:
        """The column of the keys."""
        name, batches = self.selection.key, list[pa.RecordBatch]()
        if name is None:
            return None
        for number, path in enumerate(self.files):
            with self._naming(number, f"column {name!r} is damaged or cut short"):
                batches += (batch for batch in self._column(number, name) if batch.num_rows)
            if any(batch.column(name).null_count for batch in batches):
                raise DatasetError(f"{path}: column {name!r} has nulls among the keys; name another one by key=")
        return DecodedRows(batches, [name])

    def key(self, number: int) -> str:
        """Return the key of a row: its number, if there is no column of keys."""
        if (keys := self._keys) is None:
            return str(number)
        (value,), row = keys.at(number)
        found = value(row)
        return found.decode(errors="backslashreplace") if isinstance(found, bytes) else str(found)

    def blocks(self) -> list[range]:
        """Return the numbers of the rows of each piece."""
        return [range(*ends) for ends in pairwise(self._ends)]

    def locate(self, number: int) -> str:
        """Return the file of a row, and its number there."""
        number = range(self._ends[-1])[number]
        place = bisect_right(self._ends, number) - 1
        piece = self.pieces[place]
        return f"{self.files[piece.file]}: row {piece.first + number - self._ends[place]}"

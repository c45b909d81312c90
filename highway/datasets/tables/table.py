"""Rows by number that are read piece by piece: row groups, record batches."""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from highway.datasets.opened import opened
from highway.datasets.parts import Spans
from highway.datasets.tables.backend import pa
from highway.datasets.tables.pieces import Pieces
from highway.datasets.tables.rows import DecodedRows, SampleFields, key_text
from highway.datasets.tables.schema import Selection, class_names

log = logging.getLogger("highway")

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


class Table(ABC):
    """Rows that are read piece by piece.

    Args:
        pieces: All that have rows.
        schema: The columns.
        selection: Which of them are read.
        nulls: What stands for nulls, by field.
        budget: Bytes that decoded pieces may take.
        name: What it is called in messages.
    """

    piece: ClassVar[str]  # what a piece is called in messages

    def __init__(
        self, pieces: list[Piece], schema: pa.Schema, selection: Selection, nulls: Mapping[str, Any] | None, budget: int, name: str
    ) -> None:
        self.pieces, self.selection, self.budget, self._name = pieces, selection, budget, name
        self.classes = class_names(schema, selection)
        self._fields = SampleFields(selection, nulls, name)
        self.spans = Spans(piece.rows for piece in pieces)
        self._decoded: Pieces[DecodedRows] = Pieces(budget)
        self._given = self._times = 0  # samples, and times that a piece was decoded
        self._kept = 0  # bytes that were decoded since pyarrow has given memory back

    @abstractmethod
    def _decode(self, piece: Piece) -> tuple[DecodedRows, int]:
        """Return the rows of a piece, the values being those of ``selection.columns``, and how many bytes of memory they take."""

    @abstractmethod
    def _column(self, name: str) -> Iterable[pa.RecordBatch]:
        """Return one column of all pieces, without nulls."""

    @abstractmethod
    def _where(self, piece: Piece, row: int) -> str:
        """Return what messages call a row of a piece."""

    def _check(self, file: int) -> None:  # noqa: B027  # there need be nothing that can change
        """Raise DatasetError if a file has changed."""

    def __len__(self) -> int:
        return len(self.spans)

    def samples(self, numbers: Sequence[int]) -> list[dict[str, Any]]:
        """Return several samples, each piece that has some of them being decoded once."""
        places = self.spans.rows_by_part(numbers)
        for file in {self.pieces[piece].file for piece in places}:
            self._check(file)
        samples: list[dict[str, Any]] = [{}] * len(numbers)
        for piece, rows in self._decoded.each(places, self._decode_counted):
            for place, row in places[piece]:
                samples[place] = self._fields.sample(*rows.at(row), lambda: self._where(self.pieces[piece], row))  # noqa: B023
        self._given += len(numbers)
        return samples

    def _decode_counted(self, number: int) -> tuple[DecodedRows, int]:
        decoded = self._decode(self.pieces[number])
        self._times += 1
        self._kept += decoded[1]
        if self._kept > self.budget // 16:  # else pyarrow keeps what is forgotten here, several times the budget
            self._kept = 0
            pa.default_memory_pool().release_unused()
        if self._decoded.again == _OFTEN and self._given < self._times * len(self) / len(self.pieces) / 4:
            rows = len(self) // len(self.pieces)
            log.warning(
                f"{self._name}: {self.piece}s were decoded {self._times} times for {self._given} samples, though each has some {rows}; "
                f"read it by shuffle='blocks' with a window that fits into cache_mb={self.budget >> 20}, or have `highway convert` write "
                "an Arrow file, whose rows are read one by one"
            )
        return decoded

    @opened
    def _keys(self) -> DecodedRows | None:
        """The column of the keys."""
        name = self.selection.key
        return None if name is None else DecodedRows([batch for batch in self._column(name) if batch.num_rows], [name])

    def key(self, number: int) -> str:
        """Return the key of a row: its number, if there is no column of keys."""
        if (keys := self._keys) is None:
            return str(number)
        (value,), row = keys.at(number)
        return key_text(value(row))

    def blocks(self) -> list[range]:
        """Return the numbers of the rows of each piece."""
        return self.spans.blocks()

    def locate(self, number: int) -> str:
        """Return what messages call a row."""
        piece, row = self.spans.place(number)
        return self._where(self.pieces[piece], row)

"""Base class of tables that are read in pieces. A piece is a row group (Parquet) or a record batch (Arrow)."""

from __future__ import annotations

import logging
from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, TypeVar

from highway.datasets.dataset import LazyKeys
from highway.datasets.opened import opened
from highway.datasets.parts import PartedDataset, Spans
from highway.datasets.tables.backend import pa
from highway.datasets.tables.pieces import Pieces
from highway.datasets.tables.rows import DecodedRows, SampleFields, key_text
from highway.datasets.tables.schema import Selection, class_names

log = logging.getLogger("highway")

_OFTEN = 64  # number of repeated decodings after which a warning is logged


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of a table that is decoded as a whole.

    Args:
        file: The index of the file that contains the piece.
        index: The index of the piece in the file.
        first: The index of the first row of the piece in the file.
        rows: Number of rows.
    """

    file: int
    index: int
    first: int
    rows: int


class TableLayout:
    """An open table: its structure, and the cache of its decoded pieces.

    Args:
        pieces: All pieces that are not empty.
        schema: The names and types of all columns.
        selection: The columns to read.
        nulls: A dict from field names to values that replace nulls.
        budget: Maximum number of bytes of decoded pieces.
        name: Name of the table in messages.
    """

    def __init__(
        self, pieces: list[Piece], schema: pa.Schema, selection: Selection, nulls: Mapping[str, Any] | None, budget: int, name: str
    ) -> None:
        self.pieces, self.selection, self.budget, self.name = pieces, selection, budget, name
        self.classes = class_names(schema, selection)
        self.fields = SampleFields(selection, nulls, name)
        self.spans = Spans(piece.rows for piece in pieces)
        self.decoded: Pieces[DecodedRows] = Pieces(budget)
        self.given = self.times = 0  # number of samples returned, and of pieces decoded
        self.kept = 0  # number of bytes that were decoded since release_unused() was last called


L = TypeVar("L", bound=TableLayout)


class Table(PartedDataset, Generic[L]):
    """Base class of tables. A sample is a row as a dict. Rows are decoded piece by piece."""

    piece: ClassVar[str]  # the name of a piece in messages

    @abstractmethod
    def _open(self) -> L:
        """Open the table."""

    @abstractmethod
    def _decode(self, layout: L, piece: Piece) -> tuple[DecodedRows, int]:
        """Decode a piece. Return the rows (with the columns in ``selection.columns``), and the number of bytes of the rows in memory."""

    @abstractmethod
    def _column(self, layout: L, name: str) -> Iterable[pa.RecordBatch]:
        """Return one column of all pieces. Raises DatasetError if the column contains nulls."""

    def _where(self, layout: L, piece: Piece, row: int) -> str:
        """Return the name of a row of a piece, for messages."""
        return f"{layout.name}: row {piece.first + row}"

    def _check(self, layout: L, file: int) -> None:  # overridden by tables whose files can change
        """Raise DatasetError if a file has changed."""

    @opened
    def _layout(self) -> L:
        return self._open()

    @property
    def spans(self) -> Spans:
        return self._layout.spans

    def __getitem__(self, number: int) -> dict[str, Any]:
        return self._samples([number])[0]

    def __getitems__(self, numbers: Sequence[int]) -> list[dict[str, Any]]:
        """Return several samples. A piece is decoded once for all samples."""
        return self._samples(numbers)

    def _samples(self, numbers: Sequence[int]) -> list[dict[str, Any]]:
        layout = self._layout
        places = layout.spans.rows_by_part(numbers)
        for file in {layout.pieces[piece].file for piece in places}:
            self._check(layout, file)
        samples: list[dict[str, Any]] = [{}] * len(numbers)
        for piece, rows in layout.decoded.each(places, self._decode_counted):
            for place, row in places[piece]:
                samples[place] = layout.fields.sample(*rows.at(row), lambda: self._where(layout, layout.pieces[piece], row))  # noqa: B023
            layout.decoded.take(piece, len(places[piece]), layout.pieces[piece].rows)
        layout.given += len(numbers)
        return samples

    def _decode_counted(self, number: int) -> tuple[DecodedRows, int]:
        layout = self._layout
        decoded = self._decode(layout, layout.pieces[number])
        layout.times += 1
        layout.kept += decoded[1]
        if layout.kept > layout.budget // 16:  # otherwise pyarrow keeps freed memory, up to several times the budget
            layout.kept = 0
            pa.default_memory_pool().release_unused()
        if layout.decoded.again == _OFTEN and layout.given < layout.times * len(layout.spans) / len(layout.pieces) / 4:
            rows = len(layout.spans) // len(layout.pieces)
            log.warning(
                f"{layout.name}: this order is slow: {self.piece}s were decoded {layout.times} times to read {layout.given} samples, and "
                f"each {self.piece} has about {rows} rows; use shuffle='blocks' with a window that fits into "
                f"cache_mb={layout.budget >> 20}, or write an Arrow file with `highway convert`, whose rows can be read one by one"
            )
        return decoded

    @opened
    def _keys(self) -> DecodedRows | None:
        """The key column; ``None`` if the table has no key column."""
        layout = self._layout
        if (name := layout.selection.key) is None:
            return None
        return DecodedRows([batch for batch in self._column(layout, name) if batch.num_rows], [name])

    def _key(self, number: int) -> str:
        """Return the key of a row. Without a key column, return the row number."""
        if (keys := self._keys) is None:
            return str(number)
        (value,), row = keys.at(number)
        return key_text(value(row))

    @property
    def keys(self) -> Sequence[str]:
        """The keys of the samples: the values of the key column. Without a key column, the row numbers."""
        return LazyKeys(self._key, len(self))

    @property
    def classes(self) -> list[str] | None:
        """The names of the labels; ``None`` if Hugging Face did not store names in the table."""
        return self._layout.classes

    def locate(self, number: int) -> str:
        """Return the file of a sample, and the row number of the sample in the file."""
        layout = self._layout
        piece, row = layout.spans.place(number)
        return self._where(layout, layout.pieces[piece], row)

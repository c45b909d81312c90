"""The memory of a table of Hugging Face, read row by row."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate
from typing import Any

import numpy as np

from highway.datasets.tables.backend import pa
from highway.datasets.tables.rows import DecodedRows
from highway.datasets.tables.schema import select
from highway.datasets.tables.table import Piece, Table
from highway.datasets.tables.values import Access, in_memory
from highway.engine.cancel import check_cancelled
from highway.errors import ConfigError, DatasetError
from highway.stores.file import read_whole


class HubTable(Table):
    """The rows of a table of Hugging Face, in its order.

    Args:
        dataset: A ``datasets.Dataset``.
        fields: As for :func:`select`.
        key: As for :func:`select`.
        nulls: What stands for nulls, by field.
        name: What it is called in messages.
    """

    piece = "record batch"

    def __init__(self, dataset: Any, fields: Mapping[str, str] | None, key: str | None, nulls: Mapping[str, Any] | None, name: str) -> None:
        table: pa.Table = dataset.data.table
        form = dataset.format
        wanted = None if form["output_all_columns"] else {*form["columns"], key}
        table = table.select([column for column in table.column_names if wanted is None or column in wanted])
        selection = select(table.schema, fields, key, name)
        self._batches = [batch for batch in table.select(selection.needed).to_batches() if batch.num_rows]
        self._order = _order_of(dataset._indices)
        firsts = accumulate((batch.num_rows for batch in self._batches), initial=0)
        pieces = [Piece(0, number, first, batch.num_rows) for number, (first, batch) in enumerate(zip(firsts, self._batches))]
        super().__init__(pieces, dataset.features.arrow_schema, selection, nulls, 0, name)

    def _decode(self, piece: Piece) -> tuple[DecodedRows, int]:
        batch = self._batches[piece.index]
        batch.validate(full=True)  # since nothing looks after offsets when single rows are read
        return DecodedRows([batch], self.selection.columns, Access(in_memory, read_whole)), 0

    def _column(self, name: str) -> Iterator[pa.RecordBatch]:
        for batch in self._batches:
            check_cancelled()
            if batch.column(name).null_count:
                raise DatasetError(f"{self._name}: column {name!r} has nulls among the keys; name another one by key=")
            yield batch.select([name])

    def _where(self, piece: Piece, row: int) -> str:
        return f"{self._name}: row {piece.first + row}"

    def _rows(self, numbers: Sequence[int]) -> list[int]:
        """Return where in memory the rows of these numbers lie."""
        numbers = [range(len(self))[number] for number in numbers]
        rows: list[int] = numbers if self._order is None else self._order[numbers].tolist()
        return rows

    def __len__(self) -> int:
        return super().__len__() if self._order is None else len(self._order)

    def samples(self, numbers: Sequence[int]) -> list[dict[str, Any]]:
        return super().samples(self._rows(numbers))

    def key(self, number: int) -> str:
        return str(number) if self.selection.key is None else super().key(*self._rows([number]))

    def locate(self, number: int) -> str:
        return super().locate(*self._rows([number]))

    def blocks(self) -> list[range]:
        if self._order is not None:
            raise ConfigError(
                f"shuffle='blocks': {self._name} has an order of its own, by its select, filter or shuffle, so that neighbours do not lie "
                "together; say shuffle=True, or dataset.flatten_indices()"
            )
        return super().blocks()


def _order_of(indices: Any) -> np.ndarray | None:
    """Return which row stands where, without a copy if that lies together; ``None``: as they lie."""
    if indices is None:
        return None
    column = indices.column(0)
    rows: np.ndarray = column.chunk(0).to_numpy() if column.num_chunks == 1 else column.to_numpy()
    return rows

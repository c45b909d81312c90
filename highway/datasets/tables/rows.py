"""Convert decoded rows to samples."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from highway.datasets.parts import Spans
from highway.datasets.tables.backend import pa
from highway.datasets.tables.schema import Selection
from highway.datasets.tables.values import IN_MEMORY, Access, Value, values_of
from highway.errors import DatasetError


class DecodedRows:
    """Decoded rows.

    Args:
        batches: The rows, in consecutive batches.
        columns: The columns to convert.
        access: How to access the memory of the rows.
    """

    def __init__(self, batches: Sequence[pa.RecordBatch], columns: Sequence[str], access: Access = IN_MEMORY) -> None:
        self._spans = Spans(batch.num_rows for batch in batches)
        self._values = [[values_of(batch.column(name), batch.schema.field(name), access) for name in columns] for batch in batches]

    def at(self, row: int) -> tuple[list[Value], int]:
        """Return a function for each column, and an index. Called with this index, a function returns the value in the row."""
        if len(self._values) == 1:
            return self._values[0], row
        batch, row = self._spans.place(row)
        return self._values[batch], row


class SampleFields:
    """Converts rows to samples.

    Args:
        selection: The columns to read, and the names of their fields.
        nulls: A dict from field names to values that replace nulls.
        path: The path of the table, for error messages.

    Raises:
        DatasetError: ``nulls`` has a name that is not a field.
    """

    def __init__(self, selection: Selection, nulls: Mapping[str, Any] | None, path: str) -> None:
        self._selection, self._nulls = selection, nulls or {}
        if strange := [field for field in self._nulls if field not in selection.fields]:
            raise DatasetError(
                f"{path}: nulls= contains {strange[0]!r}, which is not a field; the fields are {', '.join(selection.fields)}"
            )

    def sample(self, values: Sequence[Value], at: int, where: Callable[[], str]) -> dict[str, Any]:
        """Return a sample.

        Args:
            values: A function for each column in ``selection.columns``. The function returns the value at an index.
            at: The index to pass to these functions.
            where: A function that returns a name of the row, for error messages.

        Raises:
            DatasetError: a value is null and has no replacement, or cannot be converted.
        """
        sample: dict[str, Any] = {}
        for field, value in zip(self._selection.fields, values):
            try:
                found = value(at)
                if found is None:
                    found = self._for_null(field)
            except ValueError as error:  # DatasetError is a ValueError
                raise DatasetError(f"{where()}, column {self._selection.columns[len(sample)]!r}: {error}") from error
            sample[field] = found
        return sample

    def _for_null(self, field: str) -> Any:
        if field not in self._nulls:
            raise DatasetError(f"the value is null; pass nulls={{{field!r}: ...}} as a replacement, or select other columns by fields=")
        return self._nulls[field]


def key_text(value: Any) -> str:
    """Convert a value of the key column to a key."""
    return value.decode(errors="backslashreplace") if isinstance(value, bytes) else str(value)

"""Pack whole sequences into rows of a fixed length."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain
from operator import ge
from typing import Any

from highway.engine.batch import Field
from highway.engine.channel import Together
from highway.engine.component import Position, Traits
from highway.engine.input import together
from highway.engine.ragged import Fill
from highway.engine.stage import Items, Stamped
from highway.modules.packing.sequences import (
    Bounds,
    Sequences,
    cost_of,
    length_of_row,
    packed_rows,
    sequences_at,
    sequences_of,
    stamped_row,
)
from highway.parameters.checks import checked
from highway.parameters.ranges import Count


@checked
@dataclass
class Pack:
    """Pack several sequences into each row of a fixed length. Each sequence goes into the first open row with enough room (first-fit).

    Sequences are not split. If a sequence does not fit into any open row, this stage yields all open rows and begins new rows. At the end
    of an epoch, this stage yields the remaining rows.

    Args:
        length: Number of values per row, as one number, or as a dict from fields to numbers.
        bins: Number of open rows, at least 1. More open rows reduce the padding.
        max_sequences_per_bin: Maximum number of sequences per row.
        fill: Padding value, as one number, or as a dict from fields to numbers.
        budgets: Limits for other fields in a row, such as ``{"images": 8, "patches": 2048}``. If the values of the field are arrays, the
            sum of their lengths is limited. If they are numbers, the sum of the numbers is limited. The values of such a field are only
            concatenated. The field gets no padding, segment ids or positions.
        cu_seqlens: Whether to add the fields that FlashAttention needs; see below.
        batched: Whether each input is a batch of sequences, from ``Reader`` or :class:`Batch` with ``ragged="list"`` or ``"offsets"``.
            Batches are about 10% faster than single sequences.

    Inputs are samples whose fields are sequences: arrays ``(n, ...)``, lists of numbers, or single numbers (length 1).

    Yields:
        Rows, as samples of the same type as the inputs. For an input field ``tokens``, the field ``tokens`` of a row, ``(length, ...)``,
        contains the concatenated sequences. A new field ``tokens_segment_ids``, int32 ``(length,)``, contains, for each value, the index of
        its sequence in the row, from 1; 0 is padding. A new field ``tokens_positions``, int32 ``(length,)``, contains the index of each
        value in its sequence, from 0. In tuples, the new fields come last. The passport (the metadata of a row) contains the index of the
        row and the keys of all sequences. Epoch, origin and times come from the first sequence.

        With ``cu_seqlens``, there are three more fields. ``tokens_cu_seqlens``, int32 ``(k + 1,)``, contains the start of each of the k
        sequences, and the end of the row. ``tokens_max_seqlen``, int32, is the length of the longest sequence. ``tokens_mask``, bool
        ``(length,)``, is False for padding. In these fields, padding counts as an additional last sequence. Therefore, attention writes
        every value of its output. With ``max_sequences_per_bin=m``, ``tokens_cu_seqlens`` always has m + 2 values, so that rows can be
        batched. If a row has fewer sequences, the last value is repeated. This means that empty sequences follow. A field of ``budgets``
        gets only ``<field>_cu_seqlens``.

    Raises:
        ValueError: a sequence does not fit into an empty row; or the inputs differ in their fields, or in a field's dtype or shape after
            the first axis. The message names the field.

    >>> import numpy as np
    >>> from highway import Pipeline
    >>> with Pipeline([[np.array([1, 1]), np.array([2, 2, 2]), np.array([3])], Pack(4, bins=2)]) as pipeline:
    ...     [[part.tolist() for part in row] for row in pipeline]
    [[[1, 1, 3, 0], [1, 1, 2, 0], [0, 1, 0, 0]], [[2, 2, 2, 0], [1, 1, 1, 0], [0, 1, 2, 0]]]
    """

    length: Count | dict[str | int, Count]
    bins: Count = 64
    max_sequences_per_bin: Count | None = None
    fill: Fill = 0.0
    batched: bool = False
    budgets: dict[str | int, Count] = field(default_factory=dict)
    cu_seqlens: bool = False

    def __highway__(self) -> Traits:
        return Traits(makes="samples", per_epoch=True, whole_inputs=not self.batched, state=lambda: Position([0, 0]), remake=self._remake)

    def stream(self, items: Items) -> Iterator[Together]:
        position = items.context.state_of(self)
        (index, first), bins = position.value, _Bins(self)
        for sequences in self._sequences(items.waiting):
            bins.add(sequences, first)
            first = 0
        items.waiting = lambda: bins.sequences.came
        position.value = lambda: (index, bins.sequences.first_place)
        for came in together(items):
            for sequences in self._sequences(came):
                added = 0
                while (added := bins.add(sequences, added)) < len(sequences):
                    rows, bins = self._rows(bins.sequences, bins.rows, index), _Bins(self)
                    index += len(rows)
                    yield rows
        if bins.rows:
            yield self._rows(bins.sequences, bins.rows, index)

    def _sequences(self, inputs: Sequence[Stamped]) -> Iterator[Sequences]:
        """Yield the sequences of the inputs. In a field with a budget, the count of a scalar is its value."""
        for sequences in sequences_of(inputs, self.batched):
            for place, name in enumerate(sequences.known):
                if name in self.budgets:
                    sequences.counts[place] = list(map(cost_of, sequences.columns[place], sequences.counts[place]))
            yield sequences

    def limit(self, name: Field) -> int:
        """Return the maximum sum of a field's counts in a row."""
        return self.budgets[name] if name in self.budgets else length_of_row(self.length, name)

    def _remake(self, inputs: list[Stamped], places: list[Any]) -> Stamped:
        sequences = sequences_at(inputs, self.batched, places)
        row: Stamped = self._rows(sequences, [range(len(sequences))], 0)[0]
        return row

    def _rows(self, sequences: Sequences, rows: Sequence[Sequence[int]], index: int) -> Together:
        """Build rows. ``rows`` contains the indexes of the sequences in each row."""
        order = list(chain.from_iterable(rows))
        columns = [[column[number] for number in order] for column in sequences.columns]
        most = self.max_sequences_per_bin
        bounds = Bounds(None if most is None else most + 2) if self.cu_seqlens else None
        found = packed_rows(sequences, columns, list(map(len, rows)), self.length, self.fill, self.budgets, bounds)
        numbered = enumerate(zip(found, rows, strict=True), start=index)
        return Together(stamped_row(item, sequences, row, number, self.batched) for number, (item, row) in numbered)


class _Bins:
    """The open rows.

    Args:
        pack: The parameters.

    Attributes:
        sequences: The sequences in the rows.
    """

    def __init__(self, pack: Pack) -> None:
        self._pack, self._most = pack, pack.max_sequences_per_bin
        self._rows: list[list[int]] = [[] for _ in range(pack.bins)]  # indexes of the sequences in each row
        self._free: list[list[int]] = []  # for each field, the number of free values in each row
        # For each row, the maximum number of free values of the first field in this row and all rows before it.
        self._most_free: list[int] = []
        self.sequences = Sequences()

    @property
    def rows(self) -> list[list[int]]:
        """The indexes of the sequences in each row, without empty rows."""
        return [row for row in self._rows if row]

    def add(self, sequences: Sequences, first: int) -> int:
        """Put each sequence from index ``first`` into the first row with room. Return the index of the first sequence that does not fit."""
        if not self.sequences:
            self._free = [[self._pack.limit(name)] * self._pack.bins for name in sequences.known]
            self._most_free = self._free[0].copy()
        self.sequences.expect_fields_of(sequences, first, "Pack")
        counts = list(zip(*sequences.counts, strict=True))
        number, before = first, len(self.sequences) - first
        while number < len(counts) and (row := self._row_for(counts[number])) < len(self._rows):
            self._rows[row].append(before + number)
            self._take(row, counts[number])
            number += 1
        if number < len(counts):
            self._expect_short(sequences, number)
        self.sequences.extend(sequences, first, number)
        return number

    def _row_for(self, counts: Sequence[int]) -> int:
        """Return the index of the first row with room for a sequence, or the number of rows if there is no such row."""
        row, rows = bisect_left(self._most_free, counts[0]), len(self._rows)
        if len(counts) == 1:
            return row
        return next((at for at in range(row, rows) if all(map(ge, (free[at] for free in self._free), counts))), rows)

    def _take(self, row: int, counts: Sequence[int]) -> None:
        """Reserve room in a row for a sequence. If the row then has the maximum number of sequences, reserve all its room."""
        for place, count in enumerate(counts):
            self._free[place][row] -= count
        free, most_free = self._free[0], self._most_free
        if len(self._rows[row]) == self._most:
            free[row] = -1
        most = most_free[row - 1] if row else -1
        for at in range(row, len(free)):
            if free[at] > most:
                most = free[at]
            if most_free[at] == most:  # the values of all later rows do not change either
                return
            most_free[at] = most

    def _expect_short(self, sequences: Sequences, number: int) -> None:
        for name, counts in zip(sequences.known, sequences.counts, strict=True):
            if counts[number] > (length := self._pack.limit(name)):
                if name in self._pack.budgets:
                    what = (
                        f"Pack: a sequence needs {counts[number]} of the budget of field {name!r}, more than budgets={self._pack.budgets} "
                        "allow"
                    )
                    raise sequences.error(number, f"{what}; raise the budget, or drop or shorten such samples in an earlier map")
                what = f"Pack: a sequence of field {name!r} has {counts[number]} values, more than a row of length={length}"
                way_out = "truncate it in an earlier map, or use ConcatThenSplit, which splits sequences at the end of a row"
                raise sequences.error(number, f"{what}; {way_out}")

"""Concatenate sequences, and split the result into rows of equal length."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from highway.engine.channel import Together
from highway.engine.component import Position, Traits
from highway.engine.input import together
from highway.engine.ragged import Fill
from highway.engine.stage import Items, Stamped
from highway.modules.packing.sequences import Sequences, packed_rows, sequences_at, sequences_of, stamped_row
from highway.parameters.checks import checked
from highway.parameters.ranges import Count


@checked
@dataclass
class ConcatThenSplit:
    """Concatenate sequences, and split the result into rows of equal length.

    A sequence that does not fit into a row continues in the next row. Only the last row of an epoch can need padding.

    Args:
        length: Number of values per row.
        drop_last: Whether to drop the last row of an epoch if it is not full.
        fill: Padding value of the last row, as one number, or as a dict from fields to numbers.
        batched: Whether each input is a batch of sequences; see :class:`Pack`.

    Inputs are samples whose fields are sequences: arrays ``(n, ...)``, or lists of numbers. All fields of a sample must have the same
    length.

    Yields:
        Samples with the same fields as the samples of :class:`Pack`. If a sequence is split, ``<field>_positions`` starts at 0 in each
        part.

    Raises:
        ValueError: the fields of a sample differ in length; or the samples differ in their fields, or in a field's dtype or shape after the
            first axis.

    >>> import numpy as np
    >>> from highway import Pipeline
    >>> with Pipeline([[np.array([1, 1]), np.array([2, 2, 2, 2]), np.array([3])], ConcatThenSplit(3)]) as pipeline:
    ...     [[part.tolist() for part in row] for row in pipeline]
    [[[1, 1, 2], [1, 1, 2], [0, 1, 0]], [[2, 2, 2], [1, 1, 1], [0, 1, 2]], [[3, 0, 0], [1, 0, 0], [0, 0, 0]]]
    """

    length: Count
    drop_last: bool = False
    fill: Fill = 0.0
    batched: bool = False

    def __highway__(self) -> Traits:
        return Traits(makes="samples", per_epoch=True, state=lambda: Position([0, 0, 0]), remake=self._remake)

    def stream(self, items: Items) -> Iterator[Together]:
        position = items.context.state_of(self)
        index, first, offset = position.value
        waiting, left = Sequences(), -offset
        for sequences in sequences_of(items.waiting, self.batched):
            left += self._append(waiting, sequences, first)
            first = 0
        items.waiting = lambda: waiting.came
        position.value = lambda: (index, waiting.first_place, offset)
        for came in together(items):
            for sequences in sequences_of(came, self.batched):
                left += self._append(waiting, sequences)
            if full := left // self.length:
                cut = self._cut(waiting, offset)[:full]
                rows = self._rows(waiting, cut, index)
                last = cut[-1][-1]
                offset = last.end if last.end < waiting.counts[0][last.number] else 0
                waiting = waiting.at(range(last.number + (not offset), len(waiting)))
                index, left = index + full, left - full * self.length
                yield rows
        if left and not self.drop_last:
            yield self._rows(waiting, self._cut(waiting, offset), index)

    def _remake(self, inputs: list[Stamped], made_of: list[Any]) -> Stamped:
        offset, places = made_of
        sequences = sequences_at(inputs, self.batched, places)
        row: Stamped = self._rows(sequences, self._cut(sequences, offset)[:1], 0)[0]
        return row

    def _append(self, waiting: Sequences, sequences: Sequences, first: int = 0) -> int:
        """Append all sequences from index ``first``, except empty sequences. Return the number of appended values."""
        counts, *others = sequences.counts
        if any(other != counts for other in others):
            number, lengths = next((number, found) for number, found in enumerate(zip(*sequences.counts)) if len(set(found)) > 1)
            named = dict(zip(sequences.known, lengths, strict=True))
            raise sequences.error(number, f"ConcatThenSplit: the fields of a sequence have lengths {named}; expected equal lengths")
        waiting.expect_fields_of(sequences, first, "ConcatThenSplit")
        if first or not all(counts):
            sequences = sequences.at([number for number in range(first, len(counts)) if counts[number]])
        waiting.extend(sequences, 0, len(sequences))
        return sum(counts[first:])

    def _cut(self, sequences: Sequences, offset: int) -> list[list[_Part]]:
        """Return the parts of sequences in each row. The first row begins at ``offset`` in the first sequence."""
        rows, room = [list[_Part]()], self.length
        for number, count in enumerate(sequences.counts[0]):
            begin, offset = offset, 0
            while begin < count:
                if not room:
                    rows.append([])
                    room = self.length
                end = min(count, begin + room)
                rows[-1].append(_Part(number, begin, end))
                begin, room = end, room - (end - begin)
        return rows

    def _rows(self, sequences: Sequences, rows: Sequence[Sequence[_Part]], index: int) -> Together:
        columns = [[column[number][begin:end] for row in rows for number, begin, end in row] for column in sequences.columns]
        items = packed_rows(sequences, columns, list(map(len, rows)), self.length, self.fill)
        numbers = [[part.number for part in row] for row in rows]
        numbered = enumerate(zip(items, numbers, [row[0].begin for row in rows], strict=True), start=index)
        return Together(stamped_row(item, sequences, row, number, self.batched, offset) for number, (item, row, offset) in numbered)


class _Part(NamedTuple):
    """A part of a sequence: the index of the sequence, and the begin and end of the part."""

    number: int
    begin: int
    end: int

"""Sequences one after the other, cut where a row is full."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

from highway.engine.ragged import Fill
from highway.engine.resume import Saved, keep, saved
from highway.engine.stage import Items, Stamped
from highway.modules.packing.sequences import PackedSequence, inputs_of, packed_rows, sequences_at, sequences_of, stamped_row
from highway.parameters.checks import checked
from highway.parameters.ranges import Count


@checked
@dataclass
class ConcatThenSplit:
    """Join sequences one after the other, and split what comes of it into rows of one length.

    Sequences are cut where a row is full and go on in the next, so that only the last row of an epoch may have to be filled up.

    Args:
        length: Values in a row.
        drop_last: Whether to leave out an epoch's last row if it is not full.
        fill: What stands in the rest of that, for all fields or by field.
        batched: Whether batches of sequences come in, as for :class:`Pack`.

    Takes samples whose fields are sequences of one length: arrays ``(n, ...)``, or lists of numbers.

    Yields:
        Samples as :class:`Pack` does. Positions in a part of a sequence that was cut begin at 0.

    Raises:
        ValueError: the fields of a sample differ in length, or samples differ in their fields, dtypes, or shapes but for the first axis.

    >>> import numpy as np
    >>> from highway import Pipeline
    >>> with Pipeline([[np.array([1, 1]), np.array([2, 2, 2, 2]), np.array([3])], ConcatThenSplit(3)]) as pipeline:
    ...     [[part.tolist() for part in row] for row in pipeline]
    [[[1, 1, 2], [1, 1, 2], [0, 1, 0]], [[2, 2, 2], [1, 1, 1], [0, 1, 2]], [[3, 0, 0], [1, 0, 0], [0, 0, 0]]]
    """

    makes: ClassVar = "samples"
    per_epoch: ClassVar[bool] = True

    length: Count
    drop_last: bool = False
    fill: Fill = 0.0
    batched: bool = False

    def stream(self, items: Items) -> Iterator[Stamped]:
        begun = saved() or Saved((0, 0, 0))
        index, first, offset = begun.state
        waiting = self._not_empty(begun.held, first)
        left = sum(map(self._count, waiting)) - offset
        keep(lambda: Saved((index, waiting[0].place if waiting else 0, offset), inputs_of(waiting)))
        for item in items:
            more = self._not_empty([Stamped(item, items.passport)])
            waiting += more
            left += sum(map(self._count, more))
            cuts, begin = list[_Cut](), 0
            while left >= self.length:
                cuts.append(cut := self._cut(waiting, begin, offset))
                begin, offset, left = cut.stop, cut.stop_offset, left - self.length
            for row in self._rows(cuts, index):
                yield row
                index += 1
            waiting = waiting[begin:]
        if left and not self.drop_last:
            yield from self._rows([self._cut(waiting, 0, offset)], index)

    def remake(self, inputs: list[Stamped], made_of: list[Any]) -> Stamped:
        """Return a row again."""
        offset, places = made_of
        return self._rows([self._cut(sequences_at(inputs, self.batched, places), 0, offset)], 0)[0]

    def _not_empty(self, inputs: Sequence[Stamped], first: int = 0) -> list[PackedSequence]:
        return [sequence for sequence in sequences_of(inputs, self.batched, first) if self._count(sequence)]

    def _cut(self, sequences: Sequence[PackedSequence], begin: int, offset: int) -> _Cut:
        """Return what stands in a row: sequences from ``begin`` on, of the first what is behind an offset."""
        parts, left, at, stop = list[list[Any]](), self.length, offset, begin
        while left and stop < len(sequences):
            values, count = sequences[stop].values, sequences[stop].counts[0]
            end = min(count, at + left)
            parts.append([value[at:end] for value in values])
            left -= end - at
            stop, at = (stop + 1, 0) if end == count else (stop, end)
        return _Cut(sequences[begin : begin + len(parts)], parts, offset, stop, at)

    def _rows(self, cuts: Sequence[_Cut], index: int) -> list[Stamped]:
        if not cuts:
            return []
        first = cuts[0].sequences[0]
        rows = packed_rows(first.known, [cut.parts for cut in cuts], self.length, self.fill, first.input.item)
        numbered = enumerate(zip(rows, cuts, strict=True), start=index)
        return [stamped_row(row, cut.sequences, number, self.batched, cut.offset) for number, (row, cut) in numbered]

    def _count(self, sequence: PackedSequence) -> int:
        if len(set(sequence.counts)) != 1:
            lengths = dict(zip(sequence.known, sequence.counts, strict=True))
            raise ValueError(f"ConcatThenSplit: the fields of a sequence have lengths {lengths}; expected one")
        return sequence.counts[0]


class _Cut(NamedTuple):
    """What stands in a row.

    Args:
        sequences: Sequences of which something does.
        parts: Of each of them the values that do, in each field.
        offset: Where in the first of them it begins.
        stop: Where in all that wait the next row begins: in which sequence,
        stop_offset: and where in that.
    """

    sequences: Sequence[PackedSequence]
    parts: list[list[Any]]
    offset: int
    stop: int
    stop_offset: int

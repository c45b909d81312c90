"""Sequences one after the other, cut where a row is full."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

from highway.engine.ragged import Fill
from highway.engine.resume import Saved, keep, saved
from highway.engine.stage import Items, Stamped
from highway.modules.packing.sequences import PackedSequence, inputs_of, packed_row, sequences_at, sequences_of, stamped_row
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
        waiting = [sequence for sequence in sequences_of(begun.held, self.batched, first) if self._count(sequence)]
        left = sum(map(self._count, waiting)) - offset
        keep(lambda: Saved((index, waiting[0].place if waiting else 0, offset), inputs_of(waiting)))
        for item in items:
            for sequence in sequences_of([Stamped(item, items.passport)], self.batched):
                if count := self._count(sequence):
                    waiting.append(sequence)
                    left += count
                while left >= self.length:
                    row, used, stop = self._cut(waiting, offset, index)
                    yield row
                    is_whole = stop == self._count(waiting[used - 1])
                    waiting, offset = waiting[used if is_whole else used - 1 :], 0 if is_whole else stop
                    index, left = index + 1, left - self.length
        if left and not self.drop_last:
            yield self._cut(waiting, offset, index)[0]

    def remake(self, inputs: list[Stamped], made_of: list[Any]) -> Stamped:
        """Return a row again."""
        offset, places = made_of
        return self._cut(sequences_at(inputs, self.batched, places), offset, 0)[0]

    def _cut(self, sequences: list[PackedSequence], offset: int, index: int) -> tuple[Stamped, int, int]:
        """Return a row of sequences, how many of these that are, and where it stops in the last; of the first what is behind an offset."""
        parts, begin, left, stop = list[list[Any]](), offset, self.length, 0
        for sequence in sequences:
            stop = min(self._count(sequence), begin + left)
            parts.append([value[begin:stop] for value in sequence.values])
            left -= stop - begin
            begin = 0
            if left == 0:
                break
        used = sequences[: len(parts)]
        row = packed_row(used, parts, self.length, self.fill)
        return stamped_row(row, used, index, self.batched, lambda places: [offset, places]), len(parts), stop

    def _count(self, sequence: PackedSequence) -> int:
        if len(set(sequence.counts)) != 1:
            lengths = dict(zip(sequence.known, sequence.counts, strict=True))
            raise ValueError(f"ConcatThenSplit: the fields of a sequence have lengths {lengths}; expected one")
        return sequence.counts[0]

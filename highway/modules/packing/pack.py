"""Several sequences in each row, none of which is cut."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from operator import ge
from typing import Any

from highway.engine.channel import Together
from highway.engine.component import Traits
from highway.engine.input import together
from highway.engine.ragged import Fill
from highway.engine.resume import Saved, keep, saved
from highway.engine.stage import Items, Stamped
from highway.modules.packing.sequences import Sequences, length_of_row, packed_rows, sequences_at, sequences_of, stamped_row
from highway.parameters.checks import checked
from highway.parameters.ranges import Count


@checked
@dataclass
class Pack:
    """Pack sequences into rows of one length, several in each, first-fit: each into the first of the open rows that has room for it.

    No sequence is cut. When one has room in none of the open rows, all of these are handed on, and as many are opened anew; so are those
    that are open at the end of an epoch.

    Args:
        length: Values in a row, of all fields or by field.
        bins: Rows that are open at the same time, at least 1; the more, the less is filled up.
        max_sequences_per_bin: Sequences in a row at most.
        fill: What stands where no sequence does, for all fields or by field.
        batched: Whether batches of sequences come in, as ``Reader`` and :class:`Batch` make them with ``ragged="list"`` or ``"offsets"``,
            in place of one after the other: a tenth quicker.

    Takes samples whose fields are sequences: arrays ``(n, ...)``, lists of numbers, or single numbers, which are sequences of one.

    Yields:
        Samples like those that come in: of each field ``tokens`` the sequences of a row one after the other, ``(length, ...)``;
        ``tokens_segment_ids``, int32 ``(length,)``: which of them stands there, from 1, or 0 where none does; and ``tokens_positions``,
        int32 ``(length,)``: the place in that sequence, from 0. In tuples these stand behind all fields. Passport: epoch, origin and times
        of the first sequence, a running index, and the keys of all.

    Raises:
        ValueError: a sequence is longer than a row, or they differ in their fields, dtypes, or shapes but for the first axis; the message
            names the field.

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

    def __highway__(self) -> Traits:
        return Traits(makes="samples", per_epoch=True, remake=self._remake)

    def stream(self, items: Items) -> Iterator[Together]:
        begun = saved() or Saved((0, 0))
        index, first = begun.state
        bins = _Bins(self)
        for sequences in sequences_of(begun.held, self.batched):
            bins.add(sequences, first)
            first = 0
        keep(lambda: Saved((index, bins.sequences.first_place), bins.sequences.came))
        for came in together(items):
            for sequences in sequences_of(came, self.batched):
                added = 0
                while (added := bins.add(sequences, added)) < len(sequences):
                    rows, bins = self._rows(bins.sequences, bins.rows, index), _Bins(self)
                    index += len(rows)
                    yield rows
        if bins.rows:
            yield self._rows(bins.sequences, bins.rows, index)

    def _remake(self, inputs: list[Stamped], places: list[Any]) -> Stamped:
        sequences = sequences_at(inputs, self.batched, places)
        row: Stamped = self._rows(sequences, [range(len(sequences))], 0)[0]
        return row

    def _rows(self, sequences: Sequences, rows: Sequence[Sequence[int]], index: int) -> Together:
        """Return the rows in which the sequences with some numbers stand."""
        order = list(chain.from_iterable(rows))
        columns = [[column[number] for number in order] for column in sequences.columns]
        found = packed_rows(sequences, columns, list(map(len, rows)), self.length, self.fill)
        numbered = enumerate(zip(found, rows, strict=True), start=index)
        return Together(stamped_row(item, sequences, row, number, self.batched) for number, (item, row) in numbered)


class _Bins:
    """The rows that are open.

    Args:
        pack: Says how many there are, and what they hold.

    Attributes:
        sequences: What stands in them.
    """

    def __init__(self, pack: Pack) -> None:
        self._pack, self._most = pack, pack.max_sequences_per_bin
        self._rows: list[list[int]] = [[] for _ in range(pack.bins)]  # numbers of sequences
        self._free: list[list[int]] = []  # of each field, in each row
        self._most_free: list[int] = []  # of the first field, in each row and those before it
        self.sequences = Sequences()

    @property
    def rows(self) -> list[list[int]]:
        """Which sequences stand in each row that holds some."""
        return [row for row in self._rows if row]

    def add(self, sequences: Sequences, first: int) -> int:
        """Put sequences from one on into the rows, each into the first that has room for it; return for which there is none."""
        if not self.sequences:
            self._free = [[length_of_row(self._pack.length, name)] * self._pack.bins for name in sequences.known]
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
        """Return the first row that has room for a sequence, or how many rows there are."""
        row, rows = bisect_left(self._most_free, counts[0]), len(self._rows)
        if len(counts) == 1:
            return row
        return next((at for at in range(row, rows) if all(map(ge, (free[at] for free in self._free), counts))), rows)

    def _take(self, row: int, counts: Sequence[int]) -> None:
        """Take room in a row for a sequence; all of it, if it is the last that may stand there."""
        for place, count in enumerate(counts):
            self._free[place][row] -= count
        free, most_free = self._free[0], self._most_free
        if len(self._rows[row]) == self._most:
            free[row] = -1
        most = most_free[row - 1] if row else -1
        for at in range(row, len(free)):
            if free[at] > most:
                most = free[at]
            if most_free[at] == most:  # and so it is in all behind
                return
            most_free[at] = most

    def _expect_short(self, sequences: Sequences, number: int) -> None:
        for name, counts in zip(sequences.known, sequences.counts, strict=True):
            if counts[number] > (length := length_of_row(self._pack.length, name)):
                what = f"Pack: a sequence of field {name!r} has {counts[number]} values, more than a row of length={length}"
                way_out = "cut it before, by a map, or say ConcatThenSplit, which cuts sequences where a row is full"
                raise sequences.error(number, f"{what}; {way_out}")

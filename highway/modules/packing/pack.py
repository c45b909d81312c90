"""Several sequences in each row, none of which is cut."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from highway.engine.batch import Field
from highway.engine.ragged import Fill
from highway.engine.resume import Saved, keep, saved
from highway.engine.stage import Items, Stamped
from highway.modules.packing.sequences import PackedSequence, length_of_row, packed_rows, sequences_at, sequences_of, stamped_row
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
            in place of one after the other: several times as quick, since threads hand over less.

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

    makes: ClassVar = "samples"
    per_epoch: ClassVar[bool] = True

    length: Count | dict[str | int, Count]
    bins: Count = 64
    max_sequences_per_bin: Count | None = None
    fill: Fill = 0.0
    batched: bool = False

    def stream(self, items: Items) -> Iterator[Stamped]:
        begun = saved() or Saved((0, 0))
        index, first = begun.state
        bins = _Bins(self)
        bins.add(list(sequences_of(begun.held, self.batched, first)))
        keep(lambda: Saved((index, bins.first), bins.held))
        for item in items:
            sequences, added = list(sequences_of([Stamped(item, items.passport)], self.batched)), 0
            while (added := bins.add(sequences, added)) < len(sequences):
                for row in self._rows(bins.rows, index):
                    yield row
                    index += 1
                bins = _Bins(self)
        yield from self._rows(bins.rows, index)

    def remake(self, inputs: list[Stamped], places: list[Any]) -> Stamped:
        """Return a row again."""
        return self._rows([sequences_at(inputs, self.batched, places)], 0)[0]

    def _rows(self, rows: list[list[PackedSequence]], index: int) -> list[Stamped]:
        if not rows:
            return []
        first = rows[0][0]
        found = packed_rows(first.known, [[each.values for each in row] for row in rows], self.length, self.fill, first.input.item)
        return [
            stamped_row(item, row, number, self.batched) for number, (item, row) in enumerate(zip(found, rows, strict=True), start=index)
        ]


class _Bins:
    """The rows that are open.

    Args:
        pack: Says how many there are, and what they hold.

    Attributes:
        held: What came in of which something stands in them.
        first: Which sequence of the first of these is the first that does.
    """

    def __init__(self, pack: Pack) -> None:
        self._pack, self._most = pack, pack.max_sequences_per_bin
        self._rows: list[list[PackedSequence]] = [[] for _ in range(pack.bins)]
        self._known: tuple[Field, ...] | None = None
        self._free: list[np.ndarray] = []  # of each field, in each row
        self.held: list[Stamped] = []
        self.first = 0

    @property
    def rows(self) -> list[list[PackedSequence]]:
        """The rows that hold something."""
        return [row for row in self._rows if row]

    def add(self, sequences: Sequence[PackedSequence], begin: int = 0) -> int:
        """Put sequences from ``begin`` on each into the first row that has room for it, and return where the first is that has none."""
        rows, free, held, most = self._rows, self._free, self.held, self._most
        for at in range(begin, len(sequences)):
            stamped, place, known, _, counts = sequence = sequences[at]
            if known != self._known:
                free = self._begin(known)
            fits = free[0] >= counts[0]
            for other in range(1, len(counts)):
                fits &= free[other] >= counts[other]
            row = int(fits.argmax())
            if not fits[row]:
                self._expect_short(counts)
                return at
            for other in range(len(counts)):
                free[other][row] -= counts[other]
            rows[row].append(sequence)
            if most is not None and len(rows[row]) == most:
                free[0][row] = -1
            if not held or held[-1] is not stamped:
                self.first = self.first if held else place
                held.append(stamped)
        return len(sequences)

    def _begin(self, known: tuple[Field, ...]) -> list[np.ndarray]:
        """Return how much room there is for each field in each row, and note it."""
        if self._known is not None:
            raise ValueError(
                f"Pack: a sample has fields {known}, but others have {self._known}; expected the same in all (each value of a list is "
                "taken for a field: make it an array)"
            )
        self._known = known
        self._free = [np.full(self._pack.bins, length_of_row(self._pack.length, name)) for name in known]
        return self._free

    def _expect_short(self, counts: Sequence[int]) -> None:
        for name, count in zip(self._known or (), counts, strict=True):
            if count > (length := length_of_row(self._pack.length, name)):
                raise ValueError(
                    f"Pack: a sequence of field {name!r} has {count} values, more than a row of length={length}; cut it before, by a map, "
                    "or say ConcatThenSplit, which cuts sequences where a row is full"
                )

"""Streams that put sequences of different lengths into rows of one length."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from highway.engine.batch import Field, Item, array_of, columns, extended, fields, names, rebuild
from highway.engine.ragged import Fill, fill_value, ragged_arrays
from highway.engine.resume import Saved, keep, saved
from highway.engine.stage import Items, Stamped
from highway.parameters.checks import checked
from highway.parameters.ranges import Count
from highway.process.aligned import aligned


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

    def stream(self, items: Items) -> Iterator[Stamped]:
        begun = saved() or Saved(0)
        index: int = begun.state
        bins = _Bins(self, begun.held)
        keep(lambda: Saved(index, bins.sequences))
        for item in items:
            sequence = Stamped(item, items.passport)
            if bins.add(sequence):
                continue
            for row in bins.rows:
                yield self._row(row, index)
                index += 1
            bins = _Bins(self, [sequence])
        for row in bins.rows:
            yield self._row(row, index)
            index += 1

    def remake(self, sequences: list[Stamped], part: None) -> Stamped:
        """Return a row of sequences."""
        return self._row(sequences, 0)

    def _row(self, sequences: Sequence[Stamped], index: int) -> Stamped:
        return _stamped(_row([item for item, _ in sequences], self.length, self.fill), sequences, index, None)


class _Bins:
    """The rows that are open.

    Args:
        pack: Says how many there are, and what they hold.
        sequences: What stands in them already.

    Attributes:
        sequences: What stands in them, in the order in which it came.
    """

    def __init__(self, pack: Pack, sequences: Sequence[Stamped] = ()) -> None:
        self._pack = pack
        self._most = pack.max_sequences_per_bin
        self._rows: list[list[Stamped]] = [[] for _ in range(pack.bins)]
        self._kind: Any = None
        self._lengths: list[int] = []
        self._free = np.empty((0, pack.bins), np.int64)  # of each field and row
        self.sequences: list[Stamped] = []
        for sequence in sequences:
            self.add(sequence)

    @property
    def rows(self) -> list[list[Stamped]]:
        """The rows that hold something."""
        return [row for row in self._rows if row]

    def add(self, sequence: Stamped) -> bool:
        """Put a sequence into the first row that has room for it, and say whether there is one."""
        item = sequence.item
        if (kind := (type(item), names(item))) != self._kind:
            self._begin(kind)
        counts = list(map(_count, fields(item)))
        free = self._free
        fits = free[0] >= counts[0]
        for place in range(1, len(counts)):
            fits &= free[place] >= counts[place]
        row = int(fits.argmax())
        if not fits[row]:
            self._expect_short(kind[1], counts)
            return False
        for place, count in enumerate(counts):
            free[place, row] -= count
        self._rows[row].append(sequence)
        self.sequences.append(sequence)
        if len(self._rows[row]) == self._most:
            free[0, row] = -1
        return True

    def _begin(self, kind: Any) -> None:
        """Note how long the fields of a row are."""
        if self._kind is not None:
            way_out = "; a list is taken for fields: make it an array" if kind[0] is list else ""
            raise ValueError(f"Pack: a sample is a {_described(kind)}, but others are a {_described(self._kind)}{way_out}")
        self._kind = kind
        self._lengths = [_length_of(self._pack.length, name) for name in kind[1]]
        self._free = np.repeat(np.array(self._lengths)[:, None], self._pack.bins, axis=1)

    def _expect_short(self, known: Sequence[Field], counts: Sequence[int]) -> None:
        for name, count, length in zip(known, counts, self._lengths, strict=True):
            if count > length:
                raise ValueError(
                    f"Pack: a sequence of field {name!r} has {count} values, more than a row of length={length}; cut it before, by a map, "
                    "or say ConcatThenSplit, which cuts sequences where a row is full"
                )


@checked
@dataclass
class ConcatThenSplit:
    """Join sequences one after the other, and split what comes of it into rows of one length.

    Sequences are cut where a row is full and go on in the next, so that only the last row of an epoch may have to be filled up.

    Args:
        length: Values in a row.
        drop_last: Whether to leave out an epoch's last row if it is not full.
        fill: What stands in the rest of that, for all fields or by field.

    Takes samples whose fields are sequences of one length: arrays ``(n, ...)``, or lists of numbers.

    Yields:
        Samples as :class:`Pack` does. Positions in a part of a sequence that was cut begin at 0.

    Raises:
        ValueError: the fields of a sample differ in length, or samples differ in their fields, dtypes, or shapes but for the first axis.

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

    def stream(self, items: Items) -> Iterator[Stamped]:
        begun = saved() or Saved((0, 0))
        index, offset = begun.state
        waiting = list(begun.held)
        left = sum(self._count(item) for item, _ in waiting) - offset
        keep(lambda: Saved((index, offset), waiting))
        for item in items:
            if count := self._count(item):
                waiting.append(Stamped(item, items.passport))
                left += count
            while left >= self.length:
                parts, used, stop = self._cut(waiting, offset)
                yield _stamped(_row(parts, self.length, self.fill), waiting[:used], index, offset)
                is_whole = stop == self._count(waiting[used - 1].item)
                waiting, offset = waiting[used if is_whole else used - 1 :], 0 if is_whole else stop
                index, left = index + 1, left - self.length
        if left and not self.drop_last:
            yield self.remake(waiting, offset, index)

    def remake(self, sequences: list[Stamped], offset: int, index: int = 0) -> Stamped:
        """Return a row of sequences; of the first it has what stands behind an offset."""
        parts, _, _ = self._cut(sequences, offset)
        return _stamped(_row(parts, self.length, self.fill), sequences, index, offset)

    def _cut(self, sequences: Sequence[Stamped], offset: int) -> tuple[list[Item], int, int]:
        """Return what a row has of sequences, how many of these that are, and where it stops in the last."""
        parts, left, stop = list[Item](), self.length, 0
        for item, _ in sequences:
            stop = min(self._count(item), offset + left)
            parts.append(rebuild(item, [value[offset:stop] for value in fields(item)]))
            left -= stop - offset
            offset = 0
            if left == 0:
                break
        return parts, len(parts), stop

    def _count(self, item: Item) -> int:
        counts = {name: len(value) for name, value in zip(names(item), fields(item), strict=True)}
        if len(set(counts.values())) != 1:
            raise ValueError(f"ConcatThenSplit: the fields of a sequence have lengths {counts}; expected one")
        return next(iter(counts.values()))


def _row(sequences: Sequence[Item], length: int | dict[str | int, int], fill: Fill) -> Item:
    """Return sequences one after the other, which of them stands where, and which of its values."""
    known, found = columns(sequences)
    values, segment_ids, positions = list[Any](), dict[Field, np.ndarray](), dict[Field, np.ndarray]()
    for name, column in zip(known, found, strict=True):
        arrays = ragged_arrays(name, [np.atleast_1d(array_of(name, value)) if _count(value) == 1 else value for value in column])
        counts = np.array(list(map(len, arrays)))
        total, size, dtype = int(counts.sum()), _length_of(length, name), np.result_type(*arrays)
        row = aligned((size, *arrays[0].shape[1:]), dtype)
        np.concatenate(arrays, out=row[:total])
        row[total:] = fill_value(name, dtype, fill)
        values.append(row)
        segment_ids[name], positions[name] = aligned((size,), np.int32), aligned((size,), np.int32)
        segment_ids[name][:total] = np.repeat(np.arange(1, len(arrays) + 1), counts)
        positions[name][:total] = np.arange(total) - np.repeat(np.cumsum(counts) - counts, counts)
        segment_ids[name][total:] = positions[name][total:] = 0
    item = extended(sequences[0], values, segment_ids, "segment_ids")
    return extended(item, fields(item), positions, "positions")


def _count(value: Any) -> int:
    """Return how many values a sequence has; a single number is one of one."""
    shape = getattr(value, "shape", None)
    if shape is None:
        return len(value) if isinstance(value, (list, tuple)) else 1
    return int(shape[0]) if shape else 1


def _described(kind: tuple[type, tuple[Field, ...]]) -> str:
    return f"{kind[0].__name__} with fields {kind[1]}"


def _length_of(length: int | dict[str | int, int], name: Field) -> int:
    if isinstance(length, int):
        return length
    if name not in length:
        raise ValueError(f"Pack: field {name!r} is not one of length={length}; say its length, or leave it out by Select before")
    return length[name]


def _stamped(row: Item, sequences: Sequence[Stamped], index: int, part: Any) -> Stamped:
    """Return a row with the passport of its first sequence, and the keys of all."""
    passports = tuple(passport for _, passport in sequences)
    keys = tuple(key for passport in passports for key in passport.keys)
    return Stamped(row, passports[0]._replace(index=index, keys=keys, made_of=(None, passports, part)))

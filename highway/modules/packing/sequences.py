"""Read sequences from inputs, and build rows from the sequences."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, chain, pairwise, repeat
from operator import attrgetter
from typing import Any, NamedTuple

import numpy as np

from highway.engine.batch import Field, Item, array_of, columns, extended, fields, names, rebuild
from highway.engine.ragged import Fill, expect_named, fill_value, ragged_arrays
from highway.engine.stage import Lineage, Passport, Stamped

Length = int | dict[str | int, int]
_NDIM = attrgetter("ndim")


@dataclass(slots=True)
class Sequences:
    """Sequences with the same fields. They are stored as columns, because one object per sequence would be slow.

    Args:
        known: The names of the fields.
        inputs: For each sequence, the input that contains it: a sample or a batch.
        places: For each sequence, its index in the batch. 0 if the input is a sample.
        columns: For each field, the values of all sequences.
        counts: For each field, the number of values in each sequence.
    """

    known: tuple[Field, ...] = ()
    inputs: list[Stamped] = field(default_factory=list)
    places: list[int] = field(default_factory=list)
    columns: list[list[Any]] = field(default_factory=list)
    counts: list[list[int]] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.inputs)

    @property
    def first_place(self) -> int:
        """The index of the first sequence in its input."""
        return self.places[0] if self.places else 0

    @property
    def came(self) -> list[Stamped]:
        """The inputs in order, without repetitions."""
        return list({id(stamped): stamped for stamped in self.inputs}.values())

    def at(self, numbers: Sequence[int]) -> Sequences:
        """Return the sequences with these indexes."""

        def of(values: list[Any]) -> list[Any]:
            return [values[number] for number in numbers]

        return Sequences(self.known, of(self.inputs), of(self.places), list(map(of, self.columns)), list(map(of, self.counts)))

    def extend(self, others: Sequences, begin: int, stop: int) -> None:
        """Append the sequences from ``begin`` to ``stop`` (exclusive) of another object with the same fields."""
        if not self.inputs:
            self.known = others.known
            self.columns, self.counts = [[] for _ in self.known], [[] for _ in self.known]
        self.inputs.extend(others.inputs[begin:stop])
        self.places.extend(others.places[begin:stop])
        for mine, more in zip(self.columns + self.counts, others.columns + others.counts, strict=True):
            mine.extend(more[begin:stop])

    def expect_fields_of(self, others: Sequences, number: int, component: str) -> None:
        """Raise ValueError if ``others`` has different fields. The error names the input of sequence ``number`` of ``others``."""
        if self.inputs and self.known != others.known:
            raise others.error(
                number,
                f"{component}: a sample has fields {others.known}, but others have {self.known}; expected the same fields in all samples "
                "(highway treats each value of a list as a field: convert the list to an array)",
            )

    def error(self, number: int, what: str) -> ValueError:
        """Return an error with the message ``what`` and a note that names the input of a sequence."""
        epoch, index, _, keys, *_ = self.inputs[number].passport
        place = self.places[number]
        named = f", keys {', '.join(keys[place : place + 1] or keys[:1])}" if keys else ""
        error = ValueError(what)
        error.add_note(f"highway: the error was raised for epoch {epoch}, item {index}{named}")
        return error


def sequences_of(inputs: Sequence[Stamped], batched: bool) -> Iterator[Sequences]:
    """Yield the sequences of the inputs, grouped by batch or by equal fields."""
    if not batched and len(inputs) > 1:
        try:
            known, found = columns([stamped.item for stamped in inputs])
        except ValueError:  # the fields differ
            pass
        else:
            yield Sequences(known, list(inputs), [0] * len(inputs), found, list(map(_counts_of, found)))
            return
    for stamped in inputs:
        item = stamped.item
        known, found = _columns(item) if batched else (names(item), [[value] for value in fields(item)])
        if count := len(found[0]):
            yield Sequences(known, [stamped] * count, list(range(count)), found, list(map(_counts_of, found)))


def _columns(batch: Item) -> tuple[tuple[Field, ...], list[Any]]:
    """Return the names of a batch's fields, and the sequences in each field."""
    found = dict(zip(names(batch), fields(batch), strict=True))
    offsets: dict[Field, Any] = {name: found.pop(f"{name}_offsets") for name in list(found) if f"{name}_offsets" in found}
    if isinstance(batch, tuple) and not any(isinstance(value, list) for value in batch) and len(batch) % 2 == 0:
        half = len(batch) // 2
        offsets = {name: found.pop(half + name) for name in range(half)}
    columns: list[Any] = [_split(value, offsets[name]) if name in offsets else value for name, value in found.items()]
    lists = [column for column in columns if isinstance(column, list)]
    numbers = [column for column in columns if isinstance(column, np.ndarray) and column.ndim == 1]
    if not lists or len(lists) + len(numbers) != len(columns) or len(set(map(len, columns))) != 1:
        raise ValueError(
            "batched=True, but the input is not a batch of sequences. Use Batch(..., ragged='offsets'), or ragged='list' if samples are "
            "dicts or tuples; each field that has an axis in a sample must be ragged"
        )
    return tuple(found), columns


def _split(values: Any, offsets: Any) -> list[Any] | None:
    """Split values at ``offsets``. Return the parts, or ``None`` if the offsets are not valid."""
    fits = isinstance(offsets, np.ndarray) and offsets.dtype.kind == "i" and offsets.ndim == 1
    if not fits or offsets[0] != 0 or offsets[-1] != len(values):
        return None
    return [values[begin:end] for begin, end in pairwise(offsets.tolist())]


class Bounds(NamedTuple):
    """Builds the values of ``cu_seqlens``.

    Args:
        size: Number of values for each row. ``None``: as many values as the row needs.
    """

    size: int | None

    def of(self, counts: np.ndarray) -> np.ndarray:
        """Return the start of each sequence, and the end of the last sequence, as int32. ``counts`` holds the lengths of the sequences."""
        ends = np.concatenate(([0], counts.cumsum())).astype(np.int32)
        return ends if self.size is None else np.pad(ends, (0, self.size - len(ends)), "edge")


def packed_rows(
    sequences: Sequences,
    columns: Sequence[Sequence[Any]],
    sizes: Sequence[int],
    length: Length,
    fill: Fill,
    budgets: Collection[Field] = (),
    bounds_of: Bounds | None = None,
) -> list[Item]:
    """Build rows with the concatenated sequences, the segment ids and the positions.

    Args:
        sequences: The sequences.
        columns: For each field, the values of the sequences (or parts of sequences), row by row.
        sizes: Number of sequences or parts in each row.
        length: Length of a row.
        fill: Padding value.
        budgets: Fields that are only concatenated.
        bounds_of: Builds the values of ``cu_seqlens``. ``None``: rows have no such field.

    Raises:
        ValueError: a field in ``budgets`` or ``fill`` does not exist; ``length`` lacks a field; or the sequences of a field differ in dtype
            or shape.
    """
    if missing := [name for name in budgets if name not in sequences.known]:
        raise ValueError(f"budgets: there is no field {missing[0]!r}; the fields are {sequences.known}")
    expect_named("fill", fill, sequences.known)
    rows, segment_ids, positions = list[Any](), dict[Field, Any](), dict[Field, Any]()
    cu_seqlens, longest, masks = dict[Field, Any](), dict[Field, Any](), dict[Field, Any]()
    bounds = [0, *accumulate(sizes)]
    numbers = np.array([number for size in sizes for number in (*range(1, size + 1), 0)], np.int32)
    for name, values in zip(sequences.known, columns, strict=True):
        if set(map(type, values)) != {np.ndarray} or not all(map(_NDIM, values)):
            values = [value if getattr(value, "ndim", 0) else np.atleast_1d(array_of(name, value)) for value in values]
        arrays = ragged_arrays(name, values)
        if name in budgets:
            rows.append([np.concatenate(arrays[begin:end]) for begin, end in pairwise(bounds)])
            if bounds_of is not None:
                cu_seqlens[name] = [bounds_of.of(np.array(list(map(len, arrays[begin:end])))) for begin, end in pairwise(bounds)]
            continue
        first, width = arrays[0], length_of_row(length, name)
        dtype = first.dtype if first.dtype.kind not in "US" else np.result_type(*arrays)
        rest = np.full((width, *first.shape[1:]), fill_value(name, dtype, fill), dtype)
        counts = np.array(list(map(len, arrays)))
        free = width - np.add.reduceat(counts, bounds[:-1])
        parts = zip(pairwise(bounds), free.tolist(), strict=True)
        rows.append([np.concatenate([*arrays[begin:end], rest[:left]]) for (begin, end), left in parts])
        if bounds_of is not None:
            row_counts = [np.append(counts[begin:end], [left] * (left > 0)) for (begin, end), left in zip(pairwise(bounds), free.tolist())]
            cu_seqlens[name] = list(map(bounds_of.of, row_counts))
            longest[name] = [np.int32(counts.max()) for counts in row_counts]
        counts = np.insert(counts, bounds[1:], free)
        begins = (counts.cumsum() - counts).astype(np.int32)
        segments = numbers.repeat(counts)
        within = (np.arange(len(segments), dtype=np.int32) - begins.repeat(counts)) * (segments > 0)
        segment_ids[name] = [row.copy() for row in segments.reshape(-1, width)]
        positions[name] = [row.copy() for row in within.reshape(-1, width)]
        if bounds_of is not None:
            masks[name] = [row > 0 for row in segment_ids[name]]
    like = sequences.inputs[0].item
    whole = extended(dict.fromkeys(sequences.known) if isinstance(like, dict) else like, rows, segment_ids, "segment_ids")
    for more, what in ((positions, "positions"), (cu_seqlens, "cu_seqlens"), (longest, "max_seqlen"), (masks, "mask")):
        whole = extended(whole, fields(whole), more, what)
    return [rebuild(whole, row) for row in zip(*fields(whole), strict=True)]


def _counts_of(column: Sequence[Any]) -> list[int]:
    if set(map(type, column)) == {np.ndarray} and all(map(_NDIM, column)):
        return list(map(len, column))
    return list(map(count_of, column))


def cost_of(value: Any, count: int) -> int:
    """Return how much of a budget a value uses: ``count`` for an array, and its value for a scalar.

    Raises:
        ValueError: the scalar is negative or not a whole number.
    """
    if np.ndim(value):
        return count
    if (cost := int(value)) < 0 or cost != value:
        raise ValueError(f"budgets: a sample has the value {value!r}; expected a whole number of at least 0, or an array")
    return cost


def count_of(value: Any) -> int:
    """Return the length of a sequence. The length of a single number is 1."""
    shape = getattr(value, "shape", None)
    if shape is None:
        return len(value) if isinstance(value, (list, tuple)) else 1
    return int(shape[0]) if shape else 1


def length_of_row(length: Length, name: Field) -> int:
    """Return the length of a row for a field.

    Raises:
        ValueError: no length is given for the field.
    """
    if isinstance(length, int):
        return length
    if name not in length:
        raise ValueError(f"field {name!r} is not in length={length}; add its length, or remove the field with an earlier Select")
    return length[name]


def stamped_row(row: Item, sequences: Sequences, numbers: Sequence[int], index: int, batched: bool, offset: int | None = None) -> Stamped:
    """Return a row with its passport (metadata): epoch, origin and times of the first sequence, and the keys of all sequences.

    Args:
        row: The row.
        sequences: All sequences.
        numbers: The indexes of the sequences in this row, in order.
        index: Index of the row.
        batched: Whether the inputs were batches.
        offset: If sequences can be split, the index in the first sequence at which the row begins; otherwise, ``None``.
    """
    if batched:
        inputs = [sequences.inputs[number] for number in numbers]
        batches = {id(stamped): stamped for stamped in inputs}
        which = dict(zip(batches, range(len(batches)), strict=True))
        parts = [(which[id(stamped)], sequences.places[number]) for stamped, number in zip(inputs, numbers, strict=True)]
        passports = tuple([stamped.passport for stamped in batches.values()])
        keys = [key for number, place in parts for key in passports[number].keys[place : place + 1]]
    else:
        parts = list(zip(range(len(numbers)), repeat(0)))
        passports = tuple([sequences.inputs[number].passport for number in numbers])
        keys = list(chain.from_iterable([passport.keys for passport in passports]))
    epoch, _, origin, _, times, *_ = passports[0]
    made_of = Lineage(passports, parts if offset is None else [offset, parts])
    return Stamped(row, Passport(epoch, index, origin, tuple(keys), times, made_of))


def sequences_at(inputs: Sequence[Stamped], batched: bool, places: Sequence[Any]) -> Sequences:
    """Return the sequences at ``places``: pairs of the index of an input, and the index of a sequence in this input."""
    found = [next(sequences_of([stamped], batched)) for stamped in inputs]
    sequences = Sequences()
    for number, place in places:
        sequences.extend(found[number], place, place + 1)
    return sequences

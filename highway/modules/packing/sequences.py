"""The sequences of what comes in, and the rows that are made of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain, islice, pairwise
from operator import attrgetter
from typing import Any, NamedTuple

import numpy as np

from highway.engine.batch import Field, Item, array_of, extended, fields, names, rebuild
from highway.engine.ragged import Fill, fill_value, ragged_arrays
from highway.engine.stage import Stamped

Length = int | dict[str | int, int]
_NDIM = attrgetter("ndim")


class PackedSequence(NamedTuple):
    """A sequence that came in: by itself, or as one of a batch.

    Args:
        input: What came in.
        place: Which of a batch it is, else 0.
        known: How its fields are addressed.
        values: The sequence in each field.
        counts: How many values each of them has.
    """

    input: Stamped
    place: int
    known: tuple[Field, ...]
    values: Sequence[Any]
    counts: Sequence[int]


def sequences_of(inputs: Sequence[Stamped], batched: bool, first: int = 0) -> Iterator[PackedSequence]:
    """Yield the sequences of what came in; of the first input from ``first`` on."""
    for stamped in inputs:
        if batched:
            known, found = _columns(stamped.item)
            counts = zip(*map(_counts_of, found), strict=True)
            for place, (values, count) in enumerate(zip(zip(*found, strict=True), counts, strict=True)):
                if place >= first:
                    yield PackedSequence(stamped, place, known, values, count)
        else:
            values = fields(stamped.item)
            yield PackedSequence(stamped, 0, names(stamped.item), values, tuple(map(count_of, values)))
        first = 0


def _columns(batch: Item) -> tuple[tuple[Field, ...], list[Any]]:
    """Return the fields of a batch of sequences, and of each the sequences."""
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
            "batched=True, but what comes in is no batch of sequences; make batches by ragged='list' or 'offsets', in which all fields "
            "that have an axis are ragged, of samples that are dicts or tuples, or of arrays by 'offsets'"
        )
    return tuple(found), columns


def _split(values: Any, offsets: Any) -> list[Any] | None:
    """Return the parts of values that begin at some offsets; ``None`` if these are none."""
    fits = isinstance(offsets, np.ndarray) and offsets.dtype.kind == "i" and offsets.ndim == 1
    if not fits or offsets[0] != 0 or offsets[-1] != len(values):
        return None
    return [values[begin:end] for begin, end in pairwise(offsets.tolist())]


def packed_rows(known: Sequence[Field], rows: Sequence[Sequence[Sequence[Any]]], length: Length, fill: Fill, like: Item) -> list[Item]:
    """Return rows: sequences one after the other, which of them stands where, and which of its values.

    Args:
        known: How the fields are addressed.
        rows: Of each row the sequences, or parts of them: of each the values in each field.
        length: Of the rows.
        fill: What stands behind the last sequence.
        like: What came in.
    """
    blocks, segment_ids, positions = list[np.ndarray](), dict[Field, np.ndarray](), dict[Field, np.ndarray]()
    for place, name in enumerate(known):
        values = [sequence[place] for row in rows for sequence in row]
        if set(map(type, values)) != {np.ndarray} or not all(map(_NDIM, values)):
            values = [value if getattr(value, "ndim", 0) else np.atleast_1d(array_of(name, value)) for value in values]
        arrays = iter(ragged_arrays(name, values))
        columns = [list(islice(arrays, len(row))) for row in rows]
        first, size = columns[0][0], length_of_row(length, name)
        dtype = first.dtype if first.dtype.kind not in "US" else np.result_type(*chain(*columns))
        rest = np.full((size, *first.shape[1:]), fill_value(name, dtype, fill), dtype)
        pieces = [piece for column in columns for piece in (*column, rest[: size - sum(map(len, column))])]
        block = np.empty((len(rows), *rest.shape), dtype)
        np.concatenate(pieces, out=block.reshape(-1, *first.shape[1:]))
        numbers = np.array([number for column in columns for number in (*range(1, len(column) + 1), 0)], np.int32)
        counts = np.array(list(map(len, pieces)))
        begins = (counts.cumsum() - counts).astype(np.int32)
        segment_ids[name] = numbers.repeat(counts).reshape(len(rows), size)
        within = np.arange(len(rows) * size, dtype=np.int32) - begins.repeat(counts)
        positions[name] = within.reshape(len(rows), size) * (segment_ids[name] > 0)
        blocks.append(block)
    whole = extended(dict.fromkeys(known) if isinstance(like, dict) else like, blocks, segment_ids, "segment_ids")
    whole = extended(whole, fields(whole), positions, "positions")
    return [rebuild(whole, [block[row].copy() for block in fields(whole)]) for row in range(len(rows))]


def _counts_of(column: Sequence[Any]) -> list[int]:
    if set(map(type, column)) == {np.ndarray} and all(map(_NDIM, column)):
        return list(map(len, column))
    return list(map(count_of, column))


def count_of(value: Any) -> int:
    """Return how many values a sequence has; a single number is one of one."""
    shape = getattr(value, "shape", None)
    if shape is None:
        return len(value) if isinstance(value, (list, tuple)) else 1
    return int(shape[0]) if shape else 1


def length_of_row(length: Length, name: Field) -> int:
    """Return how many values of a field a row has.

    Raises:
        ValueError: nobody says.
    """
    if isinstance(length, int):
        return length
    if name not in length:
        raise ValueError(f"field {name!r} is not one of length={length}; say its length, or leave it out by Select before")
    return length[name]


def inputs_of(sequences: Sequence[PackedSequence]) -> list[Stamped]:
    """Return what sequences came in, each once."""
    return list({id(sequence[0]): sequence[0] for sequence in sequences}.values())


def sequences_at(inputs: Sequence[Stamped], batched: bool, places: Sequence[Any]) -> list[PackedSequence]:
    """Return the sequences at some places, each the number of an input and a place in that."""
    found = [list(sequences_of([stamped], batched)) for stamped in inputs]
    return [found[number][place] for number, place in places]


def stamped_row(row: Item, sequences: Sequence[PackedSequence], index: int, batched: bool, offset: int | None = None) -> Stamped:
    """Return a row with the passport of its first sequence, and the keys of all.

    Args:
        row: The row.
        sequences: What stands in it, in the order in which it came.
        index: The number of the row.
        batched: Whether they came in batches.
        offset: Where in the first of them it begins, if they are cut.
    """
    inputs, places, keys = list[Stamped](), list[tuple[int, int]](), list[str]()
    for each in sequences:
        if not inputs or inputs[-1] is not each.input:
            inputs.append(each.input)
        places.append((len(inputs) - 1, each.place))
    passports = tuple([stamped.passport for stamped in inputs])
    for number, place in places if any(passport.keys for passport in passports) else ():
        keys += passports[number].keys[place : place + 1] if batched else passports[number].keys
    return Stamped(
        row, passports[0]._replace(index=index, keys=tuple(keys), made_of=(None, passports, places if offset is None else [offset, places]))
    )

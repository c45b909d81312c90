"""Streams that collect samples into batches, and split batches into samples."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, pairwise
from typing import Annotated, Any, Literal

import numpy as np

from highway.engine.batch import Item, collate, fields, get, names, split
from highway.engine.channel import Together
from highway.engine.component import Position, Traits
from highway.engine.ragged import RaggedOptions, taken_apart
from highway.engine.stage import Items, Lineage, Passport, Positions, Stamped
from highway.parameters.checks import checked, require
from highway.parameters.ranges import Count, Predicate

_Collated = Callable[[list[Item]], Item]


@dataclass
class _OfSamples:
    batch_size: Count
    drop_last: bool = False
    as_list: bool = False


@checked
@dataclass
class Batch(RaggedOptions, _OfSamples):
    """Stack samples into batches.

    Args:
        batch_size: Number of samples per batch, at least 1.
        drop_last: Whether to drop the last batch if it has fewer samples.
        as_list: Whether a field of a batch is a list of values instead of an array. The values can then have any shapes and types.
        ragged: How to stack ragged fields, such as boxes. A field is ragged if the length of its first axis differs from sample to sample.
            ``"pad"`` creates an array ``(B, N, ...)``. N is the greatest length in the batch, rounded up to a multiple of ``multiple``. A
            new field ``<field>_count``, int32 ``(B,)``, contains the lengths. ``"offsets"`` concatenates the values along the first axis. A
            new field ``<field>_offsets``, int32 ``(B + 1,)``, contains the index at which the values of each sample start, and finally the
            total length. ``"list"`` creates a list of arrays.
        fields: The ragged fields, by name or index. ``None`` selects all fields that have at least one axis. With ``None``, N is not
            rounded up if all samples of a batch have the same length.
        multiple: N is rounded up to a multiple of this number. A greater number leads to fewer different shapes of batches.
        pad_to: A fixed N, as one number, or as a dict from fields to numbers. A sample longer than N raises an error.
        fill: Padding value, as one number, or as a dict from fields to numbers.

    Yields:
        Items of the samples' type, with a batch axis in each field. Python ints become int32, and Python floats become float32. If a field
        is a dict or a tuple, its inner fields are stacked. If items are tuples, the counts and offsets come after all other fields. The
        passport (the metadata of an item) contains the epoch, origin (host and role) and times of the first sample. Its index is the index
        of the batch in the epoch, from 0. Its keys are the keys of all samples.

    Raises:
        ConfigError: ``as_list`` is combined with ``ragged``, or another parameter does not fit ``ragged`` (on construction).
        ValueError: the samples of a batch differ in their fields, or in the shape or dtype of a field. The message names the field.
        ValueError: a sample is longer than ``pad_to``, or ``fill`` does not fit into the dtype of a field.
        KeyError: a field in ``fields`` does not exist.

    >>> samples = [{"x": n} for n in range(3)]
    >>> list(Pipeline([samples, Batch(2)]))
    [{'x': array([0, 1], dtype=int32)}, {'x': array([2], dtype=int32)}]
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        require(not (self.as_list and self.ragged), self, "as_list", "False, or no ragged fields")

    def __highway__(self) -> Traits:
        def length(samples: int) -> int:
            return samples // self.batch_size if self.drop_last else -(-samples // self.batch_size)

        return Traits(
            makes="batches", per_epoch=True, whole_inputs=True, length=length, state=lambda: Position(0), remake=_remake(self._collated)
        )

    def stream(self, items: Items) -> Iterator[Stamped]:
        return _batches(self, items, lambda sample: None, lambda kind: self.batch_size, self._collated)

    def _collated(self, samples: list[Item]) -> Item:
        return collate(samples, as_lists=True) if self.as_list else self.collated(samples)


@checked
@dataclass
class BatchByShape:
    """Stack samples of equal shapes and dtypes into batches. A batch is yielded as soon as it is full.

    Args:
        batch_size: Number of samples per batch, at least 1.
        drop_last: Whether to drop the batches that are not full at the end of an epoch.

    For each combination of shapes and dtypes, up to ``batch_size - 1`` samples are buffered.

    >>> samples = [np.zeros((2, 2)), np.zeros((3, 3)), np.zeros((2, 2))]
    >>> [batch.shape for batch in Pipeline([samples, BatchByShape(2)])]
    [(2, 2, 2), (1, 3, 3)]
    """

    batch_size: Count
    drop_last: bool = False

    def __highway__(self) -> Traits:
        return Traits(makes="batches", per_epoch=True, whole_inputs=True, state=lambda: Position(0), remake=_remake(collate))

    def stream(self, items: Items) -> Iterator[Stamped]:
        return _batches(self, items, _shapes, lambda kind: self.batch_size, collate)


def _ascending(boundaries: list[int]) -> bool:
    return all(low < high for low, high in pairwise(boundaries))


@dataclass
class _OfLengths:
    boundaries: Annotated[list[Count], Predicate(_ascending, "increasing numbers")]
    batch_sizes: list[Count]
    by: str | int | Callable[[Any], int] = 0
    drop_last: bool = False
    pad_to_boundary: bool = False


@checked
@dataclass
class Bucket(RaggedOptions, _OfLengths):
    """Batch samples of similar length, to reduce padding. A batch is yielded as soon as it is full.

    Args:
        boundaries: Ascending lengths that separate the buckets. For example, ``[64, 128]`` defines three buckets, for lengths below 64,
            from 64 to 127, and of at least 128.
        batch_sizes: For each bucket, the number of samples per batch. For example, two boundaries need three batch sizes.
        by: The name or index of the field whose length is the length of the sample, or a function that returns the length of a sample. By
            default, the first field of a tuple or list, or the sample itself if it is a single value.
        drop_last: Whether to drop the batches that are not full at the end of an epoch.
        pad_to_boundary: Whether to pad ragged fields to the greatest length of their bucket, which is its upper boundary minus 1.
            Otherwise, they are padded to the greatest length in the batch. The last bucket has no upper boundary. Therefore, with ``True``,
            a sample in the last bucket raises an error.
        ragged: How to stack ragged fields; see :class:`Batch`. ``None``: stack samples without padding.
        fields: The ragged fields, by name or index. ``None``: all fields that have at least one axis.
        multiple: The length of padded fields is rounded up to a multiple of this number.
        pad_to: A fixed length of padded fields, as one number, or as a dict from fields to numbers.
        fill: Padding value, as one number, or as a dict from fields to numbers.

    Yields:
        Batches of the same form as from :class:`Batch`.

    Raises:
        ConfigError: the boundaries do not increase, or do not fit ``batch_sizes`` (on construction).
        ConfigError: ``pad_to_boundary`` is true with ``pad_to``, or without ``ragged="pad"`` (on construction).
        ValueError: for the reasons listed in :class:`Batch`.
        ValueError: the field ``by`` has no length; or ``pad_to_boundary`` is true, and a sample is in the last bucket.
        KeyError: a field does not exist.

    >>> from highway import Pipeline
    >>> with Pipeline([[[0], [1, 2, 3, 4], [5, 6, 7], [8, 9]], np.array, Bucket([3], [2, 2])]) as pipeline:
    ...     [(tokens.tolist(), counts.tolist()) for tokens, counts in pipeline]
    [([[1, 2, 3, 4], [5, 6, 7, 0]], [4, 3]), ([[0, 0], [8, 9]], [1, 2])]
    """

    ragged: Literal["pad", "list", "offsets"] | None = "pad"
    multiple: Count = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        buckets = len(self.boundaries) + 1
        require(len(self.batch_sizes) == buckets, self, "batch_sizes", f"one number for each of {buckets} buckets")
        fixed = self.ragged == "pad" and self.pad_to is None
        require(fixed or not self.pad_to_boundary, self, "pad_to_boundary", "False, or ragged='pad' without pad_to")

    def __highway__(self) -> Traits:
        return Traits(makes="batches", per_epoch=True, whole_inputs=True, state=lambda: Position(0), remake=_remake(self._collated))

    def stream(self, items: Items) -> Iterator[Stamped]:
        return _batches(self, items, self._bucket, self.batch_sizes.__getitem__, self._collated)

    def _bucket(self, sample: Item) -> int:
        if callable(self.by):
            return bisect_right(self.boundaries, int(self.by(sample)))
        value = get(sample, self.by)
        try:
            return bisect_right(self.boundaries, len(value))
        except TypeError:
            raise ValueError(
                f"Bucket: field {self.by!r} is {value!r:.40}, which has no length; pass a function of a sample as by="
            ) from None

    def _collated(self, samples: list[Item]) -> Item:
        if not self.pad_to_boundary:
            return self.collated(samples)
        bucket = self._bucket(samples[0])
        if bucket == len(self.boundaries):
            raise ValueError(
                f"Bucket: a sample has at least the length of the last of boundaries={self.boundaries}, which pad_to_boundary=True does "
                "not allow; add a greater boundary, or truncate the sample"
            )
        return self.collated(samples, self.boundaries[bucket] - 1)


def _batches(op: Any, items: Items, kind: Callable[[Item], Any], size: Callable[[Any], int], collated: _Collated) -> Iterator[Stamped]:
    """Yield batches of samples for which the function ``kind`` returns equal values.

    A batch of kind k is yielded as soon as it has ``size(k)`` samples. At the end, the incomplete batches are yielded, unless
    ``op.drop_last`` is true.
    """
    position, waiting = items.context.state_of(op), defaultdict[Any, list[Stamped]](list)
    index = position.value  # the index of the next batch
    for stamped in items.waiting:
        waiting[kind(stamped.item)].append(stamped)
    items.waiting, position.value = lambda: chain.from_iterable(waiting.values()), lambda: index
    for item in items:
        key = kind(item)
        waiting[key].append(Stamped(item, items.passport))
        if len(waiting[key]) == size(key):
            yield _batch(waiting.pop(key), index, collated)
            index += 1
    for samples in () if op.drop_last else waiting.values():
        yield _batch(samples, index, collated)
        index += 1


def _remake(collated: _Collated) -> Callable[[list[Stamped], None], Stamped]:
    """Return the function ``remake`` of a stage, which creates a batch again from its samples."""
    return lambda samples, part: _batch(samples, None, collated)


def _batch(samples: list[Stamped], index: int | None, collated: _Collated) -> Stamped:
    keys = tuple(key for _, passport in samples for key in passport.keys)
    inputs = tuple(passport for _, passport in samples)
    item = collated([item for item, _ in samples])
    epoch, _, origin, _, times, *_ = inputs[0]
    return Stamped(item, Passport(epoch, index or 0, origin, keys, times, Lineage(inputs), Positions(index, inputs)))


def _shapes(sample: Item) -> Any:
    return type(sample), names(sample), tuple(map(_shape, fields(sample)))


def _shape(value: Any) -> Any:
    if isinstance(value, (dict, tuple)):
        return _shapes(value)
    array = np.asarray(value)
    return array.shape, array.dtype.str


@checked
@dataclass
class Unbatch:
    """Split batches into samples. The samples are views of the batches.

    Args:
        ragged: How :class:`Batch` has stacked the ragged fields: ``"pad"`` or ``"offsets"``. A sample gets its own rows of these fields.
            The fields with counts or offsets are removed.
        fields: The ragged fields. ``None``: the fields of a dict that have counts or offsets. If batches are tuples, you must list the
            fields.

    Yields:
        Items of the batches' type, without the batch axis. The passport (metadata) of a sample is a copy of the passport of its batch,
        except for the index and the keys. The index is the index of the sample in the epoch, from 0. If the batch has one key per sample,
        the sample gets its own key. Otherwise, it gets all keys of the batch.

    Raises:
        ConfigError: ``fields`` is given without ``ragged`` (on construction).
        ValueError: the fields of a batch differ in the length of their first axis, or counts or offsets do not fit the values.
        KeyError: a field in ``fields`` does not exist, or has no count or offsets.

    >>> batches = [{"x": np.zeros((2, 3)), "label": np.array([5, 7])}]
    >>> [sample["label"] for sample in Pipeline([batches, Unbatch()])]
    [np.int64(5), np.int64(7)]
    """

    ragged: Literal["pad", "offsets"] | None = None
    fields: list[str | int] | None = None

    def __post_init__(self) -> None:
        require(self.fields is None or self.ragged is not None, self, "fields", "no value unless ragged='pad' or 'offsets'")

    def __highway__(self) -> Traits:
        return Traits(makes="samples", per_epoch=True, state=lambda: Position(0), remake=self._remake, splits_batches=True)

    def stream(self, items: Items) -> Iterator[Together]:
        index: Position = items.context.state_of(self)
        for item in items:
            passport, samples, rows = items.passport, self._split(item), items.passport.rows
            first = index.value
            index.value += len(samples)
            if samples:
                yield Together(_row(samples, passport, rows, row, first + row) for row in range(len(samples)))

    def _remake(self, batch: list[Stamped], row: int) -> Stamped:
        return _row(self._split(batch[0].item), batch[0].passport, batch[0].passport.rows, row, None)

    def _split(self, batch: Item) -> list[Item]:
        return split(batch) if self.ragged is None else taken_apart(batch, self.ragged, self.fields)


def _row(samples: list[Item], passport: Passport, rows: Sequence[int], row: int, index: int | None) -> Stamped:
    epoch, _, origin, keys, times, *_ = passport
    keys = keys[row : row + 1] if len(keys) == len(samples) else keys
    positions = Positions(index, rows[row : row + 1]) if len(rows) == len(samples) else None
    return Stamped(samples[row], Passport(epoch, index or 0, origin, keys, times, Lineage((passport,), row), positions))

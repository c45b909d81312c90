"""The rows of a cache on the disk, read straight into the rows of batches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from highway.datasets.cache_files.file import DiskFile
from highway.datasets.cache_files.layout import FROM_BYTES
from highway.datasets.decoded_cache import DecodedCache
from highway.engine.batch import Item
from highway.errors import DamagedError
from highway.modules.caching.epoch import Stacker
from highway.reading.batch_formats import NO_ERRORS, BadRow, odd_one
from highway.reading.draws import Draws

Memory = list[np.ndarray | list[Any]]


class NumbersOfRows(DecodedCache):
    """A cache whose samples are their numbers, for :class:`CachedRows`, which reads what stands there."""

    def __repr__(self) -> str:
        return repr(DecodedCache(self.path))  # by which users know it

    def __getitem__(self, number: int) -> int:
        return number

    def __getitems__(self, numbers: Sequence[int]) -> Sequence[int]:  # type: ignore[override]
        return numbers


class CachedRows:
    """Batches of a cache: arrays of one shape are read into their rows, others are collected.

    Args:
        file: The cache.
        stack: See :class:`~highway.modules.cache.Cache`.
    """

    takes_files = False

    def __init__(self, file: DiskFile, stack: bool) -> None:
        self._file, self._stacker = file, Stacker(stack)

    def memory(self, length: int) -> Memory:
        return [[None] * length if memory is None else memory for memory in self._file.memory(length)]

    def fill(self, memory: Memory, first: int, samples: Sequence[Any], draws: Draws | None) -> Mapping[int, Exception]:
        if not samples:
            return NO_ERRORS
        rows = slice(first, first + len(samples))
        try:
            columns = self._file.columns(samples, [part[rows] if isinstance(part, np.ndarray) else None for part in memory])
        except DamagedError as error:
            place = samples.index(error.rows[0])
            before = self.fill(memory, first, samples[:place], draws)
            behind = self.fill(memory, first + place + 1, samples[place + 1 :], draws)
            return {**before, place: error, **{place + 1 + other: why for other, why in behind.items()}}
        for part, column in zip(memory, columns, strict=True):
            if isinstance(part, list):
                part[rows] = column
        return NO_ERRORS

    def item(self, memory: Memory) -> Item:
        layout, values = self._file.layout, list[Any]()
        for field, (name, spec, part) in enumerate(zip(layout.names, layout.fields, memory, strict=True)):
            column = self._file.column(field, part) if isinstance(part, np.ndarray) else part
            try:
                values.append(column if spec.kind in FROM_BYTES else self._stacker.column(name, column))
            except ValueError as error:  # samples differ in shape
                raise BadRow(odd_one(list(column), error).place, error) from error
        return layout.item(values)

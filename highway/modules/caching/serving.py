"""What a finished cache serves: epochs in orders of their own, of batches or samples that are read in many threads."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import count
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, NamedTuple

import numpy as np

from highway.datasets.cache_files.file import CacheFile, samples_of
from highway.datasets.cache_files.layout import FROM_BYTES
from highway.engine.batch import Item
from highway.engine.cancel import is_draining, is_skipped, seed_or
from highway.engine.resume import Saved, keep
from highway.engine.stage import Passport, Stamped
from highway.errors import DamagedError
from highway.modules.caching.epoch import Stacker
from highway.parameters.ranges import HOW
from highway.reading.sampler import Sampler

if TYPE_CHECKING:
    from highway.modules.cache import Cache


_AT_ONCE = 8192  # positions whose numbers are looked up together


class Rows(NamedTuple):
    """A batch that is still to be read from a cache, or a sample."""

    file: CacheFile
    rows: list[int] | int


@dataclass
class Reading:
    """A map that reads what is served, in as many threads as there are cores; what passes a cache while it is being made passes here, too.

    Args:
        stack: See :class:`~highway.modules.cache.Cache`.
        repair: Makes samples again that are found damaged, or raises the error.
    """

    parallel: ClassVar[bool] = True

    stack: bool
    repair: Annotated[Callable[[CacheFile, DamagedError], None] | None, HOW] = None

    def __post_init__(self) -> None:
        self._stacker = Stacker(self.stack)

    def __call__(self, item: Any) -> Any:
        if type(item) is not Rows:
            return item
        try:
            return self._read(*item)
        except DamagedError as error:
            if self.repair is None:
                raise
            self.repair(item.file, error)
            return self._read(*item)

    def _read(self, file: CacheFile, rows: list[int] | int) -> Item:
        if isinstance(rows, int):
            return samples_of(file, [rows])[0]
        layout = file.layout
        columns = zip(layout.names, layout.fields, file.columns(rows), strict=True)
        return layout.item([column if spec.kind in FROM_BYTES else self._stacker.column(name, column) for name, spec, column in columns])


def serve(file: CacheFile, cache: Cache, first: int, index: int, epochs: int | None) -> Iterator[Stamped]:
    """Yield the :class:`Rows` of the epochs from item ``index`` of epoch ``first`` on."""
    epoch, next_index = first, index
    keep(lambda: Saved([epoch, next_index, "serving"]), as_source=True)
    for epoch in count(first) if epochs is None else range(first, epochs):
        for stamped in rows_of(file, cache, epoch, next_index):
            if is_draining():
                return
            if is_skipped(epoch):
                break
            next_index = stamped.passport.index + 1
            yield stamped
        next_index = 0


def rows_of(file: CacheFile, cache: Cache, epoch: int, index: int = 0) -> Iterator[Stamped]:
    """Yield the :class:`Rows` of an epoch from item ``index`` on."""
    size = cache.batch_size or file.batch_size  # 0: samples go out
    step = size or 1
    at_once = max(_AT_ONCE // step, 1) * step
    order = Sampler(len(file), seed_or(cache.seed), cache.shuffle and epoch > 0).order(epoch)
    for begin in range(index * step, len(file), at_once):
        numbers = order(np.arange(begin, min(begin + at_once, len(file)))).tolist()
        for place in range(0, len(numbers), step):
            rows, number = numbers[place : place + step], (begin + place) // step
            passport = Passport(epoch, number, keys=file.keys(rows), made_of=(None, (), [epoch, number]))
            yield Stamped(Rows(file, rows if size else rows[0]), passport)

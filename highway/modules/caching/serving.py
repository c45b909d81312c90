"""Serve epochs from a complete cache. One thread determines the order, and many threads read the samples."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import count
from typing import Annotated, Any, NamedTuple

import numpy as np

from highway.datasets.cache_files.file import CacheFile, samples_of
from highway.datasets.cache_files.layout import FROM_BYTES
from highway.engine.batch import Item
from highway.engine.component import Position, Traits
from highway.engine.context import Context
from highway.engine.stage import Lineage, Passport, Positions, Stamped
from highway.errors import DamagedError
from highway.modules.caching.epoch import Stacker
from highway.modules.caching.options import CacheOptions
from highway.parameters.ranges import HOW
from highway.reading.sampler import Order
from highway.reading.share import share_order

_AT_ONCE = 8192  # number of positions that are converted to rows at once


class Rows(NamedTuple):
    """The rows (the indexes in the cache) of the samples that a worker will read for one output."""

    file: CacheFile
    rows: list[int] | int


@dataclass
class Reading:
    """A map that reads the samples of :class:`Rows` on all cores. While the cache is being written, it passes items on unchanged.

    Args:
        stack: See :class:`~highway.modules.cache.Cache`.
        repair: A function that creates damaged samples again, or raises the error.
    """

    stack: bool
    repair: Annotated[Callable[[CacheFile, DamagedError], None] | None, HOW] = None

    def __post_init__(self) -> None:
        self._stacker = Stacker(self.stack)

    def __highway__(self) -> Traits:
        return Traits(parallel=True)

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


@dataclass
class Serving:
    """Yields the epochs of a complete cache.

    Args:
        file: The cache.
        cache: The parameters of the cache.
        rank: The rank. The index in the passport (metadata) of an item counts the items of all ranks, as for a reader.
        world_size: Number of ranks.
        seed: Seed of the order.
        count: A function that is called with the number of samples that an epoch lacks.
    """

    file: CacheFile
    cache: CacheOptions
    rank: int
    world_size: int
    seed: int
    count: Callable[[int], None] = lambda _: None

    def epochs(self, first: int, index: int, epochs: int | None, context: Context, position: Position) -> Iterator[Stamped]:
        """Yield the :class:`Rows` of all epochs, starting at item ``index`` of epoch ``first``."""
        epoch, next_index = first, index
        position.value, context.is_source = lambda: [epoch, next_index, "serving", self.file.made_in], True
        for epoch in count(first) if epochs is None else range(first, epochs):
            for stamped in self.epoch(epoch, next_index):
                if context.draining:
                    return
                if context.is_skipped(epoch):
                    break
                next_index += 1
                yield stamped
            next_index = 0

    def epoch(self, epoch: int, index: int = 0) -> Iterator[Stamped]:
        """Yield the :class:`Rows` of an epoch, starting at item ``index``."""
        file, size = self.file, self.cache.batch_size or self.file.batch_size  # 0: outputs are samples
        if epoch == 0 and "items" in file.index:
            stops = file.index["items"][1].cumsum().tolist()
            for number in range(index, len(stops)):
                some = list(range(stops[number - 1] if number else 0, stops[number]))
                yield self._stamped(epoch, int(file.index["items"][0, number]), number, some, bool(size))
            return
        step = size or 1
        at_once = max(_AT_ONCE // step, 1) * step
        total = len(file) if file.plan is None else len(file.plan)
        has_holes = file.plan is not None and not file.batch_size  # whether single samples can be missing
        begin, number = 0 if has_holes else index * step, index
        left_out, waiting = (index * step if has_holes else 0), np.empty((2, 0), np.int64)
        order = share_order(total, self.seed, self.cache.shuffle, epoch)
        for start in range(begin, total, at_once):
            positions = np.arange(start, min(start + at_once, total))
            found = np.stack([positions, self._rows(order, positions)])
            waiting = np.concatenate([waiting, found[:, found[1] >= 0]], axis=1)
            left_out, waiting = left_out - min(left_out, waiting.shape[1]), waiting[:, left_out:]
            stop = waiting.shape[1] if start + at_once >= total else waiting.shape[1] // step * step
            places, rows = waiting[:, :stop].tolist()
            waiting = waiting[:, stop:]
            for place in range(0, stop, step):
                some = rows[place : place + step]
                at = self.world_size * (number if size else places[place]) + self.rank
                yield self._stamped(epoch, at, number, some, bool(size))
                number += 1

    def _stamped(self, epoch: int, at: int, number: int, rows: list[int], batched: bool) -> Stamped:
        made_of, positions = Lineage(part=[epoch, number]), Positions(at, self.file.positions(rows))
        passport = Passport(epoch, at, keys=self.file.keys(rows), made_of=made_of, positions=positions)
        return Stamped(Rows(self.file, rows if batched else rows[0]), passport)

    def _rows(self, order: Order, positions: np.ndarray) -> np.ndarray:
        """Return the rows of the samples at ``positions``, below 0 for missing samples.

        In batches, the next sample replaces a missing sample.
        """
        plan = self.file.plan
        if plan is None:
            return order(positions)
        rows: np.ndarray = plan[order(positions)]
        if bad := int((rows == -1).sum()):
            self.count(bad)
        step = 1
        while self.file.batch_size and (holes := np.flatnonzero(rows < 0)).size:
            rows[holes] = plan[order(positions[holes] + step)]
            step += 1
        return rows

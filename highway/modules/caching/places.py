"""Find the place of each sample in the share of its rank.

A *share* is the list of samples that one rank reads (:class:`highway.reading.share.FixedShare`). The *place* of a sample is its index in
the share. The *row* of a sample is its index in the cache.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from highway.datasets.cache_files.file import CacheFile
from highway.engine.context import Context
from highway.engine.stage import Passport
from highway.reading.plan import RowRanges

_ABSENT, _BAD = -1, -2


class Places:
    """The places of the samples that are written to a cache in one epoch.

    Args:
        source: The plan of the reader, which determines the order of its samples. Only maps are between the reader and the cache.
        context: The context of the cache.

    Attributes:
        known: Whether the places of all samples so far are known. ``False`` after a map has dropped, added or repeated samples.
    """

    def __init__(self, source: RowRanges, context: Context) -> None:
        share = source.share(context)
        assert share is not None
        self._source, self._share, self.known = source, share, True
        self._batch_size = source.stands_for.rows
        self._rows = np.full(share.count, _ABSENT)  # for each place, the row of its sample

    def kept(self, passport: Passport, count: int, rows: int) -> Sequence[int]:
        """Return the indexes of the samples to write to the cache: all samples of an item, except samples that replace bad samples.

        A *bad* sample is a sample that the reader could not read.

        Args:
            passport: The passport (metadata) of the item.
            count: Number of samples of the item.
            rows: Number of samples in the cache before the new samples are appended.
        """
        begin, stop = self._span(passport.index) if self.known else (0, 0)
        if stop - begin != count:
            self.known = False
            return range(count)
        places: Any = slice(begin, stop)
        kept: Sequence[int] = range(count)
        if passport.epoch:
            places = self._share.places(passport.epoch, self._share.first + self._share.step * np.arange(begin, stop))
        if bad := self._source.bad.get(passport.epoch):
            places = places if passport.epoch else np.arange(begin, stop)
            is_bad = np.array([number in bad for number in self._share.numbers(places).tolist()])
            self._rows[places[is_bad & (self._rows[places] < 0)]] = _BAD
            kept, places = np.flatnonzero(~is_bad).tolist(), places[~is_bad]
        if (self._rows[places] >= 0).any():  # a sample is already in the cache
            self.known = False
            return range(count)
        self._rows[places] = range(rows, rows + len(kept))
        return kept

    def lacking(self, other: CacheFile) -> list[tuple[int, int]]:
        """Return the rows (in the other cache) and the places of the samples that another cache has and this cache lacks."""
        places = other.index.get("places", np.empty(0, np.int64)) if self.known else np.empty(0, np.int64)
        return [(row, place) for row, place in enumerate(places.tolist()) if self._rows[place] < 0]

    def add(self, place: int, row: int) -> None:
        """Record the row of a sample in the cache."""
        self._rows[place] = row

    @property
    def complete(self) -> bool:
        """Whether the cache has all samples."""
        return self.known and bool((self._rows >= 0).all())

    @property
    def is_planned(self) -> bool:
        """Whether an epoch from the cache has the same order as an epoch from the reader: no stage after the reader skipped a batch."""
        return self.known and (self._batch_size is None or not (self._rows == _ABSENT).any())

    def index(self) -> dict[str, np.ndarray]:
        """Return additional arrays for the index of a cache; see :class:`~highway.datasets.cache_files.file.CacheFile`.

        The dict is empty if the places are unknown, or if the cache has all samples, each at its place.

        ``"bad"`` contains the places of samples that the reader could not read. In batches, the next sample has replaced such a sample.
        ``"dropped"`` contains the places of single samples that a stage after the reader has skipped. It does not contain the samples of
        skipped batches.
        """
        if not self.known or (self._rows == np.arange(len(self._rows))).all():
            return {}
        if self._batch_size is None:
            for bad in self._source.bad.copy().values():
                self._mark(bad)
        there = np.flatnonzero(self._rows >= 0)
        places = np.empty(len(there), np.int64)
        places[self._rows[there]] = there
        dropped = self._rows == _ABSENT if self._batch_size is None else np.zeros(len(self._rows), bool)
        return {"places": places, "bad": np.flatnonzero(self._rows == _BAD), "dropped": np.flatnonzero(dropped)}

    def _mark(self, bad: dict[int, str]) -> None:
        absent = np.flatnonzero(self._rows == _ABSENT)
        is_bad = [number in bad for number in self._share.numbers(absent).tolist()]
        self._rows[absent[np.array(is_bad, bool)]] = _BAD

    def _span(self, index: int) -> tuple[int, int]:
        """Return the start and end of an item's samples in the epoch of this rank. Return 0, 0 if the reader has no such item."""
        if self._batch_size is None:
            begin, other = divmod(index - self._share.first, self._share.step)
            stop = begin + 1
        else:
            batch, other = divmod(index - self._share.sampler.rank, self._share.sampler.world_size)
            begin, stop = batch * self._batch_size, min((batch + 1) * self._batch_size, self._share.count)
        return (begin, stop) if not other and 0 <= begin < stop <= self._share.count else (0, 0)

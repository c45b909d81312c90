"""Which sample of a mix stands at which position: a pure function, as of any other dataset."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.random import Philox

from highway.datasets.dataset import Dataset, blocks_of, length_of
from highway.datasets.mixing.interleave import Interleave
from highway.datasets.mixing.mixed import Parts
from highway.reading.sampler import Order, Sampler, Shuffle, epoch_key, hashed

_PLACES = 5 << 128  # what is drawn of an epoch's numbers for the places in windows, and for the seeds of the parts: behind all others
_WINDOW = 64  # positions that are shuffled with each other, so that what repeats in the interleave meets no number of ranks
_LATEST = np.uint64(2**64 - 1)


def sampler_of(dataset: Dataset, seed: int, shuffle: Shuffle, window: int | None) -> Sampler:
    """Return the sampler of one rank that has all of a dataset.

    Raises:
        ConfigError: the dataset, or one of a mix, has no blocks, and ``shuffle`` asks for them.
    """
    if not isinstance(dataset, Parts):
        return Sampler(length_of(dataset), seed, shuffle, blocks_of(dataset) if shuffle == "blocks" else (), window)
    seeds = Philox(key=epoch_key(seed, 0), counter=_PLACES).random_raw(len(dataset.datasets) + 1).tolist()[1:]
    parts = tuple(sampler_of(part, own >> 1, shuffle, window) for part, own in zip(dataset.datasets, seeds, strict=True))
    return Sampler(dataset.interleave.length, seed, shuffle, mixture=Mixture(dataset.interleave, dataset.firsts, parts))


class Mixture(NamedTuple):
    """What is mixed, and how.

    Args:
        interleave: Which part stands at which position of an epoch.
        firsts: The number of each part's first sample, int64 ``(D,)``.
        parts: The samplers of the parts, whose epochs are passes over them.
    """

    interleave: Interleave
    firsts: np.ndarray
    parts: tuple[Sampler, ...]

    def order(self, sampler: Sampler, epoch: int) -> MixedOrder:
        """Return what says which number stands at which position of an epoch."""
        return MixedOrder(self, sampler, epoch)


class MixedOrder:
    """The numbers of an epoch of a mix by position; those behind the last begin anew.

    Each part goes on where it was at the end of the epoch before.
    """

    def __init__(self, mixture: Mixture, sampler: Sampler, epoch: int) -> None:
        self._mixture, self._total, self._epoch = mixture, sampler.total, epoch
        key = Philox(key=epoch_key(sampler.seed, epoch), counter=_PLACES).random_raw()
        self._key = np.uint64(key) if sampler.shuffle else None

        @lru_cache(maxsize=256)
        def order_of(part: int, number: int) -> Order | MixedOrder:
            return mixture.parts[part].order(number)

        self._order_of = order_of

    def __call__(self, positions: np.ndarray) -> np.ndarray:
        """Return the numbers at int64 positions, as int64."""
        mixture, places = self._mixture, positions % self._total
        which, taken = mixture.interleave(places if self._key is None else self._shuffled(places, self._key))
        numbers = np.empty_like(places)
        for part in np.unique(which).tolist():
            mine = np.flatnonzero(which == part)
            taken_before = self._epoch * int(mixture.interleave.drawn[part])
            passes, within = np.divmod(taken[mine] + taken_before, mixture.parts[part].total)
            for number in np.unique(passes).tolist():
                some = np.flatnonzero(passes == number)
                numbers[mine[some]] = self._order_of(part, number)(within[some]) + mixture.firsts[part]
        return numbers

    def _shuffled(self, places: np.ndarray, key: np.uint64) -> np.ndarray:
        """Return places in another order within each window."""
        window, within = np.divmod(places, _WINDOW)
        windows, which = np.unique(window, return_inverse=True)
        all_places = windows[:, None] * _WINDOW + np.arange(_WINDOW)
        drawn = np.where(all_places < self._total, hashed(all_places.astype(np.uint64) + key), _LATEST)
        ranks = drawn.argsort(axis=1, kind="stable").argsort(axis=1)
        shuffled: np.ndarray = window * _WINDOW + ranks[which, within]
        return shuffled

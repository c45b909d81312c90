"""The samples of a rank with a cache: the same samples in every epoch.

A *position* is a place in the order of an epoch. All ranks share this order.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from highway.reading.sampler import Blocks, Order, Sampler, epoch_key


def share_order(count: int, seed: int, shuffle: bool, epoch: int) -> Order:
    """Return the order of a share in an epoch: the place of the sample at each position. In epoch 0, place and position are equal."""
    order = Sampler(count, seed, shuffle and epoch > 0).order(epoch)
    assert isinstance(order, Order)
    return order


class CacheOrder(NamedTuple):
    """The order of a cache's epochs: see :class:`~highway.modules.cache.Cache`."""

    seed: int | None
    shuffle: bool


class FixedShare:
    """The share of one rank: in every epoch, the rank has the samples of epoch 0.

    The share depends only on the seed, the rank and the world size. A sample's *place* is its index among the rank's samples of epoch 0,
    from 0. Each later epoch has its own order of the places. The cache uses the same order as the reader, so an epoch is the same from
    the dataset and from the cache.

    With ``shuffle="blocks"``, later epochs shuffle within the windows of epoch 0, so that samples of a block are still read together.

    Args:
        sampler: The sampler of the rank.
        count: Number of samples of the rank in an epoch, without the samples that ``drop_last`` drops.
        seed: The seed of the orders.
        shuffle: Whether the epochs after the first epoch are shuffled.

    Attributes:
        first: The position of the rank's first sample of an epoch.
        step: The distance between two successive samples of the rank, in positions of an epoch.
    """

    def __init__(self, sampler: Sampler, count: int, seed: int, shuffle: bool) -> None:
        self.sampler, self.count = sampler, count
        self._seed, self._shuffle = seed, shuffle
        self._numbers = sampler.order(0)
        self.first = int(sampler.position(np.zeros(1, np.int64))[0])
        self.step = 1 if sampler.in_stretches else sampler.world_size
        self._order = lru_cache(maxsize=4)(self._order_of)

    def counts(self, positions: np.ndarray) -> np.ndarray:
        """Return how many of the rank's samples come before each position of an epoch. Positions after the last one wrap around."""
        found: np.ndarray = (positions - self.first) // self.step % self.count
        return found

    def places(self, epoch: int, positions: np.ndarray) -> np.ndarray:
        """Return the places of the samples at positions of an epoch."""
        return self._order(epoch)(self.counts(positions))

    def positions(self, epoch: int, positions: np.ndarray) -> np.ndarray:
        """Return, for positions of an epoch, the positions of the same samples in epoch 0."""
        return self.sampler.position(self.places(epoch, positions))

    def numbers(self, places: np.ndarray) -> np.ndarray:
        """Return the dataset's indexes of the samples at places."""
        return self._numbers(self.sampler.position(places))

    def order(self, epoch: int) -> Callable[[np.ndarray], np.ndarray]:
        """Return a function from positions of an epoch to the dataset's indexes."""
        order = self._order(epoch)
        return lambda positions: self.numbers(order(self.counts(positions)))

    def _order_of(self, epoch: int) -> Order:
        if not (self.sampler.in_stretches and self._shuffle and epoch):
            return share_order(self.count, self._seed, self._shuffle, epoch)
        window = self.sampler.samples_of_window
        windows = [range(begin, min(begin + window, self.count)) for begin in range(0, self.count, window)]
        return Order(self.count, Blocks(windows, self.count, window, epoch_key(self._seed, epoch)))

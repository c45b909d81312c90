"""Draw the random numbers of all samples of a batch at once. The numbers do not depend on how an epoch is divided into ranges.

A *position* is a place in the order of an epoch. Each position has :data:`NUMBERS` consecutive numbers of the epoch's sequence. Therefore,
one call draws the numbers of a batch.
"""

from __future__ import annotations

import numpy as np
from numpy.random import Generator

from highway.engine.context import OfThread
from highway.engine.randomness import Substreams

NUMBERS = 24  # uniform numbers per position: the first decides a flip, the others draw a box
_STEPS = NUMBERS // 4  # steps of the generator, which yields four numbers per step
_FROM = 4 << 128  # counter of position 0; smaller counters belong to generators of single samples and to the orders (``sampler``)
_SPREAD = 8  # up to this number of ranks, drawing the numbers of all ranks is faster than setting the generator for each sample

_substreams = OfThread(Substreams)


class Draws:
    """The random numbers of the samples at some positions of an epoch.

    Args:
        key: Key of the epoch's sequence.
        positions: int64 ``(N,)``, ascending unless ``numbers`` is given.
        numbers: The numbers, if they were drawn before.

    Attributes:
        numbers: float64 ``(N, NUMBERS)``, uniform in [0, 1).
    """

    def __init__(self, key: int, positions: np.ndarray, numbers: np.ndarray | None = None) -> None:
        self._key, self._positions = key, positions
        self.numbers = self._drawn_for(positions) if numbers is None else numbers

    def __getitem__(self, rows: slice) -> Draws:
        """Return the random numbers of some of the samples."""
        return Draws(self._key, self._positions[rows], self.numbers[rows])

    def _drawn_for(self, positions: np.ndarray) -> np.ndarray:
        first, count = int(positions[0]), len(positions)
        span = int(positions[-1]) - first + 1
        if span > count * _SPREAD:
            return np.stack([self._drawn(position, 1)[0] for position in positions.tolist()])
        drawn = self._drawn(first, span)
        return drawn if span == count else drawn[positions - first]

    def _drawn(self, first: int, count: int) -> np.ndarray:
        return _substreams.value.at(self._key, _FROM + _STEPS * first).random((count, NUMBERS))

    def generator(self, place: int) -> Generator:
        """Return a generator for the sample with index ``place``, for any amount of numbers. The next call resets the generator."""
        return _substreams.value.at(self._key, int(self._positions[place]) << 64)

"""What chance says about the samples of a batch: drawn together, and the same however an epoch is cut into runs.

Each position of an epoch owns :data:`NUMBERS` consecutive numbers of the epoch's sequence, so those of a batch are one call.
"""

from __future__ import annotations

import numpy as np
from numpy.random import Generator

from highway.engine.context import OfThread
from highway.engine.randomness import Substreams

NUMBERS = 24  # uniform numbers of each position: the first is a coin, the others draw a box
_STEPS = NUMBERS // 4  # of the generator, which makes four at a time
_FROM = 4 << 128  # where they begin; before are those of generators for single samples, and of the orders (``sampler``)
_SPREAD = 8  # positions of other ranks for each of ours up to which those are drawn too: to set the generator takes as long

_substreams = OfThread(Substreams)


class Draws:
    """What is drawn for the samples at some positions of an epoch.

    Args:
        key: What the epoch's randomness hangs on.
        positions: int64 ``(N,)``, ascending.
        numbers: Theirs, where they were drawn before.

    Attributes:
        numbers: float64 ``(N, NUMBERS)``, evenly from 0 to below 1.
    """

    def __init__(self, key: int, positions: np.ndarray, numbers: np.ndarray | None = None) -> None:
        self._key, self._positions = key, positions
        self.numbers = self._drawn_for(positions) if numbers is None else numbers

    def __getitem__(self, rows: slice) -> Draws:
        """Return what is drawn for some of them."""
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
        """Return the generator of one of the samples, for what draws as it likes; for use until the next call."""
        return _substreams.value.at(self._key, int(self._positions[place]) << 64)

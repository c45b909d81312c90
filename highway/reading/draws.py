"""What chance says about the samples of a run of rows: drawn together, and the same however an epoch is cut into runs.

Each position of an epoch owns :data:`NUMBERS` consecutive numbers of the epoch's sequence, so those of a run are one call.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np
from numpy.random import Generator

from highway.engine.cancel import OfThread
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
    """

    def __init__(self, key: int, positions: np.ndarray) -> None:
        self._key, self._positions = key, positions

    @cached_property
    def numbers(self) -> np.ndarray:
        """float64 ``(N, NUMBERS)``, evenly from 0 to below 1."""
        first, count = int(self._positions[0]), len(self._positions)
        span = int(self._positions[-1]) - first + 1
        if span > count * _SPREAD:
            return np.stack([self._drawn(position, 1)[0] for position in self._positions.tolist()])
        drawn = self._drawn(first, span)
        return drawn if span == count else drawn[self._positions - first]

    def _drawn(self, first: int, count: int) -> np.ndarray:
        return _substreams.value.at(self._key, _FROM + _STEPS * first).random((count, NUMBERS))

    def generator(self, place: int) -> Generator:
        """Return the generator of one of the samples, for what draws as it likes; for use until the next call."""
        return _substreams.value.at(self._key, int(self._positions[place]) << 64)

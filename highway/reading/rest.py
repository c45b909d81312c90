"""The rest of an epoch: the positions that are left when a run resumes on another number of ranks, or with another mixture.

A *position* is a place in the order of an epoch, from 0.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from highway.engine.resume import packed, unpacked


class Rest:
    """The positions of an epoch that are left to read: single positions, and then all positions from ``tail`` on.

    The *place* of a position is its index among the positions that are left, from 0.

    Args:
        tail: All positions from ``tail`` on are left. The positions before ``tail`` were read, except for ``singles``.
        singles: Ascending positions below ``tail``, int64.
    """

    def __init__(self, tail: int = 0, singles: np.ndarray | None = None) -> None:
        self.tail, self.singles = tail, np.empty(0, np.int64) if singles is None else singles

    @classmethod
    def without_runs(cls, tail: int, singles: np.ndarray) -> Rest:
        """Return the rest in its shortest form. If the last single positions and ``tail`` are consecutive, they become the tail."""
        apart = np.flatnonzero(singles != np.arange(tail - len(singles), tail))
        kept = int(apart[-1]) + 1 if len(apart) else 0
        return cls(tail - len(singles) + kept, singles[:kept])

    @classmethod
    def from_json(cls, saved: Any) -> Rest:
        """Return the rest from the return value of :meth:`as_json`."""
        return cls(saved) if isinstance(saved, int) else cls(saved[0], unpacked(saved[1]))

    def as_json(self) -> Any:
        """Return the rest in a form that JSON can hold."""
        return [self.tail, packed(self.singles)] if len(self.singles) else self.tail

    def count(self, total: int) -> int:
        """Return the number of positions that are left in an epoch of ``total`` samples."""
        return len(self.singles) + max(total - self.tail, 0)

    def without(self, places: np.ndarray, stop: int) -> Rest:
        """Return the rest after all places below ``stop`` were read, except the places in an array. The array can have any order."""
        tail = int(self.at(np.array([max(stop, len(self.singles))]))[0])
        return Rest.without_runs(tail, np.union1d(self.at(places), self.singles[stop:]))

    def at(self, places: np.ndarray) -> np.ndarray:
        """Return the positions at places. :class:`~highway.reading.sampler.Order` wraps positions after the end of the epoch around."""
        positions = places + (self.tail - len(self.singles))
        if len(self.singles):
            early = places < len(self.singles)
            positions[early] = self.singles[places[early]]
        return positions

    def places(self, positions: np.ndarray) -> np.ndarray:
        """Return the places of positions."""
        places: np.ndarray = np.where(
            positions < self.tail, np.searchsorted(self.singles, positions), positions + (len(self.singles) - self.tail)
        )
        return places


WHOLE = Rest()  # a whole epoch

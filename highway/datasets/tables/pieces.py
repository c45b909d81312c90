"""A cache of decoded pieces, such as row groups. A piece is decoded as a whole, once for all threads that wait for it."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Generic, TypeVar

from highway.engine.cancel import check_cancelled

T = TypeVar("T")

_STAYING = 4  # pieces whose rows were all taken stay in the cache while all pieces use at most 1 / 4 of the budget
_LOOK = 0.1  # while another thread decodes: seconds between two checks whether the stage was cancelled


class _Kept(Generic[T]):
    def __init__(self, piece: T, size: int) -> None:
        self.piece, self.size, self.used, self.taken, self.is_done = piece, size, 0, 0, False


class Pieces(Generic[T]):
    """Cached pieces by index, such as row groups.

    If several threads need a piece, one thread decodes it. The other threads decode other pieces that they need, and then wait.

    When all rows of a piece were taken, the piece is removed, because the epoch does not need it again. Exception: if all pieces together
    use at most a quarter of the budget, the piece stays, so that a small table is decoded once for all epochs. If the budget is full, the
    least recently used pieces are removed.

    Args:
        budget: Maximum number of bytes of all cached pieces. At least one piece is always kept. Pieces that are being decoded do not count.

    Attributes:
        again: Number of pieces that were decoded again, because they had been removed when the budget was full.
    """

    def __init__(self, budget: int) -> None:
        self._budget = budget
        self._kept: dict[int, _Kept[T]] = {}
        self._forgotten: set[int] = set()
        self._decoding: set[int] = set()
        self._changed = threading.Condition()
        self._clock = itertools.count(1)
        self._total = self.again = 0

    def each(self, wanted: Iterable[int], decode: Callable[[int], tuple[T, int]]) -> Iterator[tuple[int, T]]:
        """Yield the pieces at some indexes, cached pieces first.

        Args:
            wanted: The indexes.
            decode: Returns a piece, and its number of bytes in memory. The function is an argument of this method, not an attribute of this
                object. An attribute would refer to the table, and so create a reference cycle.
        """
        missing = []
        for number in wanted:
            if (held := self._kept.get(number)) is None:
                missing.append(number)
            else:
                held.used = next(self._clock)
                yield number, held.piece
        while missing:
            number, held = self._claim(missing)
            missing.remove(number)
            yield number, self._decoded(number, decode) if held is None else held.piece

    def take(self, number: int, taken: int, rows: int) -> None:
        """Count rows that were taken from a piece. The piece has ``rows`` rows."""
        if (held := self._kept.get(number)) is not None and held.size:
            with self._changed:
                held.taken += taken - rows if held.is_done else taken  # if all rows were taken before, these are rows of the next epoch
                held.is_done = held.taken >= rows
                if held.is_done:
                    self._shrink(self._budget // _STAYING, lambda _, one: one.is_done)

    def _claim(self, missing: list[int]) -> tuple[int, _Kept[T] | None]:
        """Wait for a piece. Return a cached piece, or the index of a piece that this thread must decode."""
        with self._changed:
            while True:
                for number in missing:
                    if number in self._kept:
                        return number, self._kept[number]
                for number in missing:
                    if number not in self._decoding:
                        self._decoding.add(number)
                        return number, None
                self._changed.wait(_LOOK)
                check_cancelled()

    def _decoded(self, number: int, decode: Callable[[int], tuple[T, int]]) -> T:
        kept: _Kept[T] | None = None
        try:
            kept = _Kept(*decode(number))
        finally:
            with self._changed:
                self._decoding.discard(number)
                if kept is not None:
                    self._keep(number, kept)
                self._changed.notify_all()
        return kept.piece

    def _keep(self, number: int, kept: _Kept[T]) -> None:
        self.again += number in self._forgotten
        kept.used = next(self._clock)
        self._kept[number] = kept
        self._total += kept.size
        self._shrink(self._budget // _STAYING, lambda _, one: one.is_done)
        self._forgotten.update(self._shrink(self._budget, lambda one, _: one != number))

    def _shrink(self, most: int, is_removable: Callable[[int, _Kept[T]], bool]) -> list[int]:
        """Remove the least recently used pieces until all pieces have at most ``most`` bytes. Return the indexes of the removed pieces."""
        removed = []
        while self._total > most and (others := [one for one, held in self._kept.items() if held.size and is_removable(one, held)]):
            removed.append(min(others, key=lambda one: self._kept[one].used))
            self._total -= self._kept.pop(removed[-1]).size
        return removed

"""A cache of decoded pieces. A piece is a part of a table that is decoded as a whole, such as a row group."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Generic, TypeVar

from highway.engine.cancel import check_cancelled

T = TypeVar("T")

_STAYING = 4  # pieces whose rows have all been taken stay in memory if all pieces together use at most 1 / 4 of the budget
_LOOK = 0.1  # while another thread decodes: seconds between two checks for cancellation


class _Kept(Generic[T]):
    def __init__(self, piece: T, size: int) -> None:
        self.piece, self.size, self.used, self.taken, self.is_done = piece, size, 0, 0, False


class Pieces(Generic[T]):
    """A cache of pieces, by index.

    If several threads need the same piece, one of them decodes the piece. The other threads first decode other pieces that they need, and
    then wait.

    When all rows of a piece have been taken, the piece is removed, because the epoch does not need the piece again. But if all pieces
    together use at most a quarter of the budget, the piece stays. A small table is therefore decoded only once for all epochs. If the
    pieces exceed the budget, the least recently used pieces are removed.

    Args:
        budget: Maximum number of bytes of all cached pieces. A single piece can be larger. Pieces that are being decoded do not count.

    Attributes:
        again: Number of decodings of pieces that were removed before because of the budget.
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
        """Yield the pieces with the indexes in ``wanted``, cached pieces first.

        Args:
            wanted: The indexes.
            decode: Decodes the piece with an index. Returns the piece, and its number of bytes in memory. (If this function were an
                attribute, there would be a reference cycle with the table.)
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
        """Add ``taken`` to the rows that were taken from a piece. ``rows`` is the total number of rows of the piece."""
        if (held := self._kept.get(number)) is not None and held.size:
            with self._changed:
                held.taken += taken - rows if held.is_done else taken  # if all rows were taken before, the next epoch begins
                held.is_done = held.taken >= rows
                if held.is_done:
                    self._shrink(self._budget // _STAYING, lambda _, one: one.is_done)

    def _claim(self, missing: list[int]) -> tuple[int, _Kept[T] | None]:
        """Return the index of a piece, and the cached piece. If the piece is ``None``, this thread must decode it."""
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
        """Remove the least recently used pieces until the pieces have at most ``most`` bytes in total. Return the removed indexes."""
        removed = []
        while self._total > most and (others := [one for one, held in self._kept.items() if held.size and is_removable(one, held)]):
            removed.append(min(others, key=lambda one: self._kept[one].used))
            self._total -= self._kept.pop(removed[-1]).size
        return removed

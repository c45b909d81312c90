"""What is decoded as a whole and read row by row: kept within a budget, and decoded once for all threads that want it at a time."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Generic, TypeVar

from highway.engine.cancel import check_cancelled

T = TypeVar("T")

_LOOK = 0.1  # seconds between two looks at whether the stage was cancelled, while another thread decodes


class _Kept(Generic[T]):
    def __init__(self, piece: T, size: int) -> None:
        self.piece, self.size, self.used = piece, size, 0


class Pieces(Generic[T]):
    """Pieces by number, such as row groups.

    Of the threads that want a piece one decodes it, and the others wait for it; meanwhile they decode others that they want. Those that
    were not used for longest are forgotten first.

    Args:
        budget: How many bytes the pieces may take together; one is always kept. Those that are being decoded come on top.

    Attributes:
        again: How many pieces were decoded that had been forgotten before.
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
        """Yield the pieces of these numbers, those that are there first.

        Args:
            wanted: The numbers.
            decode: Returns a piece, and how many bytes of memory it takes. What it raises is raised here. It is an argument here, since a
                table that kept a method of its own would be freed only by the garbage collector, with its files and memory.
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

    def _claim(self, missing: list[int]) -> tuple[int, _Kept[T] | None]:
        """Return one of these that is there, or one that this thread is to decode; wait until there is either."""
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
        while self._total > self._budget and (others := [one for one, held in self._kept.items() if held.size and one != number]):
            oldest = min(others, key=lambda one: self._kept[one].used)
            self._total -= self._kept.pop(oldest).size
            self._forgotten.add(oldest)

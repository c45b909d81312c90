"""Samples that lie in several parts, one part after the other: files, shards, row groups, data sets."""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from itertools import accumulate, pairwise


class Spans:
    """Where samples lie by their numbers.

    Args:
        lengths: How many samples each part has.

    Attributes:
        begins: The number of the first sample of each part, and the number of all samples.
    """

    def __init__(self, lengths: Iterable[int]) -> None:
        self.begins = list(accumulate(lengths, initial=0))

    def __len__(self) -> int:
        return self.begins[-1]

    def place(self, number: int) -> tuple[int, int]:
        """Return which part has a sample, and the sample's number in the part. Raises IndexError."""
        number = range(self.begins[-1])[number]
        part = bisect_right(self.begins, number) - 1
        return part, number - self.begins[part]

    def rows_by_part(self, numbers: Sequence[int]) -> dict[int, list[tuple[int, int]]]:
        """Return for each part that has some of the samples their positions in ``numbers``, with their numbers in the part."""
        found: dict[int, list[tuple[int, int]]] = {}
        for position, number in enumerate(numbers):
            part, own = self.place(number)
            found.setdefault(part, []).append((position, own))
        return found

    def blocks(self) -> list[range]:
        """Return the numbers of the samples of each part that has some."""
        return [range(begin, end) for begin, end in pairwise(self.begins) if begin < end]


class PartedDataset(ABC):
    """A data set whose samples lie in several parts."""

    @property
    @abstractmethod
    def spans(self) -> Spans:
        """Where the samples lie."""

    def __len__(self) -> int:
        return len(self.spans)

    def blocks(self) -> list[range]:
        """Return the numbers of the samples of each part: neighbours are cheap to read together."""
        return self.spans.blocks()

"""Samples that are stored in several consecutive parts, such as files, row groups or datasets."""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from itertools import accumulate, pairwise
from typing import Any

from highway.datasets.dataset import Dataset, LazyKeys, Several, StoredFiles, keys_of, length_of, locate, read_several, several_of
from highway.engine.cancel import check_cancelled


class Spans:
    """The range of sample indexes of each part. The parts are consecutive.

    Args:
        lengths: Number of samples of each part.

    Attributes:
        begins: The index of the first sample of each part. The last value is the total number of samples.
    """

    def __init__(self, lengths: Iterable[int]) -> None:
        self.begins = list(accumulate(lengths, initial=0))

    def __len__(self) -> int:
        return self.begins[-1]

    def place(self, number: int) -> tuple[int, int]:
        """Return the part that contains a sample, and the sample's index in this part. Raises IndexError."""
        number = range(self.begins[-1])[number]
        part = bisect_right(self.begins, number) - 1
        return part, number - self.begins[part]

    def rows_by_part(self, numbers: Sequence[int]) -> dict[int, list[tuple[int, int]]]:
        """Group samples by part. For each sample, return its index in the list ``numbers`` and its index in the part."""
        found: dict[int, list[tuple[int, int]]] = {}
        begins, there = self.begins, range(self.begins[-1])
        for position, number in enumerate(numbers):  # a call of place() would be slow for rows of Arrow files
            number = there[number]
            part = bisect_right(begins, number) - 1
            found.setdefault(part, []).append((position, number - begins[part]))
        return found

    def blocks(self) -> list[range]:
        """Return the range of indexes of each part."""
        return [range(begin, end) for begin, end in pairwise(self.begins) if begin < end]


class PartedDataset(ABC):
    """A dataset whose samples are stored in several parts, such as files."""

    @property
    @abstractmethod
    def spans(self) -> Spans:
        """The range of indexes of each part."""

    def __len__(self) -> int:
        return len(self.spans)

    def blocks(self) -> list[range]:
        """Return the range of indexes of each part. The samples of a part are cheap to read together."""
        return self.spans.blocks()


class Joined:
    """Several datasets, concatenated.

    Args:
        datasets: The datasets. The constructor calls ``len`` on each of them.

    Attributes:
        spans: The range of sample indexes of each dataset.
    """

    def __init__(self, datasets: Sequence[Dataset]) -> None:
        self.datasets = datasets
        self.spans = Spans(map(length_of, datasets))

    def __len__(self) -> int:
        return len(self.spans)

    def __getitem__(self, number: int) -> Any:
        which, own = self.spans.place(number)
        return self.datasets[which][own]

    def __getitems__(self, numbers: Sequence[int]) -> list[Any]:
        """Return several samples. If a dataset has the method ``__getitems__``, this method is used."""
        return self._several(numbers, [several_of(dataset, "__getitems__") for dataset in self.datasets])[0]

    def __getviews__(self, numbers: Sequence[int]) -> list[Any]:
        """Return several samples. If a dataset has the method ``__getviews__``, this method is used."""
        return self._several(numbers, [several_of(dataset, "__getviews__") for dataset in self.datasets])[0]

    @property
    def __getfiles__(self) -> Callable[[Sequence[int]], StoredFiles] | None:
        """The method that returns the files of several samples; ``None`` unless all datasets have this method."""
        methods = [several_of(dataset, "__getfiles__") for dataset in self.datasets]
        return (lambda numbers: StoredFiles(*self._several(numbers, methods))) if set(methods) == {"__getfiles__"} else None

    def _several(self, numbers: Sequence[int], methods: Sequence[Several | None]) -> tuple[list[Any], list[int] | None]:
        """Read samples, and their labels if all datasets have labels.

        Args:
            numbers: The indexes of the samples.
            methods: The method for each dataset. ``None``: read the samples of this dataset one by one.
        """
        samples, labels = [None] * len(numbers), [0] * len(numbers)
        all_labelled = True
        for which, mine in self.spans.rows_by_part(numbers).items():
            dataset, own_numbers = self.datasets[which], [own for _, own in mine]
            if (method := methods[which]) is not None:
                found = read_several(dataset, method, own_numbers)
            else:
                found = []
                for own in own_numbers:
                    check_cancelled()
                    found.append(dataset[own])
            own_labels = getattr(found, "labels", None)
            all_labelled &= own_labels is not None
            for place, (row, _) in enumerate(mine):
                samples[row] = found[place]
                labels[row] = own_labels[place] if own_labels is not None else 0
        return samples, labels if all_labelled else None

    @cached_property
    def keys(self) -> Sequence[str] | None:
        """The keys of all samples; ``None`` unless all datasets have keys."""
        known = [keys for dataset in self.datasets if (keys := keys_of(dataset)) is not None]

        def key(number: int) -> str:
            which, own = self.spans.place(number)
            return known[which][own]

        return LazyKeys(key, len(self)) if len(known) == len(self.datasets) else None

    def locate(self, number: int) -> str:
        """Return the location of a sample."""
        which, own = self.spans.place(number)
        return locate(self.datasets[which], own)


class JoinedPaths(Joined):
    """The datasets of several paths, concatenated."""

    datasets: Sequence[Any]  # datasets with the method fingerprint()

    def fingerprint(self) -> str:
        """Return a string that changes when one of the datasets changes."""
        return " ".join(dataset.fingerprint() for dataset in self.datasets)

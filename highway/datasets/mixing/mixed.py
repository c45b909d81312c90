"""Several datasets as one, mixed by weights."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Annotated, Any

import numpy as np

from highway.datasets.dataset import Dataset, described, length_of
from highway.datasets.mixing.interleave import Interleave, Stop, checked_weights
from highway.datasets.opened import opened
from highway.datasets.opening import open
from highway.datasets.parts import Joined
from highway.errors import ConfigError, DatasetError
from highway.parameters.checks import checked, require
from highway.parameters.ranges import Count, Predicate


@checked
@dataclass
class MixedDataset:
    """Mix several datasets by weights: at each position of an epoch stands a sample of one of them.

    A reader reads it as any other dataset: in an order that hangs on the seed alone, by ranks, resumed in the middle. Each dataset has an
    order of its own, a new one for each pass over it, and goes on in the next epoch where it was in the last, so that all its samples come
    equally often. Which dataset stands at a position is computed and not drawn: after any number of positions each has
    had its share, but for a sample or two. Where the reader shuffles, it shuffles within each 64 positions too, so that ranks do not get
    one dataset each; with ``shuffle=False`` all stands as the weights say, and each dataset is read by number.

    Args:
        datasets: What is mixed, or paths: datasets whose samples go together in a batch, other mixes among them.
        weights: How often each is drawn, in proportion, above 0. ``None``: all alike. In steps: by the position of the epoch from which on
            they hold, the first 0, as ``{0: [9, 1], 100_000: [1, 1]}``; or a function that takes a position and returns them, which is
            asked for every 1024th (or so that it is asked some 1,000 times); there some may be 0.
        stop: When an epoch ends. ``"all"``: when all have been read whole, those that have been earlier being left out from there on, so
            each sample comes once. ``"first"``: before one would be drawn that has been read whole. ``"restart"``: when all have been read
            whole, those that have been earlier beginning anew.
        length: Samples of an epoch, in place of an end by ``stop``, which has to be ``"restart"``.

    A sample is what stands at a position, as its dataset returns it: ``mixed[5]`` without a reader, each dataset in its own order.

    Raises:
        ConfigError: weights do not fit the datasets; or an epoch would have no end, or labels have other names in one dataset than in
            another (when it is first read).
        DatasetError: a dataset is empty (when it is first read).

    >>> mixed = MixedDataset([["a", "b", "c", "d"], ["x", "y"]], weights=[2, 1])
    >>> [mixed[position] for position in range(len(mixed))]
    ['a', 'x', 'b', 'c', 'y', 'd']
    """

    datasets: Annotated[list[Dataset], Predicate(bool, "at least one")]
    weights: list[float] | dict[int, list[float]] | Callable[[int], Sequence[float]] | None = None
    stop: Stop = "all"
    length: Count | None = None

    def __post_init__(self) -> None:
        if isinstance(self.weights, dict):
            require(0 in self.weights and min(self.weights) == 0, self, "weights", "positions from 0 on")
            self.weights = {at: checked_weights(some, len(self.datasets), f"from {at:,} on") for at, some in self.weights.items()}
        elif isinstance(self.weights, list):
            self.weights = checked_weights(self.weights, len(self.datasets))
            require(min(self.weights) > 0, self, "weights", "each above 0; leave out a dataset that is not to be drawn")
        require(self.length is None or self.stop == "restart", self, "length", "none, or stop='restart'")

    @opened
    def _datasets(self) -> list[Dataset]:
        return list(map(_opened, self.datasets))

    @opened
    def parts(self) -> Parts:
        """The datasets one after the other, as a reader reads them."""
        return Parts(self)

    def __len__(self) -> int:
        return self.parts.interleave.length

    def __getitem__(self, number: int) -> Any:
        number = range(len(self))[number]  # IndexError where there is none
        (which,), (place,) = self.parts.interleave(np.array([number]))
        dataset = self._datasets[which]
        return dataset[int(place) % len(dataset)]


class Parts(Joined):
    """The samples of the datasets of a mix, one dataset after the other, and how they are mixed.

    Args:
        mixed: The mix.

    Attributes:
        datasets: The datasets; of one that is a mix itself, its parts.
        firsts: The number of the first sample of each, int64 ``(D,)``.
        interleave: Which stands where.
    """

    def __init__(self, mixed: MixedDataset) -> None:
        super().__init__([opened_parts(dataset) for dataset in mixed.datasets])
        self.firsts = np.array(self.spans.begins[:-1])
        for place, (begin, end) in enumerate(pairwise(self.spans.begins)):
            if begin == end:
                raise DatasetError(f"MixedDataset: datasets[{place}], {described(self.datasets[place])}, is empty; leave it out")
        self._expect_the_same_classes()
        self.interleave = Interleave([positions_of(dataset) for dataset in self.datasets], mixed.weights, mixed.stop, mixed.length)

    def _expect_the_same_classes(self) -> None:
        said = {place: list(names) for place, one in enumerate(self.datasets) if (names := getattr(one, "classes", None)) is not None}
        for place, names in said.items():
            if names != (others := said[min(said)]):
                first = min(said)
                raise ConfigError(
                    f"MixedDataset: labels 0, 1, 2, ... are {_some(others)} in datasets[{first}], but {_some(names)} in datasets[{place}]; "
                    "those of a mix need one meaning: renumber them, by a dataset of your own around one of them"
                )
        if said:
            self.classes = next(iter(said.values()))


def opened_parts(dataset: Dataset) -> Dataset:
    """Return what a reader reads by number: the dataset at a path, and of a mix its parts, which the reader interleaves itself."""
    dataset = _opened(dataset)
    return dataset.parts if isinstance(dataset, MixedDataset) else dataset


def _opened(dataset: Dataset) -> Dataset:
    return open(dataset) if isinstance(dataset, str) else dataset


def positions_of(dataset: Dataset) -> int:
    """Return how many positions an epoch of a dataset has, or a pass over it: its samples, or as many as a mix makes of them."""
    return dataset.interleave.length if isinstance(dataset, Parts) else length_of(dataset)


def _some(names: Sequence[str]) -> str:
    return f"{', '.join(map(repr, names[:3]))}{', ...' if len(names) > 3 else ''} ({len(names)})"

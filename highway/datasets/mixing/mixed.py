"""Mix several datasets into one dataset, in which each dataset has a weight."""

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
    """Mix several datasets into one dataset. Weights determine how often each dataset occurs.

    Pass the mix to ``Reader``, like any other dataset. The order of the samples then depends only on the seed. In distributed training, the
    reader divides the samples of the mix between the ranks (processes). A run can resume at any sample.

    An epoch is a sequence of positions. Each position has a sample of one of the datasets. The weights determine the dataset at each
    position. With up to 16 datasets and constant weights, the number of samples from a dataset differs from the dataset's share by at most
    two, and by at most one more for each 4 million positions. If the reader shuffles, the samples of a dataset have a new order in each
    pass over the dataset. The reader also shuffles the positions within groups of 64. In the next epoch, each dataset continues with its
    next sample. All samples of a dataset therefore occur equally often.

    Args:
        datasets: Datasets, other mixes, or paths of datasets. Samples of all datasets must have the same structure, because a batch can
            contain samples of several datasets.
        weights: Relative frequency of each dataset: a list of numbers above 0. ``None``: all weights are equal. To change the weights
            within an epoch, pass a dict such as ``{0: [9, 1], 100_000: [1, 1]}``: from position 100,000 on, the weights are ``[1, 1]``. Or
            pass a function that returns the weights for a position. highway calls the function every 1,024 positions, but at most about
            1,000 times in an epoch. In a dict or function, some weights can be 0.
        stop: When an epoch ends. ``"all"``: when all datasets have been read completely. A dataset that is completed before the others is
            skipped until the end, so each sample occurs once. ``"restart"``: when all datasets have been read completely. A dataset that is
            completed before the others starts again. ``"first"``: before a dataset would repeat.
        length: Number of samples of an epoch. Requires ``stop="restart"``.
        names: A name for each dataset. With names, a run can resume with a different mix: pass ``allow_changed=["Reader.mixture"]`` to
            ``Pipeline.load_state_dict``.

    A sample is a sample of one of the datasets. ``mixed[5]`` is the sample at position 5, in the order without shuffling.

    Raises:
        ConfigError: there are not as many weights or names as datasets, or a weight is not valid.
        ConfigError: an epoch would have no end, or the datasets have different class names (when the mix is first read).
        DatasetError: a dataset is empty (when the mix is first read).

    >>> mixed = MixedDataset([["a", "b", "c", "d"], ["x", "y"]], weights=[2, 1])
    >>> [mixed[position] for position in range(len(mixed))]
    ['a', 'x', 'b', 'c', 'y', 'd']
    """

    datasets: Annotated[list[Dataset], Predicate(bool, "at least one")]
    weights: list[float] | dict[int, list[float]] | Callable[[int], Sequence[float]] | None = None
    stop: Stop = "all"
    length: Count | None = None
    names: list[str] | None = None

    def __post_init__(self) -> None:
        if isinstance(self.weights, dict):
            require(0 in self.weights and min(self.weights) == 0, self, "weights", "positions from 0 on")
            self.weights = {at: checked_weights(some, len(self.datasets), f"from {at:,} on") for at, some in self.weights.items()}
        elif isinstance(self.weights, list):
            self.weights = checked_weights(self.weights, len(self.datasets))
            require(min(self.weights) > 0, self, "weights", "each above 0; remove datasets that should not be read")
        require(self.length is None or self.stop == "restart", self, "length", "none, or stop='restart'")
        if self.names is not None:
            count = len(self.datasets)
            require(len(self.names) == count == len(set(self.names)), self, "names", f"a different name for each of {count} datasets")

    @opened
    def _datasets(self) -> list[Dataset]:
        return list(map(_opened, self.datasets))

    @opened
    def parts(self) -> Parts:
        """The datasets of the mix, and the order in which they alternate. A reader reads these parts."""
        return Parts(self)

    def __len__(self) -> int:
        return self.parts.interleave.length

    def __getitem__(self, number: int) -> Any:
        number = range(len(self))[number]  # raises IndexError if there is no such position
        (which,), (place,) = self.parts.interleave(np.array([number]))
        dataset = self._datasets[which]
        return dataset[int(place) % len(dataset)]


class Parts(Joined):
    """The datasets of a mix, concatenated, and the order in which they alternate.

    Args:
        mixed: The mix.

    Attributes:
        datasets: The datasets. A dataset that is a mix is replaced by its parts.
        firsts: The index of the first sample of each dataset, int64 ``(D,)``.
        interleave: A function that computes the dataset and the sample at each position.
        mixed: The mix.

    Raises:
        ConfigError: the datasets have different class names, or an epoch would have no end.
        DatasetError: a dataset is empty.
    """

    def __init__(self, mixed: MixedDataset) -> None:
        self.mixed = mixed
        super().__init__([opened_parts(dataset) for dataset in mixed.datasets])
        self.firsts = np.array(self.spans.begins[:-1])
        for place, (begin, end) in enumerate(pairwise(self.spans.begins)):
            if begin == end:
                raise DatasetError(f"MixedDataset: datasets[{place}], {described(self.datasets[place])}, is empty; remove it")
        self._expect_the_same_classes()
        self.interleave = Interleave([positions_of(dataset) for dataset in self.datasets], mixed.weights, mixed.stop, mixed.length)

    def _expect_the_same_classes(self) -> None:
        said = {place: list(names) for place, one in enumerate(self.datasets) if (names := getattr(one, "classes", None)) is not None}
        for place, names in said.items():
            if names != (others := said[min(said)]):
                first = min(said)
                raise ConfigError(
                    f"MixedDataset: datasets[{first}] has {_some(others)}, but datasets[{place}] has {_some(names)}. A label must mean "
                    f"the same class in all datasets of a mix: wrap one of these datasets in your own dataset that renumbers the labels"
                )
        if said:
            self.classes = next(iter(said.values()))


def opened_parts(dataset: Dataset) -> Dataset:
    """If ``dataset`` is a path, open the dataset. If it is a mix, return its parts, because the reader computes the order of a mix."""
    dataset = _opened(dataset)
    return dataset.parts if isinstance(dataset, MixedDataset) else dataset


def _opened(dataset: Dataset) -> Dataset:
    return open(dataset) if isinstance(dataset, str) else dataset


def positions_of(dataset: Dataset) -> int:
    """Return the number of positions in an epoch: the length of a dataset, or of a mix."""
    return dataset.interleave.length if isinstance(dataset, Parts) else length_of(dataset)


def _some(names: Sequence[str]) -> str:
    return f"{len(names)} classes ({', '.join(map(repr, names[:3]))}{', ...' if len(names) > 3 else ''})"

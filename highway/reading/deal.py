"""Assigns the samples of each global batch to ranks, so that each rank has about the same work."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heapreplace
from typing import Any, Literal, Protocol, runtime_checkable

import numpy as np

from highway.datasets.dataset import Dataset
from highway.errors import ConfigError
from highway.parameters.checks import checked
from highway.reading.costs import costs_of
from highway.reading.sampler import Sampler

_LARGEST = 2**32 - 1  # costs are scaled to whole numbers up to this number


@runtime_checkable
class ArrayLike(Protocol):
    """An array, or an object that NumPy converts to an array."""

    def __array__(self) -> np.ndarray: ...


@checked
@dataclass(eq=False)
class Deal:
    """Assign the samples of each global batch to ranks so that all ranks have about the same total cost.

    In each training step, all ranks wait for the rank with the most work. A global batch consists of the batches of all ranks in one step.
    A deal keeps the samples of each global batch, and changes only which rank reads each sample. The assignment depends only on the order
    of the epoch and on the costs, so all ranks and all resumed runs compute the same assignment. The costs of all samples are read once,
    before the first batch.

    Args:
        cost: The cost of each sample, at least 0. The unit of the costs does not matter.

            - ``"pixels"``: the number of pixels in each image, from its header;
            - ``"tokens"``: the length of the field ``input_ids`` or ``tokens``, or of the sample's only sequence if it has no such field;
            - a list or array with one number per sample, or a function that receives the dataset and returns such a list or array. All
              ranks must get the same numbers. If the work of a sequence grows faster than its length, pass ``lambda dataset:
              dataset.costs("tokens") ** 2``.

            ``MegatronIndexed`` has the lengths in its index, and ``COCO`` has the image sizes in its annotations. In other datasets,
            highway reads each sample once. With ``index=True``, ``Tar`` and ``TFRecord`` store the costs beside their index.
        equal_counts: Whether all ranks get the same number of samples of each global batch. With ``False``, the costs are more even, but
            the ranks have different numbers of samples. Then weight the loss of each rank by its number of samples.

    An image with a damaged header gets the mean cost. When the reader decodes such an image, it raises the error or skips the image.

    Raises:
        ConfigError: the costs are not one finite number of at least 0 for each sample (before the first batch).

    >>> from highway import Pipeline
    >>> from highway.modules import Deal, Reader
    >>> samples, costs = ["a", "b", "c", "d"], [1, 1, 1, 3]
    >>> for rank in (0, 1):
    ...     reader = Reader(samples, 2, epochs=1, shuffle=False, rank=rank, world_size=2, deal=Deal(costs, equal_counts=False))
    ...     with Pipeline([reader]) as pipeline:
    ...         print(pipeline.dequeue())
    ['d']
    ['a' 'b' 'c']
    """

    cost: Literal["pixels", "tokens"] | list[float] | ArrayLike | Callable[[Any], Sequence[float]]
    equal_counts: bool = True


class Dealer:
    """Deals the samples of one dataset to the ranks.

    Args:
        deal: The costs, and whether all ranks get the same number of samples.
        dataset: The dataset.

    Raises:
        ConfigError: the costs are not one finite number of at least 0 for each sample.
    """

    def __init__(self, deal: Deal, dataset: Dataset) -> None:
        costs = costs_of(dataset, deal.cost)
        largest = costs.max()
        # whole numbers, because sums of floats can differ between machines
        self._costs = np.rint(costs * (_LARGEST / largest)).astype(np.uint32) if largest else np.zeros(len(costs), np.uint32)
        self._equal_counts = deal.equal_counts

    def positions(self, sampler: Sampler, order: Callable[[np.ndarray], np.ndarray], begin: int, stop: int) -> np.ndarray:
        """Return this rank's positions in a global batch, ascending.

        Args:
            sampler: The sampler of this rank.
            order: The order of the epoch.
            begin: Number of samples that this rank reads before the batch if there is no deal.
            stop: Number of samples that this rank has read after the batch if there is no deal.
        """
        ranks = sampler.world_size
        positions = sampler.rest.at(np.arange(begin * ranks, stop * ranks))
        room = stop - begin if self._equal_counts else len(positions)
        mine: np.ndarray = positions[assigned(self._costs[order(positions)], ranks, room) == sampler.rank]
        return mine


def assigned(costs: np.ndarray, ranks: int, room: int) -> np.ndarray:
    """Return the rank of each sample, int64 ``(N,)``.

    The samples are assigned in descending order of their costs. Each sample goes to the rank with the smallest sum of costs so far. This
    is Graham's rule of the longest processing time (*Bounds on multiprocessing timing anomalies*, 1969), with a maximum number of samples
    per rank. If there are at least as many samples as ranks, each rank gets at least one sample.

    Args:
        costs: Whole numbers, at least 0.
        ranks: Number of ranks.
        room: Maximum number of samples of a rank.
    """
    found = np.empty(len(costs), np.int64)
    loads = [(0, 0, rank) for rank in range(ranks)]  # sum of the costs, number of samples, rank
    heapify(loads)
    order = np.argsort(-costs.astype(np.int64), kind="stable")
    for sample, cost in zip(order.tolist(), costs[order].tolist(), strict=True):
        load, count, rank = loads[0]
        found[sample] = rank
        if count + 1 < room:
            heapreplace(loads, (load + cost, count + 1, rank))
        else:
            heappop(loads)
    return found


def expect_fits(deal: Deal | None, batch_size: int | None, shuffle: object) -> None:
    """Raise ConfigError if a reader with these parameters cannot deal the samples of its global batches."""
    if deal is None:
        return
    if batch_size is None:
        raise ConfigError("deal= assigns the samples of each global batch to ranks, and batch_size=None makes no batches; set batch_size")
    if shuffle == "blocks":
        raise ConfigError(
            "deal= with shuffle='blocks': each rank reads separate blocks, but with deal= it would read the blocks of all ranks; use "
            "shuffle=True, or remove deal"
        )

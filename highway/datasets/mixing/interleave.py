"""Compute which dataset and sample is at each position of a mix. The result is deterministic.

A mix is a sequence of positions. Each position has a sample of one of the datasets.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Literal, NamedTuple

import numpy as np

from highway.errors import ConfigError

Stop = Literal["first", "all", "restart"]
WeightsAt = Callable[[int], Sequence[float]]
Weights = list[float] | dict[int, list[float]] | WeightsAt

_BITS = 24  # number of fractional bits of a share; a position below 2**39 times a share of 24 bits fits into 64 bits
_ONE = 1 << _BITS
_LONGEST = 1 << 38
_ASKED = 1024  # minimum positions between two calls of a weight function, and approximate maximum of calls in an epoch
_MOST_STEPS = 1 << 16


class _Step(NamedTuple):
    """Consecutive positions with the same weights.

    Args:
        begin: The first position.
        shares: The share of each branch's right half; see :class:`Interleave`.
        parts: The remainder of the rounding in each branch, at the first position.
        drawn: Number of samples of each dataset before the first position.
    """

    begin: int
    shares: np.ndarray
    parts: np.ndarray
    drawn: np.ndarray

    def after(self, count: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the values of ``drawn`` and ``parts`` after ``count`` positions."""
        taken, parts = np.array([count]), np.empty_like(self.parts)
        first = 1
        while first < len(self.parts):
            here = slice(first, 2 * first)
            exact = taken * self.shares[here] + self.parts[here]
            parts[here] = exact & _ONE - 1
            right = exact >> _BITS
            taken = np.stack([taken - right, right], axis=1).ravel()
            first *= 2
        return self.drawn + taken[: len(self.drawn)], parts


class Interleave:
    """Computes the dataset and the sample at each position of an epoch.

    The datasets are the leaves of a binary tree. Each branch divides its positions between its left half and its right half, in proportion
    to the weights. To find the dataset at a position, the tree is followed from the root to a leaf. Shares are multiples of ``2**-24``.
    With constant weights, the number of samples from a dataset in n positions therefore differs from the dataset's share by at most
    ``1/2 + n / 2**24`` samples for each level of the tree.

    Args:
        sizes: Number of samples of each dataset, at least 1.
        weights: Relative frequency of each dataset, as a list. Or a dict from positions to lists, in which a list is valid from its
            position on. Or a function that returns the list for a position. ``None``: all weights are equal.
        stop: When the epoch ends. ``"first"``: before a dataset would repeat. ``"all"`` and ``"restart"``: when all datasets have been read
            completely. A dataset that is read completely before the others is skipped (``"all"``) or starts again (``"restart"``).
        length: Number of positions of the epoch. If ``length`` is given, ``stop`` does not determine when the epoch ends.
        begin: The first position of this mix. It is above 0 if a run has resumed with a different mix within the epoch.
        given: Number of samples of each dataset before the position ``begin`` of the epoch.

    Attributes:
        length: Number of positions of the epoch.
        drawn: Number of samples of each dataset in the epoch, int64 ``(D,)``.
        given: Number of samples of each dataset before the position ``begin``, int64 ``(D,)``.
        weights: The weights as a list, or as a dict from positions to lists. If the argument is a function, the dict contains the lists
            that the function returned.

    Raises:
        ConfigError: the epoch would have no end.
        ConfigError: the number of weights differs from the number of datasets, or a weight is not valid.
    """

    def __init__(
        self,
        sizes: Sequence[int],
        weights: Weights | None,
        stop: Stop,
        length: int | None = None,
        begin: int = 0,
        given: Sequence[int] | None = None,
    ) -> None:
        self._sizes, self._stop, self._given = np.array(sizes), stop, length
        self._leaves = 1 << (len(sizes) - 1).bit_length()
        weights = [1.0] * len(sizes) if weights is None else weights
        self.begin, self.given = begin, np.array([0] * len(sizes) if given is None else given, np.int64)
        self.weights: list[float] | dict[int, list[float]] = {} if callable(weights) else weights  # the steps fill the dict
        steps = list(self._steps(weights))
        self._begins = np.array([step.begin for step in steps])
        self._shares, self._parts, self._drawn = (np.stack([step[field] for step in steps]) for field in (1, 2, 3))

    def __call__(self, positions: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return two int64 arrays: the dataset at each position, and how many samples this dataset has before the position."""
        step = np.searchsorted(self._begins, positions, side="right") - 1
        count, node = positions - self._begins[step], np.ones_like(positions)
        for _ in range(self._leaves.bit_length() - 1):
            share = self._shares[step, node]
            exact = count * share + self._parts[step, node]
            right = exact >> _BITS
            goes_right = (exact + share >> _BITS) - right
            count = np.where(goes_right, right, count - right)
            node = 2 * node + goes_right
        which = node - self._leaves
        return which, self._drawn[step, which] + count

    def drawn_before(self, position: int) -> np.ndarray:
        """Return how many samples each dataset has in the epoch before a position, int64 ``(D,)``."""
        step = int(np.searchsorted(self._begins, position, side="right")) - 1
        begin = int(self._begins[step])
        return _Step(begin, self._shares[step], self._parts[step], self._drawn[step]).after(position - begin)[0]

    def _steps(self, weights: Weights) -> Iterator[_Step]:
        """Yield the steps of the epoch, and set ``length`` and ``drawn``."""
        position, drawn = self.begin, self.given
        parts = np.full(self._leaves, _ONE // 2 - 1)  # almost a half: counts are rounded, and equal shares begin with the first dataset
        ended = drawn >= self._sizes if self._given is None and self._stop == "all" else np.zeros(len(self._sizes), np.bool_)
        for number, (stop, given) in enumerate(self._given_weights(weights)):
            while position < stop:
                if number >= _MOST_STEPS:
                    raise ConfigError(
                        f"MixedDataset: the weights change more than {_MOST_STEPS:,} times in an epoch; pass length=, or "
                        f"weights that change less often"
                    )
                left = np.where(ended, 0.0, given)
                if not left.any():
                    raise ConfigError(
                        f"MixedDataset: from position {position:,} on, weights={given} are 0 for all datasets that still have unread "
                        f"samples; give one of these datasets a weight above 0, or pass stop='restart'"
                    )
                step = _Step(position, self._shares_of(left), parts, drawn)
                yield step
                count = self._until(step, stop - position, ended)
                drawn, parts = step.after(count)
                position += count
                if self._is_over(drawn, ended, position):
                    is_one_more = self._given is None and self._stop == "first"
                    self.length = position - is_one_more
                    self.drawn = step.after(count - is_one_more)[0]
                    return
                if self._given is None and self._stop == "all":
                    ended = drawn >= self._sizes
        missing = np.flatnonzero(drawn < self._sizes).tolist()
        raise ConfigError(
            f"MixedDataset: an epoch would not end, because the weight of datasets{missing} is too small to read all samples; pass a "
            f"greater weight, length= or stop='first'"
        )

    def _given_weights(self, weights: Weights) -> Iterator[tuple[int, list[float]]]:
        """Yield pairs: the position up to which a list of weights is valid, and this list."""
        last = _LONGEST if self._given is None else self._given
        if callable(weights):
            every = max(_ASKED, (self._given or int(self._sizes.sum())) // _ASKED)
            asked: dict[int, list[float]] = {}
            self.weights = asked
            for begin in range(0, last, every):
                given = checked_weights(weights(begin), len(self._sizes), f"at position {begin:,}")
                asked[begin] = given
                yield min(begin + every, last), given
        elif isinstance(weights, Mapping):
            begins = sorted(begin for begin in weights if begin < last)
            for begin, stop in zip(begins, [*begins[1:], last], strict=True):
                yield stop, weights[begin]
        else:
            yield last, weights

    def _shares_of(self, weights: np.ndarray) -> np.ndarray:
        """Return the share of the right half of each branch, in units of ``2**-24``."""
        tree = np.zeros(2 * self._leaves)
        tree[self._leaves : self._leaves + len(weights)] = weights / weights.max()
        shares = np.zeros(self._leaves, np.int64)
        for branch in range(self._leaves - 1, 0, -1):
            left, right = tree[2 * branch : 2 * branch + 2]
            tree[branch] = left + right
            if right > 0:
                shares[branch] = min(max(round(right / (left + right) * _ONE), 1), _ONE - 1) if left > 0 else _ONE
        return shares

    def _until(self, step: _Step, count: int, ended: np.ndarray) -> int:
        """Return how many of the next ``count`` positions belong to a step. A step ends when a dataset is completed, or the epoch ends."""
        if self._given is not None or not self._turns(step.after(count)[0], ended):
            return count
        low, high = 0, count  # _turns() is false after ``low`` positions, and true after ``high``
        while high - low > 1:
            middle = (low + high) // 2
            if self._turns(step.after(middle)[0], ended):
                high = middle
            else:
                low = middle
        return high

    def _turns(self, drawn: np.ndarray, ended: np.ndarray) -> bool:
        if self._stop == "first":
            return bool((drawn > self._sizes).any())
        return bool((drawn >= self._sizes).all() if self._stop == "restart" else ((drawn >= self._sizes) & ~ended).any())

    def _is_over(self, drawn: np.ndarray, ended: np.ndarray, position: int) -> bool:
        if self._given is not None:
            return position >= self._given
        return bool((drawn >= self._sizes).all()) if self._stop == "all" else self._turns(drawn, ended)


def checked_weights(weights: Sequence[float], count: int, where: str = "") -> list[float]:
    """Return weights as a list of floats.

    Raises:
        ConfigError: the number of weights differs from the number of datasets.
        ConfigError: a weight is negative or not a number, or all weights are 0.
    """
    found = [float(weight) for weight in weights]
    if len(found) != count or not all(0 <= weight < float("inf") for weight in found) or not any(found):
        place = f" {where}" if where else ""
        expected = f"a number for each of {count} datasets, none below 0, not all 0"
        raise ConfigError(f"MixedDataset: weights{place} are {found}; expected {expected}")
    return found

"""The order of the samples in an epoch, and the positions of each rank, as pure functions.

The order of an epoch depends only on the seed and the epoch, not on the number of ranks. A *position* is a place in this order, from 0. The
ranks divide the positions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Literal, NamedTuple

import numpy as np
from numpy.random import Generator, Philox

from highway.datasets.dataset import Dataset, blocks_of, length_of
from highway.datasets.mixing.interleave import Interleave
from highway.datasets.mixing.mixed import Parts
from highway.errors import ConfigError
from highway.reading.rest import WHOLE, Rest

Shuffle = bool | Literal["blocks"]
OnUneven = Literal["pad", "drop", "raise"]

_DRAWN = 1 << 16  # up to this length, permutations are drawn uniformly; longer ones are computed
_ROUNDS = 8  # of the Feistel network in a permutation
_BLOCKS_AT_ONCE = 16  # average number of blocks in a window, if the user gives no size
_ORDER, _BLOCKS, _WINDOWS = 1 << 128, 2 << 128, 3 << 128  # counters in an epoch's sequence; smaller counters belong to the samples
_PLACES = 5 << 128  # counter in an epoch's sequence for places in windows and for seeds of parts: the largest counter
_WINDOW = 64  # a mixture shuffles its positions within windows of this size; otherwise, a rank could get only some of the parts
_LATEST = np.uint64(2**64 - 1)


def epoch_key(seed: int, epoch: int) -> int:
    """Return the key of an epoch's random numbers. Samples use the counters from ``position << 64``; orders use larger counters."""
    return seed << 64 | epoch


class Permutation:
    """A permutation of the numbers below ``n``, in constant memory.

    A permutation of up to 65,536 numbers is drawn and stored. A longer permutation is a Feistel network over the next power of two,
    restricted to the values below ``n`` (cycle walking; Black and Rogaway, *Ciphers with arbitrary finite domains*, 2002).

    Args:
        n: Length of the permutation, at least 1.
        key: Key of the random numbers, below 2**128.
        counter: Counter at which the random numbers begin.
    """

    def __init__(self, n: int, key: int, counter: int) -> None:
        self._n = n
        self._drawn = Generator(Philox(key=key, counter=counter)).permutation(n) if n <= _DRAWN else None
        bits = (n - 1).bit_length()
        self._low = np.uint64(bits // 2)
        self._masks = [np.uint64((1 << width) - 1) for width in (bits // 2, bits - bits // 2)]
        self._keys = Philox(key=key, counter=counter).random_raw(_ROUNDS)

    def __call__(self, positions: np.ndarray) -> np.ndarray:
        """Return the permuted numbers at int64 positions, as int64 of the same shape."""
        if self._drawn is not None:
            drawn: np.ndarray = self._drawn[positions]
            return drawn
        numbers = self._mixed(positions.astype(np.uint64))
        while (outside := numbers >= self._n).any():
            numbers[outside] = self._mixed(numbers[outside])
        return numbers.astype(np.int64)

    def _mixed(self, numbers: np.ndarray) -> np.ndarray:
        halves = [numbers & self._masks[0], numbers >> self._low]
        for number, key in enumerate(self._keys):
            side = number & 1
            halves[side] ^= hashed(halves[1 - side] + key) & self._masks[side]
        low, high = halves
        return low | high << self._low


def hashed(numbers: np.ndarray) -> np.ndarray:
    """Apply the finaliser of MurmurHash3 (Stafford's variant 13) to each value."""
    numbers = (numbers ^ numbers >> np.uint64(30)) * np.uint64(0xBF58476D1CE4E5B9)
    numbers = (numbers ^ numbers >> np.uint64(27)) * np.uint64(0x94D049BB133111EB)
    hashed: np.ndarray = numbers ^ numbers >> np.uint64(31)
    return hashed


class Blocks:
    """An order that keeps neighbours near each other: it shuffles blocks, and then samples within windows.

    Args:
        blocks: Consecutive ranges of indexes, as a dataset's ``blocks()`` returns them.
        share: Number of positions of each rank. No window spans two ranks.
        window: Samples in a window.
        key: Key of the random numbers.
    """

    def __init__(self, blocks: Sequence[range], share: int, window: int, key: int) -> None:
        order = Permutation(len(blocks), key, _BLOCKS)(np.arange(len(blocks)))
        self._starts = np.array([block.start for block in blocks])[order]
        self._ends = np.cumsum(np.array([len(block) for block in blocks])[order])
        self._share, self._window, self._key = share, window, key

    def __call__(self, positions: np.ndarray) -> np.ndarray:
        rank, within = np.divmod(positions, self._share)
        window, place = np.divmod(within, self._window)
        number = rank * -(-self._share // self._window) + window
        for one in np.unique(number):
            mine = number == one
            size = min(self._window, self._share - int(window[mine][0]) * self._window)
            place[mine] = Permutation(size, self._key, _WINDOWS + (int(one) << 64))(place[mine])
        shuffled = (rank * self._share + window * self._window + place) % self._ends[-1]
        block = np.searchsorted(self._ends, shuffled, side="right")
        before = np.where(block > 0, self._ends[block - 1], 0)
        numbers: np.ndarray = self._starts[block] + shuffled - before
        return numbers


@dataclass(frozen=True)
class Sampler:
    """The positions of one rank, and the dataset's index at each position of an epoch.

    Args:
        total: Samples of the dataset, at least 1.
        seed: Seed of the orders.
        shuffle: ``True`` shuffles all samples. ``"blocks"`` shuffles blocks, and then samples within windows, which are parts of the
            resulting order. ``False`` does not shuffle.
        blocks: The blocks of the dataset, for ``"blocks"``.
        window: Number of samples in a window. ``None``: the number of samples in 16 average blocks.
        rank: This rank.
        world_size: Number of ranks.
        on_uneven: If the samples cannot be divided evenly: ``"pad"`` repeats samples from the start of the epoch, ``"drop"`` skips the last
            samples, ``"raise"`` raises an error.
        rest: The positions of the epoch that are left after a resume. With ``"blocks"``, always the whole epoch.
        mixture: For a mixed dataset, the parts and their interleaving. ``total`` is then the number of positions of the mixture.

    Raises:
        ConfigError: the samples cannot be divided evenly, with ``on_uneven="raise"``.
    """

    total: int
    seed: int = 0
    shuffle: Shuffle = True
    blocks: Sequence[range] = ()
    window: int | None = None
    rank: int = 0
    world_size: int = 1
    on_uneven: OnUneven = "pad"
    rest: Rest = WHOLE
    mixture: Mixture | None = None

    def __post_init__(self) -> None:
        if self.on_uneven == "raise" and (left := self.rest.count(self.total) % self.world_size):
            raise ConfigError(
                f"{self.rest.count(self.total)} samples for {self.world_size} ranks leave a rest of {left}; use on_uneven='pad' to read "
                "some samples twice, or on_uneven='drop' to drop the rest"
            )

    @cached_property
    def share(self) -> int:
        """Number of samples of each rank in an epoch."""
        total = self.rest.count(self.total)
        return total // self.world_size if self.on_uneven == "drop" else -(-total // self.world_size)

    def positions(self, first: int, stop: int) -> np.ndarray:
        """Return the epoch positions of this rank's samples ``first`` to ``stop`` (exclusive), as int64."""
        return self.position(np.arange(first, stop))

    def position(self, mine: np.ndarray) -> np.ndarray:
        """Return the epoch positions of some of this rank's samples. ``mine``: the indexes of these samples within the rank, int64."""
        return self.rank * self.share + mine if self.in_stretches else self.rest.at(mine * self.world_size + self.rank)

    @property
    def read(self) -> int:
        """Number of positions of the epoch that were read before the resume."""
        return self.total - self.rest.count(self.total)

    @property
    def in_stretches(self) -> bool:
        """Whether each rank has consecutive positions."""
        return self.shuffle == "blocks" and self.mixture is None

    @property
    def samples_of_window(self) -> int:
        """Number of samples in a window, with ``"blocks"``."""
        return self.window or max(1, _BLOCKS_AT_ONCE * self.total // len(self.blocks))

    def of_epoch(self, epoch: int, rest: Rest = WHOLE) -> Sampler:
        """Return the sampler for the rest of an epoch. Epochs have different lengths if a mixture begins within an epoch."""
        return replace(self, total=self.total if self.mixture is None else self.mixture.total(epoch), rest=rest)

    def order(self, epoch: int) -> Order | MixedOrder:
        """Return a function from the positions of an epoch to the dataset's indexes."""
        if self.mixture is not None:
            return self.mixture.order(self, epoch)
        key = epoch_key(self.seed, epoch)
        if self.shuffle == "blocks":
            return Order(self.total, Blocks(self.blocks, self.share, self.samples_of_window, key))
        return Order(self.total, Permutation(self.total, key, _ORDER) if self.shuffle else None)


class Order:
    """The dataset's indexes in an epoch, by position. Positions after the last one wrap around."""

    def __init__(self, total: int, permuted: Permutation | Blocks | None) -> None:
        self._total, self._permuted = total, permuted

    def __call__(self, positions: np.ndarray) -> np.ndarray:
        """Return the indexes at int64 positions, as int64."""
        if isinstance(self._permuted, Blocks):
            return self._permuted(positions)
        wrapped = positions % self._total
        return wrapped if self._permuted is None else self._permuted(wrapped)


class Start(NamedTuple):
    """The position at which a mixture begins, if it replaces an earlier mixture.

    Args:
        epoch: The epoch in which the mixture begins.
        interleave: Maps each position of the rest of that epoch to a part.
        first: The first position of the epoch that no earlier mixture has used.
        left: For each part, the samples that the part had not given before the mixture began.
        seeds: For each part, the index of its seed. A part keeps its seed when its place in the mixture changes.
    """

    epoch: int
    interleave: Interleave
    first: int
    left: tuple[Rest, ...]
    seeds: tuple[int, ...]


def sampler_of(dataset: Dataset, seed: int, shuffle: Shuffle, window: int | None, start: Start | None = None) -> Sampler:
    """Return a sampler for one rank that reads the whole dataset.

    Raises:
        ConfigError: ``shuffle`` is ``"blocks"``, but the dataset or one of its parts has no blocks.
    """
    if not isinstance(dataset, Parts):
        return Sampler(length_of(dataset), seed, shuffle, blocks_of(dataset) if shuffle == "blocks" else (), window)
    numbers = range(len(dataset.datasets)) if start is None else start.seeds
    seeds = Philox(key=epoch_key(seed, 0), counter=_PLACES).random_raw(max(numbers) + 2).tolist()[1:]
    parts = tuple(sampler_of(part, seeds[own] >> 1, shuffle, window) for part, own in zip(dataset.datasets, numbers, strict=True))
    return Sampler(dataset.interleave.length, seed, shuffle, mixture=Mixture(dataset.interleave, dataset.firsts, parts, start))


class Mixture(NamedTuple):
    """The parts of a mixed dataset, and their interleaving, which assigns each position to a part.

    Args:
        interleave: Maps each position of an epoch to a part.
        firsts: The index of each part's first sample, int64 ``(D,)``.
        parts: The samplers of the parts. An epoch of a part is one pass over the part.
        start: Where the mixture begins, if it replaces another mixture.
    """

    interleave: Interleave
    firsts: np.ndarray
    parts: tuple[Sampler, ...]
    start: Start | None = None

    def order(self, sampler: Sampler, epoch: int) -> MixedOrder:
        """Return a function from the positions of an epoch to the dataset's indexes."""
        return MixedOrder(self, sampler, epoch)

    def interleave_of(self, epoch: int) -> Interleave:
        """Return the interleaving of an epoch, or of its rest if the mixture begins within it."""
        return self.start.interleave if self.start is not None and self.start.epoch == epoch else self.interleave

    def first(self, epoch: int) -> int:
        """Return the first position of an epoch."""
        return self.start.first if self.start is not None and self.start.epoch == epoch else 0

    def total(self, epoch: int) -> int:
        """Return the position after the last position of an epoch."""
        interleave = self.interleave_of(epoch)
        return self.first(epoch) + interleave.length - interleave.begin

    def drawn_before(self, epoch: int) -> np.ndarray:
        """Return, for each part, an offset for the counts of an epoch's interleaving.

        Count plus offset is the number of samples that the part has given since the mixture began.
        """
        start, whole = self.start, self.interleave.drawn
        before: np.ndarray
        if start is None:
            before = epoch * whole
        elif epoch == start.epoch:
            before = -start.interleave.given
        else:
            before = start.interleave.drawn - start.interleave.given + (epoch - start.epoch - 1) * whole
        return before


class MixedOrder:
    """The indexes of a mixed dataset in an epoch, by position. Positions after the last one wrap around.

    Each part continues at the position at which it ended in the previous epoch.
    """

    def __init__(self, mixture: Mixture, sampler: Sampler, epoch: int) -> None:
        self._mixture, self._interleave, self._first = mixture, mixture.interleave_of(epoch), mixture.first(epoch)
        self._total, self._drawn_before = mixture.total(epoch) - self._first, mixture.drawn_before(epoch)
        key = Philox(key=epoch_key(sampler.seed, epoch), counter=_PLACES).random_raw()
        self._key = np.uint64(key) if sampler.shuffle else None

        @lru_cache(maxsize=256)
        def order_of(part: int, number: int) -> Order | MixedOrder:
            return mixture.parts[part].order(number)

        self._order_of = order_of

    def __call__(self, positions: np.ndarray) -> np.ndarray:
        """Return the indexes at int64 positions, as int64."""
        mixture = self._mixture
        which, taken = self.taken(positions)
        numbers = np.empty_like(positions)
        for part in np.unique(which).tolist():
            mine = np.flatnonzero(which == part)
            places = taken[mine] if mixture.start is None else mixture.start.left[part].at(taken[mine])
            passes, within = np.divmod(places, mixture.parts[part].total)
            for number in np.unique(passes).tolist():
                some = np.flatnonzero(passes == number)
                numbers[mine[some]] = self._order_of(part, number)(within[some]) + mixture.firsts[part]
        return numbers

    def taken(self, positions: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the part at each position, and how many samples this part gives between the start of the mixture and the position."""
        places = (positions - self._first) % self._total
        which, taken = self._interleave((places if self._key is None else self._shuffled(places, self._key)) + self._interleave.begin)
        return which, taken + self._drawn_before[which]

    def split(self, position: int) -> tuple[int, np.ndarray]:
        """Return the first window boundary at or after ``position``, and how many samples each part gives before this boundary.

        Positions are shuffled only within windows. The counts begin at the start of the mixture.
        """
        window = 1 if self._key is None else _WINDOW
        place = min(-(-(position - self._first) // window) * window, self._total)
        return place + self._first, self._interleave.drawn_before(place + self._interleave.begin) + self._drawn_before

    def _shuffled(self, places: np.ndarray, key: np.uint64) -> np.ndarray:
        """Shuffle positions within each window."""
        window, within = np.divmod(places, _WINDOW)
        windows, which = np.unique(window, return_inverse=True)
        all_places = windows[:, None] * _WINDOW + np.arange(_WINDOW)
        drawn = np.where(all_places < self._total, hashed(all_places.astype(np.uint64) + key), _LATEST)
        ranks = drawn.argsort(axis=1, kind="stable").argsort(axis=1)
        shuffled: np.ndarray = window * _WINDOW + ranks[which, within]
        return shuffled

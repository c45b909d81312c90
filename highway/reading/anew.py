"""Compute, from the states of the ranks, which samples of an epoch no rank has returned to its loop yet.

A *position* is a place in the order of an epoch. All ranks share this order.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from highway.datasets.dataset import Dataset
from highway.engine.resume import ItemsOfRank, ReadByRank
from highway.errors import PipelineError
from highway.reading.deal import Dealer
from highway.reading.options import ReaderOptions
from highway.reading.remix import Mixing
from highway.reading.rest import WHOLE, Rest
from highway.reading.sampler import Sampler


@dataclass(frozen=True)
class Division:
    """How a run divides the rest of an epoch among its ranks.

    Args:
        sampler: The sampler of rank 0.
        epoch: The epoch.
        batch_size: Samples per batch; ``None`` if the reader yielded single samples.
        drop_last: Whether each rank drops its last batch if that batch is smaller than ``batch_size``.
        dealer: Assigns the samples of each global batch to ranks; ``None`` without ``deal=``.
    """

    sampler: Sampler
    epoch: int
    batch_size: int | None
    drop_last: bool
    dealer: Dealer | None

    @property
    def size(self) -> int:
        """Samples per item."""
        return self.batch_size or 1

    @property
    def stop(self) -> int:
        """Number of samples that each rank yields in the epoch."""
        share = self.sampler.share
        return share // self.size * self.size if self.drop_last else share

    def end(self, rank: int, index: int) -> int:
        """Return how many samples a rank has read after it has yielded item ``index``. Raises PipelineError if it has no such item."""
        sampler = self.sampler
        if self.batch_size is None and sampler.in_stretches:
            return index - rank * sampler.share + 1
        place = index - sampler.read - rank if self.batch_size is not None else int(sampler.rest.places(np.array([index]))[0]) - rank
        number, other = divmod(place, sampler.world_size)
        if other or not 0 <= number * self.size < self.stop:
            raise PipelineError(
                f"cannot continue from item {index} of epoch {self.epoch}, which rank {rank} of {sampler.world_size} did not read; load "
                "the states of one checkpoint"
            )
        return min((number + 1) * self.size, self.stop)

    def items(self, rank: int) -> ItemsOfRank:
        """Return the items of a rank."""
        sampler = self.sampler

        def indexes(numbers: np.ndarray) -> np.ndarray:
            if self.batch_size is None and sampler.in_stretches:
                return numbers + rank * sampler.share
            places = numbers * sampler.world_size + rank
            return sampler.rest.at(places) if self.batch_size is None else places + sampler.read

        return ItemsOfRank(-(-self.stop // self.size), indexes)

    def positions(self, rank: int, first: int, stop: int) -> np.ndarray:
        """Return the positions of a rank's samples ``first`` to ``stop`` (exclusive). With a dealer, pass only whole batches."""
        sampler = replace(self.sampler, rank=rank)
        if self.dealer is None:
            return sampler.positions(first, stop)
        order, dealt = sampler.order(self.epoch), [np.empty(0, np.int64)]
        for begin in range(first, stop, self.size):
            dealt.append(self.dealer.positions(sampler, order, begin, min(begin + self.size, stop)))
        return np.concatenate(dealt)

    def positions_of(self, rank: int, items: np.ndarray) -> np.ndarray:
        """Return the positions of the samples in a rank's items.

        ``items`` is int64. Without batches, it has the shape ``(N, 1)``: the index of each item. With batches, it has the shape ``(N, 2)``:
        for each sample, the index of its batch, and its row.
        """
        if self.batch_size is None:
            return items[:, 0]
        found = [np.empty(0, np.int64)]
        for index in np.unique(items[:, 0]).tolist():
            end = self.end(rank, index)
            positions = self.positions(rank, (end - 1) // self.size * self.size, end)
            found.append(positions if items.shape[1] == 1 else positions[items[items[:, 0] == index, 1]])
        return np.concatenate(found)


class _Progress(NamedTuple):
    """The part of an epoch that a rank has read.

    Args:
        division: How the epoch is divided.
        rank: The rank.
        done: Number of samples that the rank has read.
        held: Positions of the samples that the rank has read and that still wait in its stages.
        used: Positions of the samples that the rank has returned to its loop after the point at which its stages were recorded.
    """

    division: Division
    rank: int
    done: int
    held: np.ndarray
    used: np.ndarray

    @property
    def is_complete(self) -> bool:
        """Whether the rank has no samples left in this epoch."""
        unread = self.division.stop - self.done
        if unread + len(self.held) > len(self.used):
            return False
        unread_positions = self.division.positions(self.rank, self.done, self.division.stop)
        return not len(np.setdiff1d(np.concatenate([self.held, unread_positions]), self.used))


Divide = Callable[[int, Any, int, int], Division]


def rest_of_epoch(reads: Sequence[ReadByRank], divide: Divide) -> tuple[int, Rest]:
    """Return the epoch to continue, and the positions of this epoch that no rank has passed on.

    Args:
        reads: For each rank, the samples that it has read.
        divide: A function that returns the :class:`Division` of an epoch. Its arguments are the epoch, the :class:`Rest` of the epoch as
            JSON, the number of ranks, and the batch size (0 for single samples).

    Raises:
        PipelineError: the states do not belong together.
    """
    found = [_progress(read, divide) for read in reads]
    epoch = max(progress.division.epoch for progress in found)
    behind = [one for one in found if one.division.epoch < epoch]
    for one in behind:
        if one.division.epoch < epoch - 1 or not one.is_complete:
            ahead = next(one.rank for one in found if one.division.epoch == epoch)
            raise PipelineError(
                f"cannot combine states of different epochs: rank {one.rank} is in epoch {one.division.epoch}, but rank {ahead} is in "
                f"epoch {epoch}; load the states that all ranks saved at the same step"
            )
    found = [one if one.division.epoch == epoch else _progress(_begin(read, epoch), divide) for one, read in zip(found, reads, strict=True)]
    division = found[0].division
    for one in found:
        if one.division.sampler.rest.as_json() != division.sampler.rest.as_json() or one.division.batch_size != division.batch_size:
            raise PipelineError(
                f"cannot combine the states of ranks {found[0].rank} and {one.rank}: they belong to runs that resumed at different "
                f"positions of epoch {epoch}; load the states of one checkpoint"
            )
    if all(one.is_complete for one in found):  # samples that drop_last or on_uneven="drop" has skipped stay skipped
        return epoch + 1, WHOLE
    if division.sampler.in_stretches:
        raise PipelineError(
            f"cannot divide its samples among other ranks: shuffle='blocks' assigns separate blocks to each of {len(found)} ranks; resume "
            "on the same number of ranks, or from a state between two epochs"
        )
    rest = _left(found, division)
    return (epoch, rest) if rest.count(division.sampler.total) else (epoch + 1, WHOLE)


def _left(found: Sequence[_Progress], division: Division) -> Rest:
    """Return the positions of the epoch that no rank has passed on."""
    sampler, ranks = division.sampler, len(found)
    rest, total = sampler.rest, sampler.total
    used = np.concatenate([one.used for one in found])
    common = min(one.done for one in found)  # each rank has read at least this many samples
    furthest = max([max(one.done for one in found) * ranks, len(rest.singles), *(rest.places(used) + 1).tolist()])
    used = used[used < total]  # positions from ``total`` on are padding (on_uneven="pad"), which the new ranks do not read again
    read = np.concatenate([division.positions(one.rank, common, one.done) for one in found])
    unread = np.setdiff1d(rest.at(np.arange(min(common * ranks, furthest), furthest)), read)
    left = np.union1d(unread, np.concatenate([one.held for one in found]))
    if len(strange := np.setdiff1d(used, left)):
        raise PipelineError(
            f"cannot combine the states: the sample at position {strange[0]} of epoch {division.epoch} was passed on twice, or by another "
            "rank; load the states of one checkpoint"
        )
    left = np.setdiff1d(left, used)
    return Rest.without_runs(int(rest.at(np.array([furthest]))[0]), left[left < total])


def _progress(read: ReadByRank, divide: Divide) -> _Progress:
    rank, ranks = read.rank
    source, done, rest, size, of = read.state[:5]
    epoch = min(_epochs_left(read), default=max([source, *read.used[:, 0].tolist(), *(read.last or ())[:1]]))
    division = divide(epoch, rest if epoch == of else 0, ranks, size)
    done = division.stop if epoch < source else 0 if epoch > source else min(done * division.size, division.stop)
    if read.last is not None and read.last[0] == epoch:
        done = max(done, division.end(rank, read.last[1]))
    held, used = (division.positions_of(rank, items[items[:, 0] == epoch, 1:]) for items in (read.held, read.used))
    return _Progress(division, rank, done, held, used)


def _epochs_left(read: ReadByRank) -> set[int]:
    """Return the epochs of the items that still wait. A stage can hold items of an epoch after the source has begun the next epoch."""
    used = set(map(tuple, read.used.tolist()))
    return {item[0] for item in map(tuple, read.held.tolist()) if item not in used}


def _begin(read: ReadByRank, epoch: int) -> ReadByRank:
    """Return the record of a rank that has read nothing of an epoch."""
    return ReadByRank(read.rank, [epoch, 0, 0, read.state[3], epoch])


class Anew:
    """Converts the states of a reader for another number of ranks, or for another mixture of datasets.

    Args:
        reader: The reader.
        sampler: A function that returns the sampler of this rank.
        dealer: A function of the number of ranks that returns the dealer. It returns ``None`` without ``deal=``, or for one rank.
        mixing: The mixture that the reader reads.
        dataset: A function that returns the dataset.
    """

    def __init__(
        self,
        reader: ReaderOptions,
        sampler: Callable[[], Sampler],
        dealer: Callable[[int], Dealer | None],
        mixing: Mixing,
        dataset: Callable[[], Dataset],
    ) -> None:
        self._reader, self._sampler, self._dealer, self._mixing, self._dataset = reader, sampler, dealer, mixing, dataset

    def at_epoch(self, epoch: int) -> list[Any]:
        """Return the state at the beginning of an epoch.

        The state is a list:

        - the epoch;
        - the number of finished batches in this epoch; without batches, the number of finished samples;
        - the :class:`Rest` (the remaining positions) of the epoch in which the run last resumed, as JSON;
        - the batch size (0 if there are no batches);
        - the epoch to which this rest belongs;
        - the mixture, if its datasets have names.
        """
        return [epoch, 0, 0, self._reader.rows or 0, epoch, *self._mixing.as_json(self._dataset())]

    def from_one(self, state: list[Any] | None, last: list[int] | None, ranks: list[int]) -> list[Any]:
        """Convert the state of one rank. All ranks of the old run must have read the same number of batches.

        All new ranks get the same result.

        Args:
            state: The state that one of the old ranks saved.
            last: Epoch and index of the last item that this rank has yielded; ``None`` if it has yielded no item since ``state``.
            ranks: Rank and world size of the process that saved the state.

        Raises:
            PipelineError: the ranks are in the middle of an epoch with ``shuffle="blocks"``, where each rank has its own blocks.
        """
        progress = _progress(self._begun(ReadByRank(ranks, state, last)), self._divide)
        division, world_size = progress.division, ranks[1]
        done = -(-progress.done // division.size)
        read = [division.epoch, done, division.sampler.rest.as_json(), division.batch_size or 0, division.epoch]
        if not self._mixing.is_replaced and world_size == self._sampler().world_size and division.batch_size == self._reader.rows:
            return read + self._mixing.as_json(self._dataset())
        return self.from_all([ReadByRank([rank, world_size], read) for rank in range(world_size)])

    def from_all(self, reads: Sequence[ReadByRank]) -> list[Any]:
        """Return the state for the remaining positions of the epoch, which no rank has passed on. All new ranks get the same state."""
        epoch, rest = rest_of_epoch([self._begun(read) for read in reads], self._divide)
        if self._mixing.is_replaced:
            epoch, rest = self._mixing.replace(self._dataset(), self._sampler(), epoch, rest)
        self._sampler().of_epoch(epoch, rest)  # raises an error if the rest cannot be divided among the new ranks
        state = self.at_epoch(epoch)
        state[2] = rest.as_json()
        return state

    def items_of_rank(self, read: ReadByRank, epoch: int) -> ItemsOfRank:
        """Return the items of a rank in an epoch. In epochs before the epoch in which the run last resumed, there are none."""
        _, _, rest, size, of = self._begun(read).state[:5]
        items = self._divide(epoch, rest if epoch == of else 0, read.rank[1], size).items(read.rank[0])
        return items if epoch >= of else items._replace(length=0)

    def _begun(self, read: ReadByRank) -> ReadByRank:
        state = read.state or [0, 0]
        return read if len(state) > 2 else read._replace(state=[*state, 0, self._reader.rows_on(read.rank[1]) or 0, 0])

    def _divide(self, epoch: int, rest: Any, world_size: int, rows: int) -> Division:
        current = self._sampler()
        sampler = self._mixing.sampler(replace(current, rank=0, world_size=world_size, on_uneven="pad"))
        sampler = replace(sampler.of_epoch(epoch, Rest.from_json(rest)), on_uneven=current.on_uneven)
        return Division(sampler, epoch, rows or None, self._reader.drop_last, self._dealer(world_size))

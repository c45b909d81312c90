"""For a source that combines several readers: convert its states for another number of ranks."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.random import Generator, Philox

from highway.engine import Pipeline
from highway.engine.component import shape_by_method
from highway.engine.context import Context, entered, here, on_behalf_of
from highway.engine.randomness import go_on, state_of
from highway.engine.resume import ItemsOfRank, ReadByRank, StageState, digest
from highway.engine.stage import Stage
from highway.errors import PipelineError

_NEW = (0, False, False, 0, None, None)  # the state of a source before its first epoch


class Combining:
    """How a source combines the items of its sources in an epoch. Base class of such sources."""

    in_step: ClassVar[bool] = False  # whether the n-th items of all sources become one item

    def split(self, numbers: np.ndarray, counts: list[int], epoch: int, begin: int) -> list[np.ndarray]:
        """Return, for each source, which of its items are in some combined items, as indexes.

        Args:
            numbers: Ascending indexes of the combined items, counted from ``begin``.
            counts: The number of items of each source.
            epoch: The epoch.
            begin: Number of items of the epoch that came before the epoch was divided among these ranks.
        """
        raise NotImplementedError

    def order_at(self, counts: list[int], epoch: int, begin: int) -> Any:
        """Return the state of the random order before the item ``begin``; ``None`` if the order is not random.

        The arguments have the same meaning as in :meth:`split`.
        """
        return None


@dataclass(frozen=True)
class SourceInside:
    """One of the sources that a source combines.

    Args:
        stages: The stages of the inner source.
        pipeline: A function that returns a pipeline of these stages.
        has_epochs: Whether the inner source numbers its epochs.
        epochs: Number of epochs of the inner source; ``None`` if the number is unlimited or unknown.
    """

    stages: Sequence[Stage]
    pipeline: Callable[[], Pipeline]
    has_epochs: bool
    epochs: int | None

    @property
    def obstacle(self) -> str:
        """Why an item cannot be found by its index in an epoch; empty if it can."""
        first, *rest = self.stages
        if not self.has_epochs:
            return "is not a reader"
        if first.traits.items_of_rank is None:
            return f"begins with {first.label}, which is not a reader"
        name = next((stage.label for stage in rest if not stage.keeps_count), "")
        return name and f"has {name}, which can hold, drop or skip items; put it after"

    @property
    def restarts(self) -> bool:
        """Whether no data carry over to the next epoch. The state before an epoch is then the same for any number of ranks."""
        first, *rest = self.stages
        if any(stage.max_errors is not None for stage in self.stages):  # errors of earlier epochs count for max_errors
            return False
        spans = [stage.spans_epochs for stage in rest if shape_by_method(stage.op) == "stream"]
        return not self.has_epochs or not (first.spans_epochs or any(spans))

    def is_over(self, epoch: int) -> bool:
        """Return whether this source ends before an epoch."""
        return self.epochs is not None and epoch >= self.epochs

    def at_epoch(self, epoch: int) -> Any:
        """Return the state before an epoch."""
        if self.has_epochs and self.is_over(epoch):
            return (self.epochs, False, True, 0, None, None)
        if not epoch or not self.has_epochs:
            return (epoch, *_NEW[1:])
        states = {number: stage.traits.at_epoch(epoch) for number, stage in enumerate(self.stages) if stage.traits.at_epoch is not None}
        return (epoch, False, False, 0, None, self._state(states, epoch, False))

    def within_epoch(self, epoch: int, own: Any) -> Any:
        """Return the state within an epoch. ``own`` is the state of the reader, within this epoch or before the next epoch."""
        if self.is_over(epoch):
            return self.at_epoch(epoch)
        is_inside = own[0] == epoch
        return (epoch + 1, is_inside, False, 0, None, self._state({0: own}, own[0], is_inside))

    def _state(self, states: Mapping[int, Any], epoch: int, is_inside: bool) -> dict[str, Any]:
        """Return a state of the pipeline in which no item waits in a stage."""
        own = {str(number): StageState(state=state)._asdict() for number, state in states.items()}
        state = self.pipeline().state_dict()
        state |= {"states": own, "epoch": epoch, "begun": is_inside, "loop": epoch if is_inside else None}
        return state | {"digest": digest(state, "load_state_dict")}

    def context(self) -> Context:
        """Return a context with the seed of this source."""
        context, seed = on_behalf_of(here()), self.pipeline().seed
        context.seed = context.seed if seed is None else seed
        return context


class _Progress(NamedTuple):
    """The part of an epoch that a rank has read.

    Args:
        epoch: The epoch.
        stop: The index after the last item that the rank has read.
        reads: For each source, a record of what the rank has read from it.
    """

    epoch: int
    stop: int
    reads: list[ReadByRank]


class SeveralAnew:
    """Converts the states of a source that combines several sources.

    The state is a list: the epoch; the number of items of this epoch so far; the states of the sources; the state of the random order; and
    a pair for the last division among ranks: its epoch, and the number of items of this epoch before the division.

    Args:
        combining: How the sources are combined.
        sources: The sources.
        ranks: A function that returns the ranks of all sources.
    """

    def __init__(self, combining: Combining, sources: Sequence[SourceInside], ranks: Callable[[], Sequence[Sequence[int]]]) -> None:
        self._combining, self._sources, self._ranks = combining, sources, ranks

    @property
    def obstacle(self) -> str:
        """Why the remaining items of an epoch cannot be divided among other ranks; empty if they can."""
        found = [(place, source.obstacle) for place, source in enumerate(self._sources)]
        return next((f"sources[{place}] {why}" for place, why in found if why), "")

    @property
    def indivisible(self) -> str:
        """Why the remaining items cannot be divided: the obstacle, or a reason that counts only when a run resumes within an epoch."""
        return self.obstacle or next(filter(None, (source.stages[0].traits.indivisible for source in self._sources)), "")

    @property
    def restarts(self) -> bool:
        """Whether no data carry over to the next epoch. The state before an epoch is then the same for any number of ranks."""
        return all(source.restarts for source in self._sources)

    def at_epoch(self, epoch: int) -> list[Any]:
        """Return the state before an epoch."""
        return [epoch, 0, [source.at_epoch(epoch) for source in self._sources], None, [epoch, 0]]

    def from_one(self, state: Any, last: Sequence[int] | None, ranks: Sequence[int]) -> list[Any]:
        """Convert the state of one rank. All ranks must have read the same number of items."""
        return self.from_all([ReadByRank([rank, ranks[1]], state, last) for rank in range(ranks[1])])

    def from_all(self, reads: Sequence[ReadByRank]) -> list[Any]:
        """Return the state for the items that no rank has passed on. All new ranks get the same state.

        Raises:
            PipelineError: the remaining items cannot be divided among other ranks.
        """
        found = list(map(self._progress, reads))
        states = []
        for place, source in enumerate(self._sources):
            traits, own = source.stages[0].traits, [one.reads[place] for one in found]
            assert traits.deal_rest is not None
            with entered(source.context()):
                if traits.resume is not None:
                    traits.resume([read.state for read in own if len(read.state) > 2], False)
                states.append(traits.deal_rest(own))
        going = [state for source, state in zip(self._sources, states, strict=True) if not source.is_over(state[0])]
        if not going:
            return self.at_epoch(max(state[0] for state in states))
        epoch = min(state[0] for state in going)
        if self._combining.in_step:
            if len(going) < len(states) or any(state[0] > epoch for state in going):  # the shortest source ends the epoch
                return self.at_epoch(max(state[0] for state in states))
            if any(state[2] != states[0][2] for state in states):
                raise PipelineError(
                    "cannot divide its items among other ranks: its sources have read different positions of the epoch, because their "
                    "batch sizes or lengths differ; resume on the same number of ranks, or from states that were saved between two epochs"
                )
        if all(state[0] <= epoch and state[2] == 0 for state in states):  # no item of the epoch was read
            return self.at_epoch(epoch)
        index = max([one.stop for one in found if one.epoch == epoch], default=0)
        counts = [items.length for items in self._items(states, self._ranks()[0], epoch)]
        inner = [source.within_epoch(epoch, state) for source, state in zip(self._sources, states, strict=True)]
        return [epoch, index, inner, self._combining.order_at(counts, epoch, index), [epoch, index]]

    def _items(self, states: Sequence[Any], rank: Sequence[int], epoch: int) -> list[ItemsOfRank]:
        """Return the items of a rank from each source in an epoch, from the states of the readers."""
        items = []
        for source, state in zip(self._sources, states, strict=True):
            items_of_rank = source.stages[0].traits.items_of_rank
            assert items_of_rank is not None
            with entered(source.context()):
                of_rank: ItemsOfRank = items_of_rank(ReadByRank(rank, state), epoch)
            items.append(of_rank._replace(length=0) if source.is_over(epoch) else of_rank)
        return items

    def _progress(self, read: ReadByRank) -> _Progress:
        epoch, index, saved, _, *begun = read.state or self.at_epoch(0)
        if len(saved) != len(self._sources):  # accepted by allow_changed
            raise PipelineError(f"had {len(saved)} sources, but now has {len(self._sources)}; resume with the same sources")
        used, held = read.used, read.held
        if read.last is not None:  # the rank has passed on its items in order
            first = index if read.last[0] == epoch else 0
            used = np.array([(read.last[0], number) for number in range(first, read.last[1] + 1)], np.int64).reshape(-1, 2)
        left = set(map(tuple, held.tolist())) - set(map(tuple, used.tolist()))
        now = min((one for one, _ in left), default=max([epoch, *used[:, 0].tolist()]))
        used, held = (np.sort(items[items[:, 0] == now, 1]) for items in (used, held))
        begin = begun[0][1] if begun and begun[0][0] == now else 0
        states = [self._of_reader(place, one, epoch, now) for place, one in enumerate(saved)]
        items = self._items(states, read.rank, now)
        counts = [one.length for one in items]
        of_used, of_held = (self._combining.split(some - begin, counts, now, begin) for some in (used, held))
        reads = [
            ReadByRank(read.rank, state, None, *(_with_epoch(now, of_rank.indexes(numbers)) for numbers in both))
            for state, of_rank, *both in zip(states, items, of_held, of_used, strict=True)
        ]
        return _Progress(now, max([begin, *([index] if now == epoch else []), *(used + 1).tolist(), *(held + 1).tolist()]), reads)

    def _of_reader(self, place: int, saved: Sequence[Any], epoch: int, now: int) -> list[Any]:
        """Return the state of a reader in the epoch ``now``, from the state of its source in ``epoch``."""
        epochs, is_inside, _, taken, _, begun = saved
        if begun is not None and (names := [*begun["uneven"], *begun["renumbered"]]):
            raise PipelineError(
                f"cannot divide its items among other ranks: {names[0]} of sources[{place}] has dropped or renumbered items; resume on the "
                "same number of ranks"
            )
        if now == epoch:
            done = [epochs - 1, taken] if is_inside else [epochs, 0]
        else:  # the source has yielded all items of the earlier epochs, or of this epoch
            begins, last = max(now, epoch), self._sources[place].epochs
            done = [begins if last is None else min(begins, last), 0]
        own = {} if begun is None else begun["states"]
        return [*done, *(own["0"]["state"][2:] if "0" in own else [])]


def _with_epoch(epoch: int, indexes: np.ndarray) -> np.ndarray:
    return np.stack([np.full(len(indexes), epoch), indexes], 1)


class Choices:
    """Chooses the source of each item of a :class:`~highway.modules.sources.Mix`.

    Args:
        shares: The share of each source: the probability of a source is its share divided by the sum.
        key: The key of the random numbers.
        begin: Number of items of the epoch that came before the first choice.
        by_size: Whether the share of a source is the number of its remaining items.
    """

    def __init__(self, shares: Sequence[float], key: int, begin: int, by_size: bool) -> None:
        self.shares, self._by_size = list(shares), by_size
        self._rng = Generator(Philox(key=key, counter=begin << 64))
        self._ends = list(accumulate(self.shares))

    def state(self) -> list[int]:
        """Return the state of the random numbers, in a form that JSON can hold."""
        return state_of(self._rng)

    def restore(self, drawn: list[int]) -> None:
        """Continue from a state that :meth:`state` returned."""
        go_on(self._rng, drawn)

    def next(self) -> int:
        """Return the source of the next item."""
        return bisect_right(self._ends, self._rng.random() * self._ends[-1])

    def took(self, place: int) -> None:
        """Record that a source has yielded an item."""
        if self._by_size:
            self._change(place, self.shares[place] - 1)

    def end(self, place: int) -> None:
        """Record that the epoch of a source has ended."""
        self._change(place, 0.0)

    def _change(self, place: int, share: float) -> None:
        self.shares[place] = share
        self._ends = list(accumulate(self.shares))

    def places(self, counts: list[int], number: int) -> np.ndarray:
        """Return the indexes of the sources of the next ``number`` items. ``counts`` holds how many items each source has."""
        left, places = counts.copy(), np.empty(number, np.int64)
        for item in range(number):
            while not left[place := self.next()]:
                self.end(place)
            left[place] -= 1
            self.took(place)
            places[item] = place
        return places

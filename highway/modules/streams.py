"""Streams: stages whose number of outputs can differ from the number of inputs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Annotated, Any

from numpy.random import Generator, Philox

from highway.engine.component import OneToOne, Position, Stateless, Traits
from highway.engine.randomness import Below, go_on
from highway.engine.stage import Items, Lineage, Positions, Stamped
from highway.parameters.checks import checked
from highway.parameters.ranges import Count, Range, Seed


@checked
@dataclass
class Shuffle:
    """Shuffle items with a buffer. Fill the buffer, then repeatedly yield a random item of the buffer and add the next input.

    At the end of each epoch, yield the remaining items in random order. Therefore, items of different epochs are not mixed. This requires a
    source whose items contain their epochs, such as a reader.

    Args:
        buffer_size: Size of the buffer, at least 1. A larger buffer shuffles better.
        reuse: Number of times to yield each item, at least 1. More than 1 is useful if items are expensive to create.
        seed: Seed of the order, at least 0. ``None``: the pipeline's seed.

    Each item keeps its passport (its metadata: epoch, index, keys). With ``reuse``, repetition n of the item with index i gets the index
    ``i * reuse + n``. Later stages therefore use different random numbers for each repetition.

    >>> list(Pipeline([range(6), Shuffle(buffer_size=3, seed=1)]))
    [1, 0, 4, 5, 3, 2]
    """

    buffer_size: Count
    reuse: Count = 1
    seed: Seed | None = None

    def __highway__(self) -> Traits:
        order: OneToOne | None = "reordered" if self.reuse == 1 else None
        return Traits(
            draws=False, per_epoch=True, one_to_one=order, length=lambda items: items * self.reuse, state=Position, remake=self._remake
        )

    def stream(self, items: Items) -> Iterator[Stamped]:
        rng = Generator(Philox(key=items.epoch << 64 | items.context.seed_or(self.seed)))
        position, waiting = items.context.state_of(self), items.waiting
        uses: list[int] = []  # number of times that each waiting item was yielded
        if position.value is not None:
            uses = position.value["uses"]
            go_on(rng, position.value["rng"])
        places = Below(rng)
        position.value = lambda: {"uses": uses.copy(), "rng": places.state()}
        for item in items:
            waiting.append(Stamped(item, items.passport))
            uses.append(0)
            while len(waiting) >= self.buffer_size:
                yield self._draw(waiting, uses, places)
        while waiting:
            yield self._draw(waiting, uses, places)

    def _draw(self, waiting: list[Stamped], uses: list[int], places: Below) -> Stamped:
        place = places.next(len(waiting))
        drawn, number = waiting[place], uses[place]
        if number + 1 < self.reuse:
            uses[place] = number + 1
        else:
            waiting[place], uses[place] = waiting[-1], uses[-1]
            del waiting[-1], uses[-1]
        return drawn if self.reuse == 1 else _copy(drawn, number, self.reuse)

    def _remake(self, item: list[Stamped], number: int) -> Stamped:
        return _copy(item[0], number, self.reuse)


@checked
@dataclass
class Duplicate:
    """Yield each item several times in a row.

    Repetition n of the item with index i gets the index ``i * times + n``. Later stages therefore use different random numbers for each
    repetition.

    Args:
        times: Number of times to yield each item, at least 1.

    >>> list(Pipeline([["a", "b"], Duplicate(2)]))
    ['a', 'a', 'b', 'b']
    """

    times: Count

    def __highway__(self) -> Traits:
        return Traits(length=lambda items: items * self.times, state=Stateless, remake=self._remake)

    def stream(self, items: Items) -> Iterator[Stamped]:
        for item in items:
            for number in range(self.times):
                yield _copy(Stamped(item, items.passport), number, self.times)

    def _remake(self, item: list[Stamped], number: int) -> Stamped:
        return _copy(item[0], number, self.times)


@checked
@dataclass
class Take:
    """Yield the first ``n`` items, counted over all epochs. Then end the pipeline, and cancel all preceding stages.

    If a loop ends in the middle of an epoch, the preceding stages read the remaining items of this epoch, and these items count, too.

    Args:
        n: Number of items, at least 0.

    >>> list(Pipeline([range(100), Take(3)]))
    [0, 1, 2]
    """

    n: Annotated[int, Range(ge=0)]

    def __highway__(self) -> Traits:
        return Traits(whole_epochs=True, length=lambda items: min(items, self.n), state=lambda: Position(0))

    def stream(self, items: Items) -> Iterator[Stamped]:
        taken = items.context.state_of(self)
        while taken.value < self.n:  # checked first, so that at most n items are requested
            for item in items:
                taken.value += 1
                yield Stamped(item, items.passport)
                break
            else:
                return


@checked
@dataclass
class FixedEpochs:
    """Divide the items of all epochs into new epochs of ``size`` items each, regardless of the epochs of the source.

    Each loop over the pipeline continues after the last item of the previous loop, even in the middle of an epoch of the source. If a loop
    ends early, the preceding stages still process the remaining items of its epoch, and these items are dropped. If the source ends, the
    last epoch can be shorter. To begin every epoch at the first item of the source, use ``Take(size), Repeat(times=...)`` instead.

    Args:
        size: Number of items of an epoch, at least 1.

    >>> with Pipeline([Repeat(["a", "b", "c"]), FixedEpochs(2)]) as pipeline:
    ...     print(list(pipeline), list(pipeline), list(pipeline))
    ['a', 'b'] ['c', 'a'] ['b', 'c']
    """

    size: Count

    def __highway__(self) -> Traits:
        return Traits(
            numbers_epochs=True,
            repeats=True,
            whole_epochs=True,
            length=lambda items: self.size,
            state=lambda: Position(0),
            remake=lambda items, part: _in_epochs(items[0], 0, None),
        )

    def stream(self, items: Items) -> Iterator[Stamped]:
        taken = items.context.state_of(self)
        for item in items:
            epoch, index = divmod(taken.value, self.size)
            taken.value += 1
            yield _in_epochs(Stamped(item, items.passport), epoch, index)


def _in_epochs(stamped: Stamped, epoch: int, index: int | None) -> Stamped:
    item, passport = stamped
    return Stamped(item, passport.within(passport.epoch, epoch, index)._replace(made_of=Lineage((passport,))))


@checked
@dataclass
class Tee:
    """Call a function with each item, and pass the item on. For example, the function can be the ``put`` of a queue.

    Args:
        fn: A function that receives the item. Its return value is ignored. In YAML, write ``package.module:name``.

    >>> seen = []
    >>> list(Pipeline([["a", "b"], Tee(seen.append)]))
    ['a', 'b']
    >>> seen
    ['a', 'b']
    """

    fn: Callable[[Any], Any]

    def __highway__(self) -> Traits:
        return Traits(one_to_one="in order", length=lambda items: items, state=Stateless)

    def stream(self, items: Items) -> Iterator[Stamped]:
        for item in items:
            self.fn(item)
            yield Stamped(item, items.passport)


def _copy(stamped: Stamped, number: int, of: int) -> Stamped:
    item, passport = stamped
    if of == 1:
        return stamped
    index, rows = passport.index * of + number, tuple([position * of + number for position in passport.rows])
    positions = Positions(index, rows) if rows else None
    return Stamped(item, passport._replace(index=index, made_of=Lineage((passport,), number), positions=positions))

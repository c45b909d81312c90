"""Sources that combine other sources, and a source that reads a queue."""

from __future__ import annotations

import contextlib
import queue
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from numpy.random import Generator, Philox

from highway.engine import Pipeline
from highway.engine.batch import Item, fields
from highway.engine.cancel import check_cancelled
from highway.engine.component import Component, Position, Traits
from highway.engine.context import Context, here
from highway.engine.randomness import go_on, state_of
from highway.engine.resume import as_json
from highway.engine.stage import Lineage, Stamped
from highway.errors import ConfigError, EndOfStream
from highway.modules.inner_sources import InnerSource, all_opened, component, expect_source, ranks_of_all, remade
from highway.parameters.checks import checked
from highway.parameters.ranges import Predicate, Seed


@dataclass
class _OfSources:
    """Base class of sources that combine other sources.

    Args:
        sources: Any iterables, functions, readers or pipelines.
    """

    sources: Annotated[list[Component], Predicate(bool, "at least one")]

    def __post_init__(self) -> None:
        for position, source in enumerate(self.sources):
            expect_source(self, f"sources[{position}]", source)

    def __highway__(self) -> Traits:
        return Traits(length=self._length, state=Position, remake=self._remake, ranks=lambda: ranks_of_all(self.sources))

    def _length(self) -> int:
        return sum(self._lengths())

    def _remake(self, epoch: int, index: int, part: Any) -> Any:
        place, made = part
        return remade(self.sources[place], made)

    def _lengths(self) -> list[int]:
        return [len(Pipeline([source])) for source in self.sources]


@checked
@dataclass
class Concat(_OfSources):
    """Concatenate sources: iterate over one source after the other. Items get a running index and keep their keys.

    >>> list(Pipeline([Concat([range(2), ["a", "b"]])]))
    [0, 1, 'a', 'b']
    """

    def __iter__(self, context: Context | None = None) -> Iterator[Stamped]:
        context = context or here()
        position = context.state_of(self)
        place, index, state = position.value or (0, 0, None)
        for place in range(place, len(self.sources)):  # noqa: B020
            with contextlib.closing(InnerSource(self.sources[place], context, state)) as inner:
                position.value = lambda: (place, index, inner.state())  # noqa: B023  # called while this source is active
                for item, passport in inner:
                    index += 1
                    yield Stamped(item, passport._replace(epoch=0, index=index - 1, made_of=Lineage(part=[place, as_json(passport)])))
            state = None


@checked
@dataclass
class Zip(_OfSources):
    """Combine the first items of all sources into one item, then the second items, and so on.

    Tuples and lists are concatenated, and dicts are merged. Any other item counts as a tuple with one field. The keys come from the first
    source.

    Args:
        strict: Whether it is an error if the sources have different lengths. ``False``: the stream ends with the shortest source.

    Raises:
        ValueError: a source ends before the others, or two dicts share a name.
        TypeError: dicts and other items cannot be combined.

    >>> [stamped.item for stamped in Zip([[("a", 1), ("b", 2)], [10, 20]])]
    [('a', 1, 10), ('b', 2, 20)]
    """

    strict: bool = True

    def __iter__(self, context: Context | None = None) -> Iterator[Stamped]:
        context = context or here()
        position = context.state_of(self)
        first, states = position.value or (0, ())
        with all_opened(self.sources, context, states) as iterators:
            index = first - 1
            position.value = lambda: (index + 1, [iterator.state() for iterator in iterators])
            for index in count(first):
                row = [next(iterator, None) for iterator in iterators]
                ended = [position for position, stamped in enumerate(row) if stamped is None]
                if ended and self.strict and len(ended) < len(row):
                    raise ValueError(
                        f"Zip: sources {ended} of {len(row)} end after {index} items, others go on; strict=False ends with the shortest"
                    )
                if ended:
                    return
                parts = [stamped for stamped in row if stamped is not None]
                made_of = Lineage(part=[as_json(part.passport) for part in parts])
                yield Stamped(_joined([part.item for part in parts]), parts[0].passport._replace(epoch=0, index=index, made_of=made_of))

    def _length(self) -> int:
        return min(self._lengths())

    def _remake(self, epoch: int, index: int, part: Any) -> Any:
        made = [remade(source, one) for source, one in zip(self.sources, part, strict=True)]
        return _joined([one.item if type(one) is Stamped else one for one in made])


@checked
@dataclass
class Mix(_OfSources):
    """Take each item from a random source. Items get a running index and keep their keys.

    For data with random access, use :class:`~highway.datasets.mixing.mixed.MixedDataset` with a reader instead. It supports ranks, and its
    proportions are exact.

    Args:
        weights: Relative frequency of each source, above 0. A source that has ended is skipped.
        by_size: Whether to choose a source in proportion to its remaining length, which must be known.
        seed: Seed of the random choices, at least 0. ``None``: the pipeline's seed.
        stop: ``"all"``: the stream ends when all sources have ended. ``"first"``: it ends when a chosen source has no more items.

    Raises:
        ConfigError: the weights do not fit the sources, or a source has no length (raised on construction).

    >>> list(Pipeline([Mix([[1, 2, 3, 4], ["a", "b"]], weights=[2, 1], seed=0)]))
    [1, 2, 3, 4, 'a', 'b']
    """

    why_no_Dataset: ClassVar[str] = "a Mix is a source, and draws; what has numbers is mixed by MixedDataset(datasets, weights)"

    weights: list[float] | None = None
    by_size: bool = False
    seed: Seed | None = None
    stop: Literal["first", "all"] = "all"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.weights is not None and (len(self.weights) != len(self.sources) or min(self.weights) <= 0):
            raise ConfigError(f"Mix: weights={self.weights}; expected one above 0 for each of {len(self.sources)} sources")
        if self.by_size and self.weights is not None:
            raise ConfigError("Mix: weights and by_size are two answers to one question; give one of them")
        for position, source in enumerate(self.sources):
            if self.by_size and not hasattr(component(source), "__len__"):
                raise ConfigError(
                    f"Mix: by_size needs the length of each source, but sources[{position}], {component(source)!r}, has none; give weights"
                )

    def __iter__(self, context: Context | None = None) -> Iterator[Stamped]:
        context = context or here()
        rng = Generator(Philox(key=context.seed_or(self.seed)))
        shares = np.array(self.weights or [1.0] * len(self.sources))
        if self.by_size:
            shares = np.array([float(len(component(source))) for source in self.sources])
        index, states, position = 0, [], context.state_of(self)
        if position.value is not None:
            index, states, left, drawn = position.value
            shares = np.array(left)
            go_on(rng, drawn)
        with all_opened(self.sources, context, states) as iterators:
            position.value = lambda: (index, [iterator.state() for iterator in iterators], shares.tolist(), state_of(rng))
            while shares.any():
                ends = np.cumsum(shares)
                place = int(np.searchsorted(ends, rng.random() * ends[-1], side="right"))
                stamped = next(iterators[place], None)
                if stamped is None and self.stop == "first":
                    return
                if stamped is None:
                    shares[place] = 0
                    continue
                if self.by_size:
                    shares[place] -= 1
                index += 1
                made_of = Lineage(part=[place, as_json(stamped.passport)])
                yield Stamped(stamped.item, stamped.passport._replace(epoch=0, index=index - 1, made_of=made_of))


@checked
@dataclass
class FromQueue:
    """Yield the items of a queue until the queue returns ``EndOfStream`` (the class, or an instance).

    Args:
        queue: A ``queue.Queue``, or an object whose ``get(timeout=seconds)`` raises ``queue.Empty``, such as ``multiprocessing.Queue``.

    >>> import queue
    >>> source = queue.Queue()
    >>> for item in (1, 2, EndOfStream):
    ...     source.put(item)
    >>> list(Pipeline([FromQueue(source)]))
    [1, 2]
    """

    queue: Any

    def __iter__(self) -> Iterator[Any]:
        while True:
            check_cancelled()
            try:
                item = self.queue.get(timeout=0.1)
            except queue.Empty:
                continue
            if item is EndOfStream or isinstance(item, EndOfStream):
                return
            yield item


def _joined(items: list[Item]) -> Item:
    if not any(isinstance(item, dict) for item in items):
        values = [value for item in items for value in fields(item)]
        return values if all(isinstance(item, list) for item in items) else tuple(values)
    if not all(isinstance(item, dict) for item in items):
        raise TypeError(f"Zip: cannot join {' and '.join(type(item).__name__ for item in items)}; Rename makes a dict of a tuple")
    joined = {name: value for item in items for name, value in item.items()}
    if len(joined) < sum(map(len, items)):
        raise ValueError(
            f"Zip: a name is in two of the dicts to be joined: {' and '.join(str(list(item)) for item in items)}; Rename it in one"
        )
    return joined

"""Sources made of other sources, and of a queue."""

from __future__ import annotations

import queue
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import count
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.random import Generator, Philox

from highway.batch import Item, fields
from highway.cancel import check_cancelled
from highway.errors import ConfigError, EndOfStream
from highway.parameters import checked
from highway.stage import Passport, Stamped


@runtime_checkable
class Source(Protocol):
    """Anything that can be iterated over."""

    def __iter__(self) -> Iterator[Any]: ...


@checked
@dataclass
class Repeat:
    """Iterate over a source several times; each pass is an epoch.

    Args:
        source: Any iterable that can be iterated over again.
        times: Passes, at least 1, or ``None`` to repeat for ever.

    Raises:
        ValueError: a pass after the first gives nothing, as with a generator, which is used up.

    >>> [stamped.item for stamped in Repeat("ab", 2)]
    ['a', 'b', 'a', 'b']
    """

    source: Source
    times: int | None = None

    def __post_init__(self) -> None:
        _expect_source(self, self.source)
        if self.times is not None and self.times < 1:
            raise ConfigError(f"Repeat: times={self.times}; expected at least 1, or None to repeat for ever")

    def __iter__(self) -> Iterator[Stamped]:
        for epoch in count() if self.times is None else range(self.times):
            index = -1
            for index, stamped in enumerate(_stamped(self.source)):
                yield Stamped(stamped.item, stamped.passport._replace(epoch=epoch, index=index))
            if index < 0 and (epoch > 0 or self.times is None):
                way_out = "it is used up; give something that can be iterated over again" if epoch else "it is empty"
                raise ValueError(f"Repeat: pass {epoch + 1} over {self.source!r} gave nothing: {way_out}")


@checked
@dataclass
class Concat:
    """Iterate over one source after the other. The items are numbered through; keys stay.

    Args:
        sources: Any iterables.
    """

    sources: list[Source]

    def __post_init__(self) -> None:
        _expect_sources(self, self.sources)

    def __iter__(self) -> Iterator[Stamped]:
        index = count()
        for source in self.sources:
            for stamped in _stamped(source):
                yield Stamped(stamped.item, stamped.passport._replace(epoch=0, index=next(index)))


@checked
@dataclass
class Zip:
    """Join the first items of all sources into one item, then the second, and so on.

    Tuples are joined to one tuple, dicts to one dict; anything else counts as a tuple of one. Keys are those of the first source.

    Args:
        sources: Any iterables.
        strict: Whether sources of different lengths are an error; else the shortest ends it.

    Raises:
        ValueError: a source ends before the others, or two dicts have a name in common.
        TypeError: dicts and other items are to be joined.

    >>> [stamped.item for stamped in Zip([[("a", 1), ("b", 2)], [10, 20]])]
    [('a', 1, 10), ('b', 2, 20)]
    """

    sources: list[Source]
    strict: bool = True

    def __post_init__(self) -> None:
        _expect_sources(self, self.sources)

    def __iter__(self) -> Iterator[Stamped]:
        opened = [_stamped(source) for source in self.sources]
        for index in count():
            row = [next(source, None) for source in opened]
            ended = [position for position, stamped in enumerate(row) if stamped is None]
            if ended and self.strict and len(ended) < len(row):
                raise ValueError(
                    f"Zip: sources {ended} of {len(row)} end after {index} items, others go on; strict=False ends with the shortest"
                )
            if ended:
                return
            parts = [stamped for stamped in row if stamped is not None]
            yield Stamped(_joined([part.item for part in parts]), parts[0].passport._replace(epoch=0, index=index))


@checked
@dataclass
class Mix:
    """Draw each item from one of several sources, until all have ended. The items are numbered through; keys stay.

    Args:
        sources: Any iterables.
        weights: How often to draw from each, in proportion, above 0. A source that has ended is left out.
        by_size: Draw in proportion to what is left of each source, which needs a length: every order of the items is then equally likely.
        seed: What the draws derive from, at least 0.

    Raises:
        ConfigError: the weights do not fit the sources, or a source has no length (on construction).
    """

    sources: list[Source]
    weights: list[float] | None = None
    by_size: bool = False
    seed: int = 0

    def __post_init__(self) -> None:
        _expect_sources(self, self.sources)
        if self.weights is not None and (len(self.weights) != len(self.sources) or min(self.weights) <= 0):
            raise ConfigError(f"Mix: weights={self.weights}; expected one above 0 for each of {len(self.sources)} sources")
        if self.by_size and self.weights is not None:
            raise ConfigError("Mix: weights and by_size are two answers to one question; give one of them")
        for position, source in enumerate(self.sources):
            if self.by_size and not hasattr(source, "__len__"):
                raise ConfigError(
                    f"Mix: by_size needs the length of each source, but sources[{position}], {source!r}, has none; give weights"
                )
        if not 0 <= self.seed < 2**63:
            raise ConfigError(f"Mix: seed={self.seed}; expected a whole number, at least 0")

    def __iter__(self) -> Iterator[Stamped]:
        rng = Generator(Philox(key=self.seed))
        opened = [_stamped(source) for source in self.sources]
        shares = np.array(self.weights or [1.0] * len(opened))
        if self.by_size:
            shares = np.array([float(len(source)) for source in self.sources])  # type: ignore[arg-type]
        index = count()
        while shares.any():
            ends = np.cumsum(shares)
            place = int(np.searchsorted(ends, rng.random() * ends[-1], side="right"))
            stamped = next(opened[place], None)
            if stamped is None:
                shares[place] = 0
                continue
            if self.by_size:
                shares[place] -= 1
            yield Stamped(stamped.item, stamped.passport._replace(epoch=0, index=next(index)))


@checked
@dataclass
class FromQueue:
    """Yield what others put into a queue, until they put ``EndOfStream`` (the class, or an instance).

    Args:
        queue: A ``queue.Queue``, or anything whose ``get(timeout=seconds)`` raises ``queue.Empty``, such as ``multiprocessing.Queue``.
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


def _stamped(source: Iterable[Any]) -> Iterator[Stamped]:
    """Iterate over a source with passports, those of its own if it makes any."""
    for item in source:
        yield item if type(item) is Stamped else Stamped(item, Passport())


def _joined(items: list[Item]) -> Item:
    if not any(isinstance(item, dict) for item in items):
        return tuple(value for item in items for value in fields(item))
    if not all(isinstance(item, dict) for item in items):
        raise TypeError(f"Zip: cannot join {' and '.join(type(item).__name__ for item in items)}; Rename makes a dict of a tuple")
    joined = {name: value for item in items for name, value in item.items()}
    if len(joined) < sum(map(len, items)):
        raise ValueError(
            f"Zip: a name is in two of the dicts to be joined: {' and '.join(str(list(item)) for item in items)}; Rename it in one"
        )
    return joined


def _expect_sources(owner: object, sources: list[Source]) -> None:
    if not sources:
        raise ConfigError(f"{type(owner).__name__}: sources is empty; expected at least one")
    for source in sources:
        _expect_source(owner, source)


def _expect_source(owner: object, source: object) -> None:
    if not isinstance(source, Source):
        way_out = "; a reader has epochs= of its own" if hasattr(source, "stages") else ""
        raise ConfigError(f"{type(owner).__name__}: {source!r} is no source: expected something to iterate over{way_out}")

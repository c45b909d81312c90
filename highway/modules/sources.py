"""Sources that combine sources. A source *numbers its epochs* if the passport (metadata) of each item has the number of its epoch."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count
from typing import Annotated, Any, ClassVar

import numpy as np

from highway.datasets.mixing.interleave import Stop
from highway.engine.batch import Item, fields
from highway.engine.component import Component, Position, Traits
from highway.engine.context import Context, here
from highway.engine.resume import as_json
from highway.engine.stage import Lineage, Passport, Stamped
from highway.errors import ConfigError
from highway.modules.inner_sources import (
    SourceInEpochs,
    all_in_epochs,
    can_be_remade,
    component,
    drawn_anew,
    expect_source,
    for_other_ranks,
    length_of_epoch,
    may_have_length,
    ranks_of_all,
    remade,
    traits_of,
)
from highway.parameters.checks import checked
from highway.parameters.ranges import Predicate, Seed
from highway.reading.several import Choices, Combining


@dataclass
class OfSources(Combining):
    """Base class of sources that combine other sources.

    Args:
        sources: The sources: iterables, functions, readers or pipelines.
    """

    sources: Annotated[list[Component], Predicate(bool, "at least one")]

    skips: ClassVar[bool] = True  # whether the sources skip the rest of an epoch if its loop ends early; if not, the rest is read

    def __post_init__(self) -> None:
        for position, source in enumerate(self.sources):
            expect_source(self, f"sources[{position}]", source)

    def __highway__(self) -> Traits:
        epochs, anew = self._epochs(), for_other_ranks(self, self.sources)
        divides = self.skips and not anew.obstacle
        return Traits(
            at_epoch=anew.at_epoch if self.skips and epochs and anew.restarts else None,
            deal_anew=anew.from_one if divides else None,
            deal_rest=anew.from_all if divides else None,
            indivisible=anew.indivisible,
            length=self._length,
            numbers_epochs=bool(epochs),
            epochs=self._number_of_epochs([number for number in epochs if number is not None]) if epochs and None not in epochs else None,
            state=Position,
            remake=self._remake if all(map(can_be_remade, self.sources)) else None,
            ranks=lambda: ranks_of_all(self.sources),
        )

    def __iter__(self, context: Context | None = None) -> Iterator[Stamped]:
        context = context or here()
        position = context.state_of(self)
        epoch, index, states, saved, *begun = position.value or (0, 0, [], None)
        resumes = index > 0
        with all_in_epochs(type(self).__name__, self.sources, context, states) as sources:
            have_epochs = any(source.numbers_epochs for source in sources)
            while resumes or (self._has_epoch(sources, epoch) if have_epochs else epoch == 0):
                order, resumes = Position(saved), False
                position.value = lambda: (epoch, index, [source.state() for source in sources], order.state(), *begun)  # noqa: B023  # replaced before a variable changes
                for item, passport, part in self._items(sources, epoch, context, order):
                    index += 1
                    yield Stamped(item, self._numbered(passport, epoch, index - 1, part)._replace(made_of=Lineage(part=part)))
                    if self.skips and context.is_skipped(epoch):
                        break
                if self.skips and have_epochs:
                    for source in sources:
                        source.leave(epoch)
                epoch, index, saved = epoch + 1, 0, None

    def _items(
        self, sources: list[SourceInEpochs], epoch: int, context: Context, order: Position
    ) -> Iterator[tuple[Item, Passport, list[Any]]]:
        """Yield each item, its passport and the arguments of ``_made`` (``Zip``: one list per source). Store the progress in ``order``."""
        raise NotImplementedError

    def _has_epoch(self, sources: list[SourceInEpochs], epoch: int) -> bool:
        """Return whether there is another epoch, and begin this epoch in a source. Call this only if a source numbers its epochs."""
        return any(source.begin() for source in sources if source.numbers_epochs)

    def _epochs(self) -> list[int | None]:
        """Return the number of epochs of each source that numbers its epochs. ``None``: the number is unlimited or unknown."""
        return [traits.epochs for traits in map(traits_of, self.sources) if traits.numbers_epochs]

    def _number_of_epochs(self, epochs: list[int]) -> int:
        return max(epochs)

    def _length(self) -> int:
        return sum(self._lengths())

    def _remake(self, epoch: int, index: int, part: Any) -> Stamped:
        return Stamped((made := self._made(*part)).item, self._numbered(made.passport, epoch, index, part))

    def _made(self, place: int, number: int, made: Any) -> Stamped:
        """Create an item of ``sources[place]`` again. ``number`` is the index of the pass, and ``made`` is the item's passport as JSON."""
        return remade(drawn_anew(self.sources[place], number, here()), made)

    def _numbered(self, passport: Passport, epoch: int, index: int, part: Any) -> Passport:
        """Return the passport of a combined item. ``part`` is the list that :meth:`_items` has yielded with the item."""
        place, number, _ = part[0] if isinstance(part[0], list) else part
        return passport.within(number * len(self.sources) + place, epoch, index)

    def _lengths(self) -> list[int]:
        if len(set(epochs := self._epochs())) > 1:
            raise TypeError(
                f"the length of an epoch is unknown: {type(self).__name__} has sources with different numbers of epochs, {epochs}, so its "
                "last epochs are shorter; set epochs= of all sources to the same number"
            )
        return [length_of_epoch(source) for source in self.sources]


def _begun(sources: list[SourceInEpochs], epoch: int) -> list[SourceInEpochs]:
    """Begin an epoch in each source that has not begun this epoch and has more epochs. Return the sources."""
    for source in sources:
        if source.epochs <= epoch:
            source.begin()
    return sources


def _part(place: int, source: SourceInEpochs, passport: Passport) -> list[Any]:
    return [place, source.number, as_json(passport)]


@checked
@dataclass
class Concat(OfSources):
    """Iterate over several sources, one after another. The items get a running index, and keep their keys.

    In each epoch, a source that numbers its epochs, such as a reader, yields its next epoch. Every other source is read from its beginning
    to its end in each epoch. If no source numbers its epochs, there is one epoch.

    >>> list(Pipeline([Concat([range(2), ["a", "b"]])]))
    [0, 1, 'a', 'b']
    """

    def _items(
        self, sources: list[SourceInEpochs], epoch: int, context: Context, order: Position
    ) -> Iterator[tuple[Item, Passport, list[Any]]]:
        for place, source in enumerate(sources):
            _begun([source], epoch)
            for item, passport in source:
                yield item, passport, _part(place, source, passport)

    def split(self, numbers: np.ndarray, counts: list[int], epoch: int, begin: int) -> list[np.ndarray]:
        stops = np.cumsum(counts)
        return [numbers[(stop - own <= numbers) & (numbers < stop)] - (stop - own) for own, stop in zip(counts, stops, strict=True)]


@checked
@dataclass
class Zip(OfSources):
    """Combine the first items of all sources into one item, then the second items, and so on.

    Dicts are merged. Lists are concatenated to a list. Any other items are concatenated to a tuple, and an item that is not a tuple or list
    counts as one field. The keys come from the first source. Each source yields its epochs as in :class:`Concat`. ``strict`` determines
    which epoch is the last.

    Args:
        strict: Whether an error is raised if the sources differ in length or in number of epochs. With ``False``, an epoch ends when the
            shortest source ends. The number of epochs is the smallest number of epochs of a source.

    Raises:
        ValueError: a source ends before the other sources, and ``strict`` is true; or two dicts have a field with the same name.
        TypeError: one source yields a dict, and another source yields an item that is not a dict.

    >>> [stamped.item for stamped in Zip([[("a", 1), ("b", 2)], [10, 20]])]
    [('a', 1, 10), ('b', 2, 20)]
    """

    in_step: ClassVar[bool] = True

    strict: bool = True

    def split(self, numbers: np.ndarray, counts: list[int], epoch: int, begin: int) -> list[np.ndarray]:
        return [numbers] * len(counts)

    def _number_of_epochs(self, epochs: list[int]) -> int:
        return min(epochs)

    def _has_epoch(self, sources: list[SourceInEpochs], epoch: int) -> bool:
        ended = [place for place, source in enumerate(sources) if source.numbers_epochs and not source.begin()]
        if ended and self.strict and len(ended) < sum(source.numbers_epochs for source in sources):
            raise ValueError(
                f"Zip: sources {ended} of {len(sources)} end after {epoch} epochs, but others continue; set the same epochs=, or pass "
                "strict=False to end after the smallest number of epochs"
            )
        return not ended

    def _items(
        self, sources: list[SourceInEpochs], epoch: int, context: Context, order: Position
    ) -> Iterator[tuple[Item, Passport, list[Any]]]:
        begun, first = _begun(sources, epoch), order.value or 0
        for number in count(first):
            order.value = number
            row = [next(source, None) for source in begun]
            ended = [position for position, stamped in enumerate(row) if stamped is None]
            if ended and self.strict and len(ended) < len(row):
                where = f" of epoch {epoch}" if epoch else ""
                raise ValueError(
                    f"Zip: sources {ended} of {len(row)} end after {number} items{where}, but others continue; pass strict=False"
                )
            if ended:
                return
            parts = [stamped for stamped in row if stamped is not None]
            order.value = number + 1
            made_of = [_part(place, source, stamped.passport) for place, (source, stamped) in enumerate(zip(begun, parts, strict=True))]
            yield _joined([part.item for part in parts]), parts[0].passport, made_of

    def _length(self) -> int:
        return min(self._lengths())

    def _remake(self, epoch: int, index: int, part: Any) -> Stamped:
        made = [self._made(*one) for one in part]
        return Stamped(_joined([one.item for one in made]), self._numbered(made[0].passport, epoch, index, part))


@checked
@dataclass
class Mix(OfSources):
    """Take each item from a random source. The items get a running index, and keep their keys.

    If at least one source numbers its epochs, as readers do, each loop over the mix is one epoch. ``stop`` determines when this epoch ends,
    as in :class:`~highway.datasets.mixing.mixed.MixedDataset`. For a source that does not number its epochs, such as a list, each pass over
    the source counts as one epoch. If no source numbers its epochs, the mix has one epoch. For data with random access, use a reader of a
    ``MixedDataset`` instead, which divides the mix among the ranks.

    Args:
        weights: Relative frequency of each source, above 0.
        by_size: Whether the probability of a source is proportional to the number of its remaining items. All interleavings of the sources
            are then equally likely. The lengths of all sources must be known, and ``stop`` must be ``"all"``.
        seed: Seed of the random choices, at least 0. ``None``: the pipeline's seed.
        stop: When an epoch of the mix ends. A source is *complete* if it is selected again after it has yielded a whole epoch of its own
            items. ``"all"``: when all sources are complete; complete sources are skipped. ``"first"``: when a source is complete.
            ``"restart"``: when all sources are complete; a source that ends continues with its next epoch. With ``"first"`` and
            ``"restart"``, the next epoch of the mix begins at the next item of each source. If a loop ends early, ``"all"`` skips the
            remaining items of the epoch. The other values read and drop these items.

    Raises:
        ConfigError: the weights do not fit the sources; or ``by_size`` is given with ``weights``, with another ``stop`` than ``"all"``, or
            for a source without a length. If a reader has no length, the error is raised when the mix is first read.
        ValueError: with ``by_size``, a source yields more items than its length.

    >>> list(Pipeline([Mix([[1, 2, 3, 4], ["a", "b"]], weights=[2, 1], seed=0)]))
    [1, 2, 3, 4, 'a', 'b']
    """

    why_no_Dataset: ClassVar[str] = "a Mix is a source, not a dataset; to mix datasets, use MixedDataset(datasets, weights)"

    weights: list[float] | None = None
    by_size: bool = False
    seed: Seed | None = None
    stop: Stop = "all"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.weights is not None and (len(self.weights) != len(self.sources) or min(self.weights) <= 0):
            raise ConfigError(f"Mix: weights={self.weights}; expected one weight above 0 for each of {len(self.sources)} sources")
        if self.by_size and self.weights is not None:
            raise ConfigError("Mix: weights and by_size cannot be combined; remove one of them")
        if self.by_size and self.stop != "all":
            raise ConfigError(f"Mix: stop={self.stop!r} cannot be combined with by_size, which reads all; remove one of them")
        for position, source in enumerate(self.sources):
            if self.by_size and not may_have_length(source):
                raise self._no_length(position, "")

    def _no_length(self, position: int, why: str) -> ConfigError:
        source = component(self.sources[position])
        return ConfigError(
            f"Mix: by_size needs the length of each source, but sources[{position}], {source!r:.80}, has no length{why}; use weights"
        )

    @property
    def skips(self) -> bool:  # type: ignore[override]
        return self.stop == "all"

    def _epochs(self) -> list[int | None]:
        return [epochs if self.skips else None for epochs in super()._epochs()]  # None: how many epochs there are depends on random numbers

    def _length(self) -> int:
        if not self.skips:
            raise TypeError(f"the length of an epoch is unknown: it depends on random numbers (stop={self.stop!r})")
        return super()._length()

    def _has_epoch(self, sources: list[SourceInEpochs], epoch: int) -> bool:
        if self.stop == "first":
            return all(source.is_ready() for source in sources)
        if self.stop == "restart":
            return any(source.is_ready() for source in sources if source.numbers_epochs)
        return super()._has_epoch(sources, epoch)

    def _items(
        self, sources: list[SourceInEpochs], epoch: int, context: Context, order: Position
    ) -> Iterator[tuple[Item, Passport, list[Any]]]:
        if self.skips:
            _begun(sources, epoch)
        # ``given``: number of items from each source in this epoch. ``whole``: the indexes of the complete sources.
        given, whole = [0] * len(sources), set[int]()
        if order.value is None:
            choices = self._choices(self._shares(sources), context, epoch)
        else:
            shares, drawn, given, ended = order.value
            choices, whole = self._choices(shares, context, epoch), set(ended)
            choices.restore(drawn)
        order.value = lambda: (choices.shares.copy(), choices.state(), given.copy(), sorted(whole))
        while any(choices.shares):
            place = choices.next()
            source = sources[place]
            stamped = next(source, None) if given[place] < source.size or self.skips else None
            if stamped is None and not self.skips:
                if given[place] >= source.size:
                    whole.add(place)
                if self._ends(whole):
                    return
                stamped = next(source, None)
                if stamped is None and source.begin():
                    stamped = next(source, None)
            if stamped is None:
                choices.end(place)
                whole.add(place)
                if self.stop == "first" or (self.stop == "restart" and self._ends(whole)):
                    return
                continue
            choices.took(place)
            given[place] += 1
            yield stamped.item, stamped.passport, _part(place, source, stamped.passport)
        if self.by_size:
            self._expect_no_more(sources)

    def _ends(self, whole: set[int]) -> bool:
        """Return whether an epoch with ``"first"`` or ``"restart"`` ends. ``whole`` holds the indexes of the complete sources."""
        return len(whole) >= (1 if self.stop == "first" else len(self.sources))

    def split(self, numbers: np.ndarray, counts: list[int], epoch: int, begin: int) -> list[np.ndarray]:
        places = self._choices(self._shares_of(counts), here(), epoch, begin).places(counts, 1 + int(numbers.max(initial=-1)))
        return [np.searchsorted(np.flatnonzero(places == place), numbers[places[numbers] == place]) for place in range(len(counts))]

    def order_at(self, counts: list[int], epoch: int, begin: int) -> Any:
        shares = self._shares_of(counts)
        return shares, self._choices(shares, here(), epoch, begin).state(), [0] * len(counts), []

    def _choices(self, shares: list[float], context: Context, epoch: int, begin: int = 0) -> Choices:
        return Choices(shares, epoch << 64 | context.seed_or(self.seed), begin, self.by_size)

    def _shares_of(self, counts: list[int]) -> list[float]:
        return list(map(float, counts)) if self.by_size else self.weights or [1.0] * len(counts)

    def _shares(self, sources: list[SourceInEpochs]) -> list[float]:
        if not self.by_size:
            return self._shares_of([0] * len(sources))
        lengths = []
        for place, source in enumerate(self.sources):
            try:
                lengths.append(float(length_of_epoch(source)))
            except TypeError as error:
                raise self._no_length(place, f" ({error})") from None
        return [0.0 if source.is_over else length for source, length in zip(sources, lengths, strict=True)]

    def _expect_no_more(self, sources: list[SourceInEpochs]) -> None:
        for place, source in enumerate(sources):
            if next(source, None) is not None:
                raise ValueError(f"Mix: sources[{place}] has more items in an epoch than its length; use weights instead of by_size")


def _joined(items: list[Item]) -> Item:
    if not any(isinstance(item, dict) for item in items):
        values = [value for item in items for value in fields(item)]
        return values if all(isinstance(item, list) for item in items) else tuple(values)
    if not all(isinstance(item, dict) for item in items):
        raise TypeError(f"Zip: cannot combine {' and '.join(type(item).__name__ for item in items)}; use Rename to get dicts")
    joined = {name: value for item in items for name, value in item.items()}
    if len(joined) < sum(map(len, items)):
        raise ValueError(f"Zip: two dicts have the same field: {' and '.join(str(list(item)) for item in items)}; use Rename")
    return joined

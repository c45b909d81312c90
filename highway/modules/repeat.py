"""Repeat a source, or all preceding stages of a pipeline."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import count
from typing import Any

from highway.engine import Pipeline
from highway.engine.component import Component, Position, Stateless, Traits, shape_of
from highway.engine.context import Context, here
from highway.engine.resume import as_json
from highway.engine.stage import Items, Lineage, Stage, Stamped
from highway.errors import ConfigError
from highway.modules.inner_sources import (
    InnerSource,
    component,
    drawn_anew,
    expect_source,
    length_of_epoch,
    ranks_of_all,
    remade,
    traits_of,
)
from highway.modules.sources import OfSources
from highway.parameters.checks import checked
from highway.parameters.ranges import Epochs


@checked
@dataclass
class Repeat:
    """Iterate over a source several times. Each pass is an epoch.

    In the middle of a pipeline, pass no source. ``Repeat`` then repeats all preceding stages: ``Pipeline([files, decode, Batch(8),
    Repeat(times=3)])``. Stages with their own ``seed``, such as :class:`Shuffle`, draw new random numbers in each pass. A reader with
    ``epochs=E`` yields ``times * E`` epochs. A reader with ``epochs=None`` yields ``times`` epochs.

    Args:
        source: A source that can be iterated over several times: an iterable, a reader or a pipeline. ``None`` repeats the stages before
            this stage.
        times: Number of passes, at least 1, or ``None`` to repeat indefinitely.

    Raises:
        ConfigError: a source is given in the middle of a pipeline, or no source at its start; or a preceding stage already repeats its
            input.
        ValueError: a pass yields no items, because the source is empty or can be iterated over only once, such as a generator (when
            running).

    >>> [stamped.item for stamped in Repeat(["a", "b"], 2)]
    ['a', 'b', 'a', 'b']
    """

    source: Component | None = None
    times: Epochs = None

    def __post_init__(self) -> None:
        if self.source is not None:
            expect_source(self, f"source={component(self.source)!r:.80}", self.source)

    def __highway__(self) -> Traits:
        return Traits(
            numbers_epochs=True,
            length=lambda: length_of_epoch(component(self.source)),
            state=Position,
            remake=self._remake,
            ranks=lambda: ranks_of_all([self.source]),
            after=self._after,
            adds_a_stage=False,
        )

    def __iter__(self, context: Context | None = None) -> Iterator[Stamped]:
        context = context or here()
        if self.source is None:
            raise ConfigError("Repeat: as the first stage it needs a source: Repeat(source, times)")
        repeated, position = self._repeated(), context.state_of(self)
        if isinstance(repeated, _Passes):
            yield from repeated.passes(context, position)
            return
        with contextlib.closing(InnerSource(repeated, context, position.value)) as inner:
            position.value = inner.state
            for item, passport in inner:
                yield Stamped(item, passport._replace(made_of=Lineage(part=as_json(passport))))

    def _repeated(self) -> Any:
        """Return the source that yields the passes."""
        whole = component(self.source)
        if isinstance(whole, Pipeline):
            return Pipeline([*whole.stages, Repeat(times=self.times)], whole.seed)
        if (repeated := _repeated(whole, self.times)) is not None:
            return replace(self.source, op=repeated) if isinstance(self.source, Stage) else repeated
        return _Passes(self.source, self.times)

    def _remake(self, epoch: int, index: int, part: Any) -> Any:
        repeated = self._repeated()
        return repeated.remake(epoch, index, part) if isinstance(repeated, _Passes) else remade(repeated, part)

    def _after(self, stages: Sequence[Stage]) -> list[Stage]:
        """Return the ``stages``, with a source that yields ``times`` passes, and with streams that restart in each pass."""
        if self.source is not None:
            raise ConfigError(
                "Repeat: it has a source, but is not the first stage; to repeat the stages before it, remove the source: Repeat(times=...)"
            )
        first, *rest = stages
        for stage in stages:
            if stage.traits.repeats:
                raise ConfigError(
                    f"Repeat: the earlier stage {stage.label} already repeats; pass epochs= to that stage instead of using Repeat"
                )
        repeated = _repeated(first.op, self.times)
        passes = _Passes(first.op, self.times)
        source = replace(first, op=passes if repeated is None else repeated, name=first.label)
        for number, stage in enumerate(rest):
            if shape_of(stage.op) == "stream":
                rest[number] = replace(stage, op=_EachPass(stage.op, passes), name=stage.label)
        return [source, *rest]


class _Passes:
    """A source that iterates over another source several times. If a stream needs no more items of a pass, the next pass begins."""

    def __init__(self, source: Any, times: Epochs) -> None:
        self.source, self.times = source, times
        self.enough = -1  # the index of the latest pass that a stream has ended early

    def __highway__(self) -> Traits:
        return Traits(
            numbers_epochs=True,
            length=lambda: length_of_epoch(self.source),
            state=Position,
            remake=self.remake,
            ranks=lambda: ranks_of_all([self.source]),
        )

    def __iter__(self, context: Context | None = None) -> Iterator[Stamped]:
        context = context or here()
        return self.passes(context, context.state_of(self))

    def passes(self, context: Context, position: Position) -> Iterator[Stamped]:
        first, index, state = position.value or (0, -1, None)
        for epoch in count(first) if self.times is None else range(first, self.times):
            with contextlib.closing(InnerSource(drawn_anew(self.source, epoch, context), context, state)) as inner:
                position.value = lambda: (epoch, index, inner.state())  # noqa: B023  # this function is called only during this pass
                for index, (item, passport) in enumerate(inner, start=index + 1):  # noqa: B020
                    made_of = Lineage(part=[epoch, as_json(passport)])
                    yield Stamped(item, passport.within(passport.epoch, epoch, index)._replace(made_of=made_of))
                    if self.enough >= epoch or context.is_skipped(epoch):
                        break
            gave, index, state = index, -1, None
            if gave < 0 and (epoch > 0 or self.times is None):
                way_out = "it can be iterated over only once; pass an iterable that can be iterated over again" if epoch else "it is empty"
                raise ValueError(f"Repeat: pass {epoch + 1} over {component(self.source)!r} yielded no items: {way_out}")

    def remake(self, epoch: int, index: int, part: Any) -> Any:
        """Create an item of a pass again."""
        number, made = part
        item, passport = remade(drawn_anew(self.source, number, here()), made)
        return Stamped(item, passport.within(passport.epoch, epoch, index))


_OVER = "over"  # the state of a stream that needs no more items of a pass


class _EachPass:
    """Restarts a stream in each pass. The stream can end a pass before the end of its input."""

    def __init__(self, op: Any, passes: _Passes) -> None:
        self.stands_for, self._passes = op, passes

    def __highway__(self) -> Traits:  # loops can end early, because the stream restarts in each pass
        declared = Traits.of(self.stands_for)
        state = Stateless if declared.state is Stateless else Position
        return replace(declared, stands_for=self.stands_for, per_epoch=True, whole_epochs=False, state=state)

    def stream(self, items: Items) -> Iterator[Any]:
        begun = items.context.state_of(self).value
        if begun != _OVER:
            drawn = drawn_anew(self.stands_for, items.epoch, items.context)
            items.context.begin(drawn, Traits.of(drawn).new_state(), begun)
            yield from drawn.stream(items)
        self._passes.enough = max(self._passes.enough, items.epoch)
        items.context.begin(self, Position(_OVER))  # the pass might be endless
        items.waiting = []
        for _ in items:
            pass


def _reader_of(op: Any) -> tuple[str, Any] | None:
    """Find a reader with the parameter ``epochs`` in a component. Return the name of its field, and the reader.

    If the component is the reader itself, the name is empty.
    """
    names = {field.name for field in dataclasses.fields(op)} if dataclasses.is_dataclass(op) else set()
    if "epochs" in names:
        return "", op
    inner = Traits.of(op).stands_for
    return next(((name, inner) for name in names if getattr(op, name) is inner and _reader_of(inner) is not None), None)


def _repeated(op: Any, times: int | None) -> Any:
    """Return a copy of a component that yields ``times`` times as many epochs.

    Return ``None`` if the component neither has the parameter ``epochs`` nor combines sources with epochs.
    """
    if isinstance(op, OfSources) and Traits.of(op).numbers_epochs:
        return replace(op, sources=[Repeat(source, times) if traits_of(source).numbers_epochs else source for source in op.sources])
    found = _reader_of(op)
    if found is None:
        return None
    name, reader = found
    reader = replace(reader, epochs=None if times is None else times * (reader.epochs or 1))
    return replace(op, **{name: reader}) if name else reader

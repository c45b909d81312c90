"""Several passes over a source, or over all that stands before in a pipeline."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import count
from typing import Any, ClassVar

from highway.engine import Pipeline
from highway.engine.cancel import seed_or
from highway.engine.component import Component, Traits, shape_of
from highway.engine.stage import Items, Passport, Stage, Stamped
from highway.errors import ConfigError
from highway.modules.inner_sources import component, expect_source, opened
from highway.parameters.checks import checked
from highway.parameters.ranges import Epochs

_APART = 0x9E3779B97F4A7C15  # between the seeds of two passes; odd, so that no two of them meet


@checked
@dataclass
class Repeat:
    """Iterate over a source several times; each pass is an epoch.

    In the middle of a pipeline, without a source, it repeats all that stands before it: ``Pipeline([files, decode, Batch(8),
    Repeat(times=3)])``. What draws order or values by a ``seed`` of its own, such as :class:`Shuffle` and :class:`Mix`, draws anew in each
    pass. A reader with ``epochs`` makes ``times`` as many of them; where it would repeat for ever, it makes ``times``.

    Args:
        source: Any source that can be iterated over again: an iterable, a reader, a pipeline (whose stages are run anew). ``None`` means
            the stages before this one.
        times: Passes, at least 1, or ``None`` to repeat for ever.

    Raises:
        ConfigError: a source is given in the middle of a pipeline, or none at its begin; a stage before repeats for ever by itself.
        ValueError: a pass gives nothing: the source is empty, or used up as a generator is (when running).

    >>> [stamped.item for stamped in Repeat("ab", 2)]
    ['a', 'b', 'a', 'b']
    """

    adds_a_stage: ClassVar[bool] = False

    source: Component | None = None
    times: Epochs = None

    def __post_init__(self) -> None:
        if self.source is not None:
            expect_source(self, f"source={component(self.source)!r:.80}", self.source)

    def __iter__(self) -> Iterator[Stamped]:
        if self.source is None:
            raise ConfigError("Repeat: as the first stage it needs a source: Repeat(source, times)")
        whole = component(self.source)
        if isinstance(whole, Pipeline):
            with Pipeline([*whole.stages, Repeat(times=self.times)], whole.seed) as pipeline:
                yield from pipeline.stamped()
        elif (repeated := _repeated(whole, self.times)[0]) is not None:
            yield from opened(replace(self.source, op=repeated) if isinstance(self.source, Stage) else repeated)
        else:
            yield from _Passes(self.source, self.times)

    def after(self, stages: Sequence[Stage]) -> list[Stage]:
        """Return ``stages`` with a source of so many passes, and with streams that begin anew in each."""
        if self.source is not None:
            raise ConfigError("Repeat: a source is given, but stages stand before it; leave it out to repeat those: Repeat(times=...)")
        first, *rest = stages
        for stage in stages:
            if stage.traits.repeats:
                raise ConfigError(f"Repeat: {stage.label} before it repeats by itself; give epochs= to that")
        repeated, length = _repeated(first.op, self.times)
        passes = _Passes(first.op, self.times)
        source = replace(first, op=passes if repeated is None else repeated, name=first.label)
        for number, stage in enumerate(rest):
            if shape_of(stage.op) == "stream":
                rest[number] = replace(stage, op=_EachPass(stage.op, passes, length), name=stage.label)
        return [source, *rest]


class _Passes:
    """One pass over a source after the other; a stream that has had enough of one lets the next begin."""

    def __init__(self, source: Any, times: int | None) -> None:
        self.source, self.times = source, times
        self.enough = -1  # the last pass of which nothing more is needed

    def __iter__(self) -> Iterator[Stamped]:
        for epoch in count() if self.times is None else range(self.times):
            index = -1
            for index, stamped in enumerate(opened(_drawn_anew(self.source, epoch))):
                yield Stamped(stamped.item, stamped.passport._replace(epoch=epoch, index=index))
                if self.enough >= epoch:
                    break
            if index < 0 and (epoch > 0 or self.times is None):
                way_out = "it is used up; give something that can be iterated over again" if epoch else "it is empty"
                raise ValueError(f"Repeat: pass {epoch + 1} over {component(self.source)!r} gave nothing: {way_out}")


class _EachPass:
    """A stream that begins anew with each pass, which is over when its epochs are, or when the stream ends by itself."""

    def __init__(self, op: Any, passes: _Passes, length: int) -> None:
        self.stands_for, self._passes, self._length = op, passes, length

    def stream(self, items: Items) -> Iterator[Stamped]:
        one = _OnePass(items, self._length)
        while one.begins():
            for index, out in enumerate(_drawn_anew(self.stands_for, one.number).stream(one)):
                yield out if type(out) is Stamped else Stamped(out, Passport(one.passport.epoch, index, times=one.passport.times))
            self._passes.enough = max(self._passes.enough, one.number)
            for _ in one:  # what was on its way
                pass


class _OnePass:
    """The items of one pass, as a stream sees them, and then those of the next."""

    def __init__(self, items: Items, length: int) -> None:
        self._ahead = (Stamped(item, items.passport) for item in items)
        self._length = length
        self._next: Stamped | None = None

    def begins(self) -> bool:
        """Go on to the next pass, and say whether there is one."""
        self._next = self._next or next(self._ahead, None)
        if self._next is not None:
            self.passport = self._next.passport
            self.number = self.passport.epoch // self._length
        return self._next is not None

    def __iter__(self) -> _OnePass:
        return self

    def __next__(self) -> Any:
        self._next = self._next or next(self._ahead, None)
        if self._next is None or self._next.passport.epoch // self._length != self.number:
            raise StopIteration
        (item, self.passport), self._next = self._next, None
        return item


def _drawn_anew(op: Any, number: int, inside: bool = False) -> Any:
    """Return a component with another seed for each pass but the first, and so those that it is made of.

    Args:
        op: The component, which is to run on this thread.
        number: Of the pass, from 0.
        inside: Whether it is part of a pipeline that has another seed already, for those that have none of their own.
    """
    if isinstance(op, Stage):
        return replace(op, op=_drawn_anew(op.op, number, inside))
    if number and isinstance(op, Pipeline):  # which has ended with the pass before
        return Pipeline([_drawn_anew(stage, number, True) for stage in op.stages], _other_seed(op.seed, number, inside))
    if number == 0 or not dataclasses.is_dataclass(op) or isinstance(op, type):
        return op
    changes: dict[str, Any] = {}
    for field in dataclasses.fields(op):
        value = getattr(op, field.name)
        if field.name == "seed" and isinstance(value, int | None) and field.init:
            changes["seed"] = _other_seed(value, number, inside)
        elif field.name == "source" or value is Traits.of(op).stands_for is not None:
            changes[field.name] = _drawn_anew(value, number, inside)
        elif field.name == "sources":
            changes["sources"] = [_drawn_anew(source, number, inside) for source in value]
    return replace(op, **changes)


def _other_seed(own: int | None, number: int, inside: bool) -> int | None:
    return None if own is None and inside else (seed_or(own) + number * _APART) % 2**63


def _reader_of(op: Any) -> tuple[str, Any] | None:
    """Return the field of a component that holds a reader with ``epochs``, and the reader; an empty name if it is one itself."""
    names = {field.name for field in dataclasses.fields(op)} if dataclasses.is_dataclass(op) else set()
    if "epochs" in names:
        return "", op
    inner = Traits.of(op).stands_for
    return next(((name, inner) for name in names if getattr(op, name) is inner and _reader_of(inner) is not None), None)


def _repeated(op: Any, times: int | None) -> tuple[Any, int]:
    """Return a component that makes ``times`` as many epochs, ``None`` if it has no ``epochs``; and how many there are in one pass."""
    found = _reader_of(op)
    if found is None:
        return None, 1
    name, reader = found
    length = reader.epochs or 1
    reader = replace(reader, epochs=None if times is None else times * length)
    return replace(op, **{name: reader}) if name else reader, length

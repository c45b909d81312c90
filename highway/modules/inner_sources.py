"""Iterate over the inner sources of a component, such as the sources that ``Mix`` combines.

A source is an iterable, a function, a reader or a pipeline. Some sources *number their epochs*, as readers do: the passport (metadata) of
an item contains the number of the item's epoch. Other sources, such as lists, do not.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from highway.engine import Pipeline, cancel
from highway.engine.channel import Together
from highway.engine.component import Ranks, RunState, Traits, name_of, no_state, shape_of
from highway.engine.context import Context
from highway.engine.resume import from_json
from highway.engine.source import OpenSource, ranks_of, remake_of
from highway.engine.stage import Passport, Stage, Stamped, expand
from highway.errors import ConfigError, EndOfStream, PipelineError
from highway.reading.several import Combining, SeveralAnew, SourceInside

_APART = 0x9E3779B97F4A7C15  # difference between the seeds of successive passes; because it is odd, the seeds of all passes differ


class InnerSource:
    """Iterates over a source inside a component. Yields each item with its passport.

    Args:
        source: An iterable, a function, a reader or a pipeline.
        context: The context of the stage.
        state: The position to resume from, as returned by :meth:`state`.
    """

    def __init__(self, source: Any, context: Context, state: Any = None) -> None:
        op, is_own = _as_source(source)
        self._own = op if is_own else None
        # If no stage runs on this thread, the context is shared by all threads, so use a new one.
        self._context = context = context if context.is_stage else Context(is_stage=False)
        self._running: tuple[Any, RunState | None] = (op, None)
        with self:
            self._source = OpenSource(op, Traits.of(op), context, state)
        self._numbers = itertools.count(self._source.first)

    def __iter__(self) -> Iterator[Stamped]:
        return self

    def __next__(self) -> Stamped:
        with self:
            item = next(self._source)
        return item if type(item) is Stamped else Stamped(item, Passport(0, next(self._numbers)))

    def __enter__(self) -> None:
        """Until the block ends, replace the state of the outer source in the context by the state of this source."""
        self._swap()
        self._context.inner += 1

    def __exit__(self, *_: object) -> None:
        self._swap()
        self._context.inner -= 1

    def _swap(self) -> None:
        self._context.running, self._running = self._running, self._context.running

    def state(self) -> Any:
        """Return the position in a form that JSON can hold.

        Raises:
            PipelineError: the source does not support states.
        """
        op, state = self._running
        if state is None:
            raise PipelineError(no_state(name_of(op)))
        return state.state()

    def close(self) -> None:
        self._source.close()
        if self._own is not None:
            self._own.stop()


def remade(source: Any, lineage: list[Any]) -> Stamped:
    """Create an item of a source again. ``lineage`` is the item's passport, as :func:`highway.engine.resume.as_json` returns it.

    This function does not iterate over the source, so it works even if the source has ended.

    Raises:
        PipelineError: the source cannot create its items again.
    """
    op, _ = _as_source(source)
    if (make := remake_of(op, Traits.of(op))) is None:
        raise PipelineError(f"{name_of(op)} does not support making items again")
    passport = from_json(lineage)
    epoch, index, made_of = *passport[:2], passport.made_of
    made = make(epoch, index, lineage if isinstance(op, Pipeline) else made_of and made_of.part)
    return Stamped(made.item, made.passport.again(epoch, index)) if type(made) is Stamped else Stamped(made, Passport(epoch, index))


def can_be_remade(source: Any) -> bool:
    """Return whether a source can create its items again."""
    op, _ = _as_source(source)
    return remake_of(op, Traits.of(op)) is not None


def _as_source(source: Any) -> tuple[Any, bool]:
    """Return the object that yields the items of a source, and whether this object is a new pipeline."""
    stage = source if isinstance(source, Stage) else Stage(source)
    is_own = shape_of(stage.op, True) == "composite" or bool(stage.settings)
    return Pipeline([stage]) if is_own else stage.op, is_own


def pipeline_of(source: Any) -> Pipeline:
    """Return a source as a pipeline."""
    op, _ = _as_source(source)
    return op if isinstance(op, Pipeline) else Pipeline([op])


def for_other_ranks(combining: Combining, sources: Sequence[Any]) -> SeveralAnew:
    """Return an object that converts the states of a combined source, such as a ``Mix``, to another number of ranks.

    Args:
        combining: The combined source.
        sources: The sources that it combines.
    """
    inner = []
    for source in sources:
        op, _ = _as_source(source)
        traits = Traits.of(op)
        stages = op.stages if isinstance(op, Pipeline) else [stage for stage, _ in expand([op])]
        inner.append(SourceInside(stages, partial(pipeline_of, op), traits.numbers_epochs, traits.epochs))
    return SeveralAnew(combining, inner, lambda: ranks_of_all(sources))


def in_place(source: Any, context: Context, state: Any) -> Iterator[Any]:
    """Iterate over a source in the place of the current stage. The state of the source becomes the state of the stage."""
    with contextlib.closing(OpenSource(source, Traits.of(source), context, state)) as items:
        for number, item in enumerate(items, start=items.first):
            yield item if type(item) in (Stamped, Together) else Stamped(item, Passport(0, number))


def ranks_of_all(sources: Sequence[Any]) -> Ranks:
    """Return the ranks on which the items of several sources depend."""
    ops = [_as_source(source)[0] for source in sources]
    return [pair for op in ops for pair in ranks_of(op, Traits.of(op))]


def length_of_epoch(source: Any) -> int:
    """Return the number of items in an epoch of a source.

    Raises:
        TypeError: the source does not know its length.
    """
    return len(source if isinstance(source, Pipeline) else Pipeline([source]))


def traits_of(source: Any) -> Traits:
    """Return the traits of the object that yields the items of a source."""
    return Traits.of(_as_source(source)[0])


def may_have_length(source: Any) -> bool:
    """Return whether a source might know the number of items in an epoch. Some readers and pipelines do not know this number."""
    op, _ = _as_source(source)
    return hasattr(op, "__len__") or Traits.of(op).length is not None


class SourceInEpochs:
    """Iterates over a source inside a component, epoch by epoch. Yields items with passports.

    If the source does not number its epochs, each pass over the source is an epoch.

    Args:
        name: The name of the source, for error messages.
        source: The source.
        context: The context of the stage.
        state: The position to resume from, as returned by :meth:`state`.

    Attributes:
        numbers_epochs: Whether the source numbers its epochs.
        epochs: Number of epochs that have begun.
        is_inside: Whether the source is within an epoch.
        is_over: Whether there are no more epochs.
        size: Number of items in the last epoch that was read to its end. Infinite until an epoch has been read to its end.
    """

    def __init__(self, name: str, source: Any, context: Context, state: Any = None) -> None:
        self._name, self._source, self._context = name, source, context
        op, is_own = _as_source(source)
        self.numbers_epochs = Traits.of(op).numbers_epochs
        self._is_own = is_own or not isinstance(op, Pipeline)
        self._pipeline = pipeline_of(op) if self.numbers_epochs else None
        self.epochs: int
        self.is_inside: bool
        self.is_over: bool
        self._taken: int  # number of items taken in the epoch
        self.epochs, self.is_inside, self.is_over, self._taken, size, begun = state or (0, False, False, 0, None, None)
        self._begun: Any = begun  # the position in the epoch to resume from
        self.size = math.inf if size is None else size
        self._items: Any = None  # the iterator over the epoch
        self._ahead: Stamped | None = None  # the next item, if it was already taken
        if self._pipeline is not None and self._begun is not None:
            self._pipeline.load_state_dict(self._begun, None)  # the outer pipeline has compared all stages

    @property
    def number(self) -> int:
        """The index of the current pass over the source. If the source numbers its epochs, this is always 0."""
        return 0 if self.numbers_epochs else self.epochs - 1

    def begin(self) -> bool:
        """Begin the next epoch, unless the source is within an epoch.

        Return whether the source is within an epoch now.

        Raises:
            EndOfStream: the source is a pipeline that had ended before this component read its first epoch.
        """
        if self.is_inside or self.is_over:
            return self.is_inside
        if self._pipeline is not None:
            try:
                self._take_ahead(self._pipeline)
            except EndOfStream:
                cancel.check_cancelled()
                if not self.epochs:
                    raise  # the pipeline had ended before this loop
                self.is_over = True
                return False
        self.epochs, self.is_inside, self._taken, self._begun = self.epochs + 1, self._ahead is not None or not self.numbers_epochs, 0, None
        return True

    def is_ready(self) -> bool:
        """Return whether this epoch or a later epoch has another item.

        If the source does not number its epochs, return ``True``, because each epoch is a new pass over the source.
        """
        if self._pipeline is None:
            return True
        if self.is_inside and self._ahead is None:
            self._take_ahead(self._pipeline)
            if self._ahead is None:
                self._end()
        while not self.is_inside and self.begin():
            pass
        return self.is_inside

    def _take_ahead(self, pipeline: Pipeline) -> None:
        """Take the next item of the epoch. Until the item is returned, a saved state does not include it."""
        before, self._items = pipeline.position(), self._items or pipeline.one_epoch()
        self._ahead = next(self._items, None)
        if self._ahead is None:
            cancel.check_cancelled()
            self._close_items()
        else:
            pipeline.received(before)

    def __iter__(self) -> Iterator[Stamped]:
        return self

    def __next__(self) -> Stamped:
        """Return the next item of the epoch. Outside an epoch and at its end, raise StopIteration.

        Raises:
            ValueError: the source cannot be iterated over again: a pass after the first has no items.
        """
        if not self.is_inside:
            raise StopIteration
        if self._ahead is not None and self._pipeline is not None:
            stamped, self._ahead = self._ahead, None
            self._pipeline.received(None)
        else:
            if self._items is None:
                self._items = self._begin_again()
            if (found := next(self._items, None)) is None:
                self._end()
                raise StopIteration
            stamped = found
        self._taken += 1
        return stamped

    def _begin_again(self) -> Iterator[Stamped]:
        if self._pipeline is not None:
            return self._pipeline.one_epoch()  # continues the epoch after a resume
        return InnerSource(drawn_anew(self._source, self.number, self._context), self._context, self._begun)

    def _end(self) -> None:
        cancel.check_cancelled()  # the source might have ended only because the pipeline was stopped
        self.size, self.is_inside = self._taken, False
        self._close_items()
        if not self._taken and self.number:
            raise ValueError(
                f"{self._name}, {component(self._source)!r:.80}, has no items for epoch {self.number}: it can be iterated over only once; "
                "pass an iterable that can be iterated over again"
            )

    def leave(self, epoch: int) -> None:
        """Skip the remaining items of an epoch. The caller must have read or skipped all earlier epochs."""
        if self.epochs <= epoch:
            self.begin()
        if self.is_inside and self._pipeline is not None:
            next(self, None)  # begin the loop over the pipeline, because only closing a begun loop skips the remaining items
        self.is_inside = False
        self._close_items()

    def state(self) -> Any:
        """Return the position in a form that JSON can hold.

        Raises:
            PipelineError: the source does not support states.
        """
        begun = self._begun if self.is_inside else None
        if self._pipeline is not None:
            begun = self._pipeline.state_dict() if self.epochs and not self.is_over else None
        elif self._items is not None:
            begun = self._items.state()
        return self.epochs, self.is_inside, self.is_over, self._taken, None if self.size == math.inf else self.size, begun

    def _close_items(self) -> None:
        if self._items is not None:
            self._items.close()
            self._items = None

    def close(self) -> None:
        if self._pipeline is not None:
            self._pipeline.received(None)
        self._close_items()
        if self._pipeline is not None and (self._is_own or cancel.is_cancelled()):
            self._pipeline.stop()


@contextlib.contextmanager
def all_in_epochs(owner: str, sources: Sequence[Any], context: Context, states: Sequence[Any] = ()) -> Iterator[list[SourceInEpochs]]:
    """Iterate over several sources at once. All sources are closed when the block ends."""
    with contextlib.ExitStack() as stack:
        yield [
            stack.enter_context(contextlib.closing(SourceInEpochs(f"{owner}: sources[{place}]", source, context, state)))
            for place, (source, state) in enumerate(itertools.zip_longest(sources, states[: len(sources)]))
        ]


def drawn_anew(op: Any, number: int, context: Context, inside: bool = False) -> Any:
    """Return the component for one pass. For each pass after the first, pipelines and dataclasses with a seed are copied with a new seed.

    Args:
        op: The component.
        number: The index of the pass.
        context: The context of the stage that runs the component.
        inside: Whether the component is part of a pipeline that already has a new seed.
    """
    if isinstance(op, Stage):
        return replace(op, op=drawn_anew(op.op, number, context, inside))
    if number and isinstance(op, Pipeline):  # this pipeline ended with the previous pass
        return Pipeline([drawn_anew(stage, number, context, True) for stage in op.stages], _other_seed(op.seed, number, context, inside))
    if number == 0 or not dataclasses.is_dataclass(op) or isinstance(op, type):
        return op
    changes: dict[str, Any] = {}
    for field in dataclasses.fields(op):
        value = getattr(op, field.name)
        if field.name == "seed" and isinstance(value, int | None) and field.init:
            changes["seed"] = _other_seed(value, number, context, inside)
        elif field.name == "source" or value is Traits.of(op).stands_for is not None:
            changes[field.name] = drawn_anew(value, number, context, inside)
        elif field.name == "sources":
            changes["sources"] = [drawn_anew(source, number, context, inside) for source in value]
    return replace(op, **changes)


def _other_seed(own: int | None, number: int, context: Context, inside: bool) -> int | None:
    return None if own is None and inside else (context.seed_or(own) + number * _APART) % 2**63


def component(source: Any) -> Any:
    """Return the component of a source. If the source is a ``Stage``, this is the ``op`` of the stage."""
    return source.op if isinstance(source, Stage) else source


def expect_source(owner: object, parameter: str, source: Any) -> None:
    """Check that the value of a parameter is a source.

    Raises:
        ConfigError: the value is not a source. The message names the owner and the parameter.
    """
    wrong = f"{type(owner).__name__}: {parameter} is not a source"
    try:
        last, shape = expand([source])[-1]
    except PipelineError as error:
        raise ConfigError(f"{wrong}: {error}") from None
    if shape == "sink":
        raise ConfigError(f"{wrong}: {last.label} is a sink")
    if isinstance(op := component(source), Pipeline) and op.ends_in_sink:
        raise ConfigError(f"{wrong}: {op} ends in a sink")

"""Sources of any kind inside a component."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator, Sequence
from typing import Any

from highway.engine import Pipeline
from highway.engine.channel import Together
from highway.engine.component import Ranks, RunState, Traits, name_of, no_state, shape_of
from highway.engine.context import Context
from highway.engine.resume import from_json
from highway.engine.source import OpenSource, ranks_of, remake_of
from highway.engine.stage import Passport, Stage, Stamped, expand
from highway.errors import ConfigError, PipelineError


class InnerSource:
    """Iterates with passports over a source inside a component: an iterable, a function, a reader or a pipeline.

    Args:
        source: The source.
        context: The context of the stage.
        state: The position to resume from, from :meth:`state`.
    """

    def __init__(self, source: Any, context: Context, state: Any = None) -> None:
        op, is_own = _as_source(source)
        self._own = op if is_own else None
        self._context = context = context if context.is_stage else Context(is_stage=False)  # all threads share the context outside stages
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
        """Make the state of this source the state of the outer source."""
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


def remade(source: Any, lineage: list[Any]) -> Any:
    """Make an item of a source again, with its passport if there is one. ``lineage`` is the passport in the form of
    :func:`highway.engine.resume.as_json`.

    This does not iterate over the source, so it works even if the source has ended.
    """
    op, _ = _as_source(source)
    if (make := remake_of(op, Traits.of(op))) is None:
        raise PipelineError(f"{name_of(op)} cannot give items again")
    epoch, index, *_, made_of = from_json(lineage)
    return make(epoch, index, lineage if isinstance(op, Pipeline) else made_of and made_of.part)


def _as_source(source: Any) -> tuple[Any, bool]:
    """Return the object to iterate over for an inner source, and whether this is a new pipeline."""
    stage = source if isinstance(source, Stage) else Stage(source)
    is_own = shape_of(stage.op, True) == "composite" or bool(stage.settings)
    return Pipeline([stage]) if is_own else stage.op, is_own


def in_place(source: Any, context: Context, state: Any) -> Iterator[Any]:
    """Iterate over a source in place of the source of a stage. Its state becomes the state of the stage."""
    with contextlib.closing(OpenSource(source, Traits.of(source), context, state)) as items:
        for number, item in enumerate(items, start=items.first):
            yield item if type(item) in (Stamped, Together) else Stamped(item, Passport(0, number))


def ranks_of_all(sources: Sequence[Any]) -> Ranks:
    """Return the ranks of a component whose items come from these sources."""
    ops = [_as_source(source)[0] for source in sources]
    return [pair for op in ops for pair in ranks_of(op, Traits.of(op))]


def length_of_epoch(source: Any) -> int:
    """Return the number of items of an epoch of a source.

    Raises:
        TypeError: the source does not know the number.
    """
    return len(source if isinstance(source, Pipeline) else Pipeline([source]))


@contextlib.contextmanager
def all_opened(sources: Sequence[Any], context: Context, states: Sequence[Any] = ()) -> Iterator[list[InnerSource]]:
    """Iterate over several sources at once. All of them are closed when the block ends."""
    with contextlib.ExitStack() as stack:
        yield [
            stack.enter_context(contextlib.closing(InnerSource(source, context, state)))
            for source, state in itertools.zip_longest(sources, states[: len(sources)])
        ]


def component(source: Any) -> Any:
    """Return the component, without a ``Stage`` around it."""
    return source.op if isinstance(source, Stage) else source


def expect_source(owner: object, parameter: str, source: Any) -> None:
    """Check that a parameter can be iterated over as a source.

    Raises:
        ConfigError: the parameter is not a source; the message names the owner and the parameter.
    """
    wrong = f"{type(owner).__name__}: {parameter} is no source"
    try:
        last, shape = expand([source])[-1]
    except PipelineError as error:
        raise ConfigError(f"{wrong}: {error}") from None
    if shape == "sink":
        raise ConfigError(f"{wrong}: {last.label} is a sink")
    if isinstance(op := component(source), Pipeline) and op.ends_in_sink:
        raise ConfigError(f"{wrong}: {op} ends in a sink")

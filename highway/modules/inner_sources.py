"""Sources inside of a component, whatever they are made of. The one place among the components that knows the engine."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Generator, Iterator, Sequence
from typing import Any

from highway.engine import Pipeline, resume
from highway.engine.component import Ranks, Traits, name_of, shape_of
from highway.engine.context import Context
from highway.engine.resume import Saved, keep, saved
from highway.engine.source import OpenSource, iterator_of, ranks_of, remake_of
from highway.engine.stage import Passport, Stage, Stamped, expand
from highway.errors import ConfigError, PipelineError


class InnerSource:
    """A source inside of a component, whatever it is: an iterable, a function, a reader, a pipeline. Yields its items with passports.

    Args:
        source: What is iterated over.
        context: That of the stage.
        state: Where to begin, as :meth:`state` has said it.
    """

    def __init__(self, source: Any, context: Context, state: Any = None) -> None:
        op, is_own = _as_source(source)
        self._own = op if is_own else None
        self._source = OpenSource(op, Traits.of(op), context, state)
        self._numbers = itertools.count(self._source.first)
        self._keeper = resume.Keeper(state)

    def __iter__(self) -> Iterator[Stamped]:
        return self

    def __next__(self) -> Stamped:
        with self._keeper:
            item = next(self._source)
        return item if type(item) is Stamped else Stamped(item, Passport(0, next(self._numbers)))

    def state(self) -> Any:
        """Return where it is, as JSON holds it.

        Raises:
            PipelineError: it does not say so.
        """
        return self._source.state() if self._keeper.save is None else self._keeper.save().state

    def close(self) -> None:
        self._source.close()
        if self._own is not None:
            self._own.stop()


def remade(source: Any, lineage: list[Any]) -> Any:
    """Return an item of a source again, with its passport if it has one; ``lineage`` is :func:`highway.engine.resume.lineage` of that.

    The source may have ended meanwhile: it is not iterated over.
    """
    op, _ = _as_source(source)
    if (make := remake_of(op, Traits.of(op))) is None:
        raise PipelineError(f"{name_of(op)} cannot give items again")
    epoch, index, _, part = (*lineage, None, None)[:4]
    return make(epoch, index, lineage if isinstance(op, Pipeline) else part)


def _as_source(source: Any) -> tuple[Any, bool]:
    """Return what is iterated over for a source inside of a component, and whether that is a pipeline made for it."""
    stage = source if isinstance(source, Stage) else Stage(source)
    is_own = shape_of(stage.op, True) == "composite" or bool(stage.settings)
    return Pipeline([stage]) if is_own else stage.op, is_own


def opened(source: Any, context: Context) -> Generator[Stamped]:
    """Iterate over a source with passports, those of its own if it makes any."""
    with contextlib.closing(InnerSource(source, context)) as inner:
        yield from inner


def resumable(source: Any, context: Context) -> Iterator[Any]:
    """Iterate over a source that stands in the place of the one that runs on this thread; it says its state as it would itself."""
    if not (isinstance(source, Sequence) or Traits.of(source).stamped is not None):
        return iterator_of(source, context)
    return _resumable(source, context)


def _resumable(source: Any, context: Context) -> Iterator[Stamped]:
    with contextlib.closing(InnerSource(source, context, (saved() or Saved()).state)) as inner:
        keep(lambda: Saved(inner.state()))
        yield from inner


def ranks_of_all(sources: Sequence[Any]) -> Ranks:
    """Return the ranks of a component that passes on the items of these sources."""
    ops = [_as_source(source)[0] for source in sources]
    return [pair for op in ops for pair in ranks_of(op, Traits.of(op))]


def length_of_epoch(source: Any) -> int:
    """Return how many items an epoch of a source has.

    Raises:
        TypeError: it does not say.
    """
    return len(source if isinstance(source, Pipeline) else Pipeline([source]))


@contextlib.contextmanager
def all_opened(sources: Sequence[Any], context: Context, states: Sequence[Any] = ()) -> Iterator[list[InnerSource]]:
    """Iterate over several sources at once, none of which goes on when the block is left."""
    with contextlib.ExitStack() as stack:
        yield [
            stack.enter_context(contextlib.closing(InnerSource(source, context, state)))
            for source, state in itertools.zip_longest(sources, states[: len(sources)])
        ]


def component(source: Any) -> Any:
    """Return the component, without a ``Stage`` that there may be around it."""
    return source.op if isinstance(source, Stage) else source


def expect_source(owner: object, parameter: str, source: Any) -> None:
    """Check that a parameter can be iterated over as a source.

    Raises:
        ConfigError: it cannot; names the owner and the parameter.
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

"""Sources inside of a component, whatever they are made of. The one place among the components that knows the engine."""

from __future__ import annotations

import contextlib
from collections.abc import Generator, Iterator, Sequence
from typing import Any

from highway.engine import Pipeline
from highway.engine.component import open_source, shape_of
from highway.engine.stage import Passport, Stage, Stamped, expand
from highway.errors import ConfigError, PipelineError


def opened(source: Any) -> Generator[Stamped]:
    """Iterate over a source with passports, those of its own if it makes any: an iterable, a function, a reader, a pipeline."""
    stage = source if isinstance(source, Stage) else Stage(source)
    if shape_of(stage.op, True) == "composite" or stage.settings:
        with Pipeline([stage]) as pipeline:
            yield from pipeline.stamped()
        return
    for item in open_source(stage.op):
        yield item if type(item) is Stamped else Stamped(item, Passport())


@contextlib.contextmanager
def all_opened(sources: Sequence[Any]) -> Iterator[list[Iterator[Stamped]]]:
    """Iterate over several sources at once, none of which goes on when the block is left."""
    with contextlib.ExitStack() as stack:
        yield [stack.enter_context(contextlib.closing(opened(source))) for source in sources]


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

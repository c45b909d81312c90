"""Whatever is a source, while it is iterated over: its items, where it is in them, and what makes one of them again."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from highway.engine.component import Ranks, Traits, name_of
from highway.errors import EndOfStream, PipelineError
from highway.process.ranks import rank_and_world_size


class OpenSource:
    """The iterator of a source: an iterable, a function that returns one, or one that is called until it raises ``EndOfStream``.

    Args:
        op: The source, and ``traits`` its declarations.
        state: Where to begin, as :meth:`state` has said it.

    Attributes:
        first: The number of the item that it begins with.
    """

    def __init__(self, op: Any, traits: Traits, state: Any = None) -> None:
        self.op, self.first = op, 0
        self._stamped = traits.stamped
        if self._stamped is not None:  # it is a pipeline
            if state is not None:
                op.load_state_dict(state, None)  # the pipeline around it has compared all stages
            try:
                self._items = self._stamped()
            except EndOfStream:
                if state is None:
                    raise
                self._items = iter(())  # the state was saved at its end
        elif isinstance(op, Sequence):
            self.first = state or 0
            self._items = itertools.islice(op, self.first, None)
        else:
            self._items = _iterator(op)
        self._taken = self.first

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        item = next(self._items)
        self._taken += 1
        return item

    @property
    def says_its_state(self) -> bool:
        """Whether :meth:`state` is known without the source's own :func:`~highway.engine.resume.keep`: of pipelines and sequences."""
        return self._stamped is not None or isinstance(self.op, Sequence)

    def state(self) -> Any:
        """Return where it is, as JSON holds it: how many items were taken, or the state of the pipeline that it is.

        Raises:
            PipelineError: it is neither a sequence nor a pipeline, or a stage of that does not say where it is.
        """
        if not self.says_its_state:
            raise PipelineError(f"{name_of(self.op)} does not say where it is")
        return self._taken if self._stamped is None else self.op.state_dict()

    def close(self) -> None:
        if (close := getattr(self._items, "close", None)) is not None:
            close()


def remake_of(op: Any, traits: Traits) -> Callable[..., Any] | None:
    """Return what makes items of a source or stream again, called as ``remake`` of :class:`Traits`; ``None`` if nothing does."""
    return (lambda epoch, index, part: op[index]) if isinstance(op, (Sequence, np.ndarray)) else traits.remake


def ranks_of(op: Any, traits: Traits) -> Ranks:
    """Return the ranks that the items of a source depend on, as ``ranks`` of :class:`Traits`.

    A source that does not declare its ranks is taken to depend on the rank of this process.

    Raises:
        ConfigError: the environment names a rank that is not valid.
    """
    if traits.ranks is not None:
        return traits.ranks()
    return [] if isinstance(op, Sequence) else [list(rank_and_world_size())]


def _iterator(op: Any) -> Iterator[Any]:
    if hasattr(op, "__iter__"):
        return iter(op)
    try:
        first = op()
    except (EndOfStream, StopIteration):
        return iter(())
    return first if isinstance(first, Iterator) else itertools.chain([first], _call_until_end(op))


def _call_until_end(function: Callable[[], Any]) -> Iterator[Any]:
    with contextlib.suppress(EndOfStream, StopIteration):
        while True:
            yield function()

"""Iterate over a source of any kind, track the position in the source, and make single items again."""

from __future__ import annotations

import contextlib
import itertools
import queue
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np

from highway.engine.cancel import check_cancelled
from highway.engine.component import Ranks, Traits
from highway.engine.context import Context
from highway.errors import EndOfStream
from highway.parameters.hints import takes_context
from highway.process.ranks import rank_and_world_size


class OpenSource:
    """The iterator of a source: an iterable, a function that returns an iterable, or a function that is called until ``EndOfStream``.

    Args:
        op: The source.
        traits: The declarations of the source.
        context: The context of the stage. If the source has a parameter ``context``, it gets the context. The constructor stores the
            source's state (:class:`highway.engine.component.RunState`) in the context. For a sequence or a pipeline, the ``OpenSource``
            itself is this state.
        state: The saved state of the source; ``None`` for a new run.

    Attributes:
        first: Index of the first item.
    """

    def __init__(self, op: Any, traits: Traits, context: Context, state: Any = None) -> None:
        self.op, self.first = op, 0
        self._stamped = traits.stamped
        is_own = self._stamped is not None or isinstance(op, Sequence)
        context.begin(op, self if is_own else traits.new_state(), state)
        if self._stamped is not None:  # the source is a pipeline
            try:
                self._items = self._stamped()
            except EndOfStream:
                if state is None:
                    raise
                self._items = iter(())  # the state was saved after the last item
        elif isinstance(op, Sequence):
            self._items = itertools.islice(op, self.first, None)
        else:
            self._items = iterator_of(op, context)
        self._taken = self.first

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        item = next(self._items)
        self._taken += 1
        return item

    def state(self) -> Any:
        """Return the position in a sequence or pipeline: the number of items taken, or the state of the pipeline."""
        return self._taken if self._stamped is None else self.op.state_dict()

    def restore(self, state: Any) -> None:
        if self._stamped is None:
            self.first = state
        else:
            self.op.load_state_dict(state, None)  # the outer pipeline has compared all stages

    def close(self) -> None:
        if (close := getattr(self._items, "close", None)) is not None:
            close()


def has_state(op: Any, traits: Traits) -> bool:
    """Return whether a source supports states."""
    return traits.state is not None or traits.stamped is not None or isinstance(op, Sequence)


def remake_of(op: Any, traits: Traits) -> Callable[..., Any] | None:
    """Return the function that makes items again: indexing for a sequence, otherwise the trait ``remake``, which can be ``None``."""
    return (lambda epoch, index, part: op[index]) if isinstance(op, (Sequence, np.ndarray)) else traits.remake


def ranks_of(op: Any, traits: Traits) -> Ranks:
    """Return the ranks that the items of a source depend on, in the form of the trait ``ranks``.

    A sequence depends on no rank. Any other source that does not declare its ranks is assumed to depend on the rank of this process.

    Raises:
        ConfigError: the environment names an invalid rank.
    """
    if traits.ranks is not None:
        return traits.ranks()
    return [] if isinstance(op, Sequence) else [list(rank_and_world_size())]


def iterator_of(op: Any, context: Context) -> Iterator[Any]:
    """Return the iterator of a source that is not a pipeline. If the source has a parameter ``context``, it gets the context."""
    if hasattr(op, "__iter__"):
        return iter(op.__iter__(context=context)) if takes_context(op.__iter__) else iter(op)
    op = partial(op, context=context) if takes_context(op) else op
    try:
        first = op()
    except (EndOfStream, StopIteration):
        return iter(())
    return first if isinstance(first, Iterator) else itertools.chain([first], _call_until_end(op))


def _call_until_end(function: Callable[[], Any]) -> Iterator[Any]:
    with contextlib.suppress(EndOfStream, StopIteration):
        while True:
            yield function()


_END = object()
_LOOK = 0.1  # seconds between two checks whether the source was stopped


class Fed:
    """A source that yields the values passed to :meth:`put`, until :meth:`close` is called.

    In an isolated pipeline, the source sends the values to the process that runs the stages.

    A pipeline with this source does not support states, because only the caller of :meth:`put` knows the next values.
    """

    def __init__(self) -> None:
        self._values: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._forward: Callable[[Any], None] = self._values.put

    def put(self, value: Any) -> None:
        """Add a value, without waiting. This method can be called before the pipeline begins."""
        self._forward(value)

    def forward(self, send: Callable[[Any], None]) -> None:
        """Pass all values to ``send``, including the values that were added before this call."""
        self._forward = send
        while not self._values.empty():
            if (value := self._values.get()) is not _END:
                send(value)

    def close(self) -> None:
        """Make the source end after the last value that was added."""
        self._values.put(_END)

    def values(self) -> Iterator[Any]:
        while True:
            check_cancelled()
            try:
                value = self._values.get(timeout=_LOOK)
            except queue.Empty:
                continue
            if value is _END:
                return
            yield value

    def __iter__(self) -> Iterator[Any]:
        return self.values()

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name not in ("_values", "_forward")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        Fed.__init__(self)
        self.__dict__.update(state)

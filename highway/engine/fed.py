"""A source of what the one who takes a pipeline's items hands to it, one value after the other."""

from __future__ import annotations

import queue
from collections.abc import Callable, Iterator
from typing import Any

from highway.engine.cancel import check_cancelled

_END = object()
_LOOK = 0.1  # seconds between two looks whether the source was stopped


class Fed:
    """Yield what :meth:`put` takes, until :meth:`close`. In an isolated pipeline it crosses to the process of that.

    A pipeline that is fed does not say its state: whoever feeds it knows what is to come.
    """

    def __init__(self) -> None:
        self._values: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._forward: Callable[[Any], None] = self._values.put

    def put(self, value: Any) -> None:
        """Hand over a value; returns at once, and may be called before the pipeline begins."""
        self._forward(value)

    def forward(self, send: Callable[[Any], None]) -> None:
        """Have values sent elsewhere, those too that wait."""
        self._forward = send
        while not self._values.empty():
            if (value := self._values.get()) is not _END:
                send(value)

    def close(self) -> None:
        """End behind the values that were handed over."""
        self._values.put(_END)

    def values(self) -> Iterator[Any]:
        """Yield the values."""
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

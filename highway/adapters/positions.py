"""The position of a loop whose pipeline or loader is read ahead by another component."""

from __future__ import annotations

import sys
from collections.abc import Generator, Iterator
from types import FrameType
from typing import Any, Protocol, runtime_checkable

from highway.errors import PipelineError


@runtime_checkable
class Positioned(Protocol):
    """A pipeline or loader whose state is the position of a loop, even if another component reads its items ahead."""

    def position(self) -> Any:
        """Return its position after the last item that was read."""

    def received(self, position: Any) -> None:
        """Set its state to a position: the loop has received all items before it. ``None``: items are no longer read ahead.

        If the position is an error, requesting the state raises it.
        """


def position_of(loader: Any) -> Any:
    """Return a loader's position. For a foreign loader, return its state, the error that it raises instead, or ``None`` if it has none."""
    if isinstance(loader, Positioned):
        return loader.position()
    try:
        return loader.state_dict() if hasattr(loader, "state_dict") else None
    except PipelineError as error:
        return error


def received_by_caller(loader: Positioned, batches: Iterator[Any]) -> Iterator[Any]:
    """Return a loop over a loader. It reports to the loader which batches the caller's caller has passed on to the training.

    Lightning, if it does not know the length of an epoch, and Accelerate fetch a batch before they yield the previous one. Accelerate takes
    the state of the loader that it loops over before it fetches.
    """
    frame: FrameType | None = sys._getframe(2)
    is_direct = True  # whether all frames so far are __iter__ methods, such as those of subclasses
    while frame is not None:
        module = frame.f_globals.get("__name__", "")
        is_direct = is_direct and frame.f_code.co_name == "__iter__"
        if is_direct and module == "accelerate.data_loader":
            return batches
        if module == "highway.adapters.device_loader" or module.startswith("torchdata."):  # they count what their loop receives
            return batches
        if module == "accelerate.data_loader" or (module.endswith(".loops.fetchers") and _fetches_ahead(frame)):
            return _one_behind(loader, batches)
        frame = frame.f_back
    return batches


def is_called_by_lightning() -> bool:
    """Return whether a data fetcher of Lightning calls. After the last batch of an epoch, it resumes with the next epoch."""
    frame: FrameType | None = sys._getframe(2)
    while frame is not None and not frame.f_globals.get("__name__", "").endswith(".loops.fetchers"):
        frame = frame.f_back
    return frame is not None


def _fetches_ahead(frame: FrameType) -> bool:
    """Return whether the data fetcher of Lightning that runs in this frame fetches a batch before it yields the previous one."""
    fetcher = frame.f_locals["self"]
    has_length = (frame.f_globals["sized_len"](loader) is not None for loader in fetcher.combined_loader.flattened)
    return type(fetcher).__name__ == "_PrefetchDataFetcher" and not all(has_length)


def _one_behind(loader: Positioned, batches: Iterator[Any]) -> Generator[Any]:
    """Yield batches; the loop has received each one when the next one is read."""
    position = loader.position()
    try:
        for batch in batches:
            loader.received(position)
            position = loader.position()
            yield batch
    except GeneratorExit:
        if (close := getattr(batches, "close", None)) is not None:
            close()
        loader.received(None)
        raise
    loader.received(None)

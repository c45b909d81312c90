"""Report the position of a loop to a pipeline or loader, even if an adapter between them reads items in advance."""

from __future__ import annotations

import sys
from collections.abc import Generator, Iterator
from types import FrameType
from typing import Any, Protocol, runtime_checkable

from highway.errors import PipelineError


@runtime_checkable
class Positioned(Protocol):
    """A pipeline or loader whose ``state_dict()`` is correct even if an adapter reads its items in advance."""

    def position(self) -> Any:
        """Return the position after the last item that this object has yielded."""

    def received(self, position: Any) -> None:
        """Note that the loop has received all items before ``position``. Then ``state_dict()`` returns the state at this position.

        ``None`` means that the adapter has ended. If ``position`` is an error, ``state_dict()`` raises this error.
        """


def position_of(loader: Any) -> Any:
    """Return the position of a loader.

    For a loader that is not :class:`Positioned`, return its state, the error of its ``state_dict``, or ``None`` without ``state_dict``.
    """
    if isinstance(loader, Positioned):
        return loader.position()
    try:
        return loader.state_dict() if hasattr(loader, "state_dict") else None
    except PipelineError as error:
        return error


def received_by_caller(loader: Positioned, batches: Iterator[Any]) -> Iterator[Any]:
    """Return an iterator over the batches that reports to the loader which batches the training loop has received.

    Accelerate fetches each batch before it yields the previous batch. Lightning does the same if the length of an epoch is unknown. The
    loaders of Accelerate read the state of the loader before they fetch, so they need no report.
    """
    frame: FrameType | None = sys._getframe(2)
    is_direct = True  # whether all frames so far are __iter__ methods, for example of subclasses
    while frame is not None:
        module = frame.f_globals.get("__name__", "")
        is_direct = is_direct and frame.f_code.co_name == "__iter__"
        if is_direct and module == "accelerate.data_loader":
            return batches
        # These modules report the batches of their own loops.
        if module == "highway.adapters.device_loader" or module.startswith("torchdata."):
            return batches
        if module == "accelerate.data_loader" or (module.endswith(".loops.fetchers") and _fetches_ahead(frame)):
            return _one_behind(loader, batches)
        frame = frame.f_back
    return batches


def is_called_by_lightning() -> bool:
    """Return whether the data fetcher of Lightning is a caller.

    If a state was saved after the last batch of an epoch, Lightning resumes with the next epoch.
    """
    frame: FrameType | None = sys._getframe(2)
    while frame is not None and not frame.f_globals.get("__name__", "").endswith(".loops.fetchers"):
        frame = frame.f_back
    return frame is not None


def _fetches_ahead(frame: FrameType) -> bool:
    """Return whether the data fetcher in a frame of Lightning fetches each batch before it yields the previous batch."""
    fetcher = frame.f_locals["self"]
    has_length = (frame.f_globals["sized_len"](loader) is not None for loader in fetcher.combined_loader.flattened)
    return type(fetcher).__name__ == "_PrefetchDataFetcher" and not all(has_length)


def _one_behind(loader: Positioned, batches: Iterator[Any]) -> Generator[Any]:
    """Yield batches. A batch counts as received when the caller requests the next batch."""
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

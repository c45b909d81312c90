"""Loaders whose batches are on a device before they are asked for: what ``to_device`` of PyTorch and JAX return."""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from typing import Any, NamedTuple, Protocol, Self

from highway.adapters.positions import Positioned, position_of, received_by_caller
from highway.engine import Pipeline
from highway.engine.stage import Stage
from highway.errors import ConfigError, EndOfStream, PipelineError


class Mover(Protocol):
    """Moves batches to a device."""

    def move(self, batch: Any) -> Any:
        """Begin to move a batch, on the thread that takes batches."""

    def receive(self, moved: Any) -> Any:
        """Return a batch that was moved, on the thread of the loop."""


class _Ready(NamedTuple):
    """A batch on its device, or the end of a loop in its place, and where the loader is after it."""

    batch: Any
    position: Any
    is_end: bool = False


class DeviceLoader:
    """The batches of a loader, on a device. Each loop over it is a loop over the loader, on a thread of its own.

    ``len``, ``set_epoch``, ``state_dict`` and ``load_state_dict`` are the loader's. Its state is the one after the last batch that the
    loop has received, however many wait on the device, and whether this or the loader is asked.

    At the end of a ``with`` block, a loop that still runs is ended. The loader is not closed.

    Args:
        loader: A :class:`~highway.Pipeline`, a loader, or any iterable of batches.
        make_mover: Called at the begin of each loop.
        depth: Batches that wait on the device, at least 1.

    Attributes:
        loader: The loader.
    """

    def __init__(self, loader: Iterable[Any], make_mover: Callable[[], Mover], depth: int) -> None:
        if depth < 1:
            raise ConfigError(f"to_device: depth={depth}; expected at least 1 batch")
        self.loader, self._make_mover, self._depth = loader, make_mover, depth
        self._taken: Any = None  # the position after the last batch of the loop
        self._position: Any = None  # the one that the loader was told last
        self._is_taken_ahead = False  # by another one, which tells the loader what its loop has received
        self._loop: weakref.ref[Generator[Any]] | None = None

    def __iter__(self) -> Iterator[Any]:
        self._position = None
        loop = self._received(iter(self.loader), self._make_mover())
        self._loop = weakref.ref(loop)
        return received_by_caller(self, loop)

    def _received(self, batches: Iterator[Any], mover: Mover) -> Generator[Any]:
        """Yield what the thread has moved, and have the loader's state be the one after it."""
        self._receive(position_of(self.loader))
        ahead = Pipeline([Stage(_Moved(self.loader, batches, mover), buffer_size=self._depth, name="to_device")])
        try:
            while True:
                ready: _Ready = ahead.dequeue()
                self._receive(ready.position)
                if isinstance(ready.batch, EndOfStream):
                    raise ready.batch
                if ready.is_end:
                    break
                yield mover.receive(ready.batch)
        except GeneratorExit:
            _end(ahead, batches)
            self._receive(None)
            raise
        except BaseException:  # batches that the loop has not received may be lost: the state stays where the loop is
            _end(ahead, batches)
            raise
        ahead.stop()
        self._receive(None)

    def _receive(self, position: Any) -> None:
        self._taken = position
        if not self._is_taken_ahead:
            self._tell(position)

    def _tell(self, position: Any) -> None:
        if position is not None:
            self._position = position
        if isinstance(self.loader, Positioned):
            self.loader.received(position)

    def position(self) -> Any:
        """Return where the loader was after the last batch that was taken."""
        return position_of(self.loader) if self._taken is None else self._taken

    def received(self, position: Any) -> None:
        """Have the state be the one at a position; for adapters that take these batches ahead of a loop."""
        self._is_taken_ahead = position is not None
        self._tell(position)

    def close(self) -> None:
        """End a loop that still runs. Closing again does nothing."""
        if self._loop is not None and (loop := self._loop()) is not None:
            loop.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __len__(self) -> int:
        return len(self.loader)  # type: ignore[arg-type]  # which not every iterable has

    def set_epoch(self, epoch: int) -> None:
        """Have the next loop be this epoch."""
        self.loader.set_epoch(epoch)  # type: ignore[attr-defined]
        self._position = None

    def state_dict(self) -> Any:
        """Return where the loader was after the batch that the loop has received last.

        Raises:
            PipelineError: a stage of the loader's pipeline does not say its state.
        """
        if isinstance(self.loader, Positioned) or self._position is None:
            return self.loader.state_dict()  # type: ignore[attr-defined]
        if isinstance(self._position, PipelineError):
            raise self._position
        return self._position

    def load_state_dict(self, state: Mapping[str, Any], **options: Any) -> None:
        """Have the next loop resume from a state; ``options`` are those of the loader's own method."""
        self.loader.load_state_dict(state, **options)  # type: ignore[attr-defined]
        self._position = None


def _end(ahead: Pipeline, batches: Iterator[Any]) -> None:
    """End the thread that takes batches, and the loop over the loader."""
    ahead.stop()
    with contextlib.suppress(ValueError):  # the thread does not end, and is in it
        if (close := getattr(batches, "close", None)) is not None:
            close()


class _Moved:
    """A source of a loader's batches on a device.

    Args:
        loader: The loader, for its position.
        batches: A loop over it.
        mover: Moves them.
    """

    def __init__(self, loader: Any, batches: Iterator[Any], mover: Mover) -> None:
        self._loader, self._batches, self._mover = loader, batches, mover

    def __iter__(self) -> Iterator[_Ready]:
        batches = enumerate(self._batches)
        while True:
            try:
                number, batch = next(batches)
            except StopIteration:
                break
            except EndOfStream as error:  # there is no epoch left, which is for the loop to know
                yield _Ready(error, position_of(self._loader), True)
                return
            position = position_of(self._loader)
            try:
                moved = self._mover.move(batch)
            except Exception as error:
                error.add_note(f"highway: raised for batch {number} of the loop, on its way to the device")
                raise
            yield _Ready(moved, position)
        yield _Ready(None, position_of(self._loader), True)

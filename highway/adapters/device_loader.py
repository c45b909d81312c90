"""The loader that ``to_device`` returns for PyTorch and JAX. It moves batches to a device in advance."""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Protocol, Self

from highway.adapters.positions import Positioned, position_of, received_by_caller
from highway.engine import Pipeline
from highway.engine.stage import Stage
from highway.errors import ConfigError, EndOfStream, PipelineError


class Mover(Protocol):
    """Moves batches to a device."""

    def move(self, batch: Any) -> Any:
        """Begin to move a batch. Called on the thread that reads the batches."""

    def receive(self, moved: Any) -> Any:
        """Return the moved batch. Called on the thread that runs the loop."""


class Ready(NamedTuple):
    """A batch on its device, or the end of a loop, with the state of the loader after it.

    At the end of a loop, ``batch`` is ``None``, or the ``EndOfStream`` of a loader that has no more epochs.
    """

    batch: Any
    position: Any
    is_end: bool = False


CommonEnd = Callable[[Iterator[Ready]], Iterator[Ready]]


class DeviceLoader:
    """A loader that yields the batches of another loader on a device. Each loop runs a loop over the other loader, on a separate thread.

    ``len``, ``set_epoch``, ``state_dict`` and ``load_state_dict`` call the methods of the other loader. ``state_dict`` returns the state
    after the last batch that the loop has received. Batches that wait on the device do not count as received. If the other loader is from
    highway, its own ``state_dict`` returns the same state. Any other loader does not know which batches the loop has received.

    The end of a ``with`` block ends a running loop, but does not close the other loader.

    Args:
        loader: A :class:`~highway.Pipeline`, a loader, or any iterable of batches.
        make_mover: A function that returns a new mover. It is called at the start of each loop.
        depth: Maximum number of batches that wait on the device, at least 1.
        end: A function that takes the batches of a loop, and yields them until a rank has no more batches. ``None``: the loop yields all
            batches.

    Attributes:
        loader: The loader.
    """

    def __init__(self, loader: Iterable[Any], make_mover: Callable[[], Mover], depth: int, end: CommonEnd | None = None) -> None:
        if depth < 1:
            raise ConfigError(f"to_device: depth={depth}; expected at least 1 batch")
        self.loader, self._make_mover, self._depth, self._end = loader, make_mover, depth, end
        self._taken: Any = None  # the position after the last batch that the loop has received
        self._position: Any = None  # the last position that was reported to the loader
        # Whether another adapter reads batches of this object in advance, and reports which batch the user's loop has reached.
        self._is_taken_ahead = False
        self._loop: weakref.ref[Generator[Any]] | None = None

    def __iter__(self) -> Iterator[Any]:
        self._position = None
        loop = self._received(iter(self.loader), self._make_mover())
        self._loop = weakref.ref(loop)
        return received_by_caller(self, loop)

    def _received(self, batches: Iterator[Any], mover: Mover) -> Generator[Any]:
        """Yield the batches on the device. Before a batch is yielded, the state becomes the state after this batch."""
        self._receive(position_of(self.loader))
        ahead = Pipeline([Stage(_Moved(self.loader, batches, mover), buffer_size=self._depth, name="to_device")])
        ready_batches: Iterator[Ready] = iter(ahead.dequeue, None)
        if self._end is not None:
            ahead.hand_over.ends_together, ready_batches = True, self._end(ready_batches)
        try:
            for ready in ready_batches:
                self._receive(ready.position)
                if isinstance(ready.batch, EndOfStream):
                    raise ready.batch
                if ready.is_end:
                    break
                yield mover.receive(ready.batch)
            else:  # another rank has ended
                _stop(ahead, batches)
        except GeneratorExit:
            _stop(ahead, batches)
            self._receive(None)
            raise
        except BaseException:  # batches on the device might be lost, so the state stays at the position of the loop
            _stop(ahead, batches)
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
        """Return the position of the loader after the last batch that this object has yielded."""
        return position_of(self.loader) if self._taken is None else self._taken

    def received(self, position: Any) -> None:
        """Set the state to the state at ``position``; ``None``: to the state after the last yielded batch.

        Adapters that read batches of this object in advance call this method.
        """
        self._is_taken_ahead = position is not None
        self._tell(position)

    def close(self) -> None:
        """End a running loop. Closing again does nothing."""
        if self._loop is not None and (loop := self._loop()) is not None:
            loop.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __len__(self) -> int:
        return len(self.loader)  # type: ignore[arg-type]  # not every iterable has a length

    def set_epoch(self, epoch: int) -> None:
        """Set the epoch of the next loop."""
        self.loader.set_epoch(epoch)  # type: ignore[attr-defined]
        self._position = None

    def state_dict(self) -> Any:
        """Return the state of the loader after the last batch that the loop has received.

        Raises:
            PipelineError: a stage of the loader's pipeline does not support states.
        """
        if isinstance(self.loader, Positioned) or self._position is None:
            return self.loader.state_dict()  # type: ignore[attr-defined]
        if isinstance(self._position, PipelineError):
            raise self._position
        return self._position

    def load_state_dict(self, state: Mapping[str, Any] | Sequence[Mapping[str, Any]], **options: Any) -> None:
        """Resume the next loop from a state, or from a list with the states of all ranks. ``options`` are passed to the loader."""
        self.loader.load_state_dict(state, **options)  # type: ignore[attr-defined]
        self._position = None


def _stop(ahead: Pipeline, batches: Iterator[Any]) -> None:
    """End the thread that reads batches, and the loop over the loader."""
    ahead.stop()
    with contextlib.suppress(ValueError):  # the generator is running in the thread
        if (close := getattr(batches, "close", None)) is not None:
            close()


class _Moved:
    """A source that yields the batches of a loader on a device.

    Args:
        loader: The loader.
        batches: An iterator over the loader.
        mover: Moves the batches.
    """

    def __init__(self, loader: Any, batches: Iterator[Any], mover: Mover) -> None:
        self._loader, self._batches, self._mover = loader, batches, mover

    def __iter__(self) -> Iterator[Ready]:
        batches = enumerate(self._batches)
        while True:
            try:
                number, batch = next(batches)
            except StopIteration:
                break
            except EndOfStream as error:  # the loader has no more epochs; the loop raises this error
                yield Ready(error, position_of(self._loader), True)
                return
            position = position_of(self._loader)
            try:
                moved = self._mover.move(batch)
            except Exception as error:
                error.add_note(f"highway: raised when batch {number} of the loop was copied to the device")
                raise
            yield Ready(moved, position)
        yield Ready(None, position_of(self._loader), True)

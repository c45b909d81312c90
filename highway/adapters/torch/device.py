"""Batches on a device before they are asked for: copied from pinned memory on a stream of their own, beside the training."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import torch

from highway.adapters.torch.nested import mapped
from highway.adapters.torch.over_pipeline import tensor_of
from highway.engine import Pipeline
from highway.engine.batch import get
from highway.engine.stage import Stage
from highway.errors import ConfigError, PipelineError


class _Ready(NamedTuple):
    """A batch on its device, or the end of a loop in its place.

    Args:
        batch: The batch.
        done: Recorded behind its copy; ``None``: there is nothing to wait for.
        state: Where the loader is behind it.
        is_end: Whether there is no batch.
    """

    batch: Any
    done: Any
    state: Any
    is_end: bool = False


def to_device(
    loader: Iterable[Any],
    device: str | int | torch.device,
    depth: int = 2,
    channels_last: bool = False,
    dtype: torch.dtype | None = None,
    normalize: tuple[Sequence[float], Sequence[float]] | None = None,
    images: str | int | None = None,
) -> DeviceLoader:
    """Return a loader whose batches are on a device, ``depth`` of them before they are asked for.

    A thread copies them: to pinned memory, and from there on a CUDA stream of its own, which the training's waits for. On a CPU the
    same is done without streams. Tensors and arrays of any nesting are moved; anything else stays as it is.

    ``len``, ``set_epoch``, ``state_dict`` and ``load_state_dict`` are the loader's; the state is that behind the batch that was taken last,
    however many are on the device.

    Args:
        loader: A :class:`~highway.adapters.torch.DataLoader`, torch's own, or any iterable of batches that can be iterated again.
        device: Such as ``"cuda"``, ``"cuda:1"`` or ``"cpu"``.
        depth: Batches that wait on the device, at least 1.
        channels_last: Whether images are ``(B, C, H, W)`` in ``torch.channels_last`` memory; those that come as ``(B, H, W, C)``, with 1,
            3 or 4 channels, are without a copy.
        dtype: What images become on the device, so that uint8 crosses the bus; ``None``: as they are, or float32 with ``normalize``.
        normalize: Mean and standard deviation of each channel, for pixels from 0 to 1: uint8 is divided by 255 before.
        images: The field that holds the images, for these three: its name, or its position in a tuple. By default that of a dict which is
            called ``"image"`` or ``"images"``, so that masks ``(B, N, H, W)`` stay as they are; else all tensors of 4 axes.

    Raises:
        ConfigError: ``depth`` is below 1.
        KeyError: a batch has no such field (when it comes).
    """
    return DeviceLoader(loader, torch.device(device), depth, _Images(channels_last, dtype, normalize, images))


class DeviceLoader:
    """What :func:`to_device` returns."""

    def __init__(
        self,
        loader: Iterable[Any],
        device: torch.device,
        depth: int,
        images: _Images,
    ) -> None:
        if depth < 1:
            raise ConfigError(f"to_device: depth={depth}; expected at least 1 batch")
        self.loader, self.device, self._depth = loader, device, depth
        self._images = images
        self._state: Any = None

    def __iter__(self) -> Iterator[Any]:
        self._state = _state_of(self.loader)
        device = _numbered(self.device)
        copying = _Copying(self.loader, iter(self.loader), device, self._images)
        return self._ready(Pipeline([Stage(copying, buffer_size=self._depth, name="to_device")]), device)

    def _ready(self, pipeline: Pipeline, device: torch.device) -> Iterator[Any]:
        with pipeline:
            while True:
                ready: _Ready = pipeline.dequeue()
                self._state = ready.state
                if ready.is_end:
                    return
                yield _taken(ready, device)

    def __len__(self) -> int:
        return len(self.loader)  # type: ignore[arg-type]

    def set_epoch(self, epoch: int) -> None:
        """Have the next loop be this epoch."""
        self.loader.set_epoch(epoch)  # type: ignore[attr-defined]
        self._state = None

    def state_dict(self) -> Any:
        """Return where the loader was behind the batch that was taken last.

        Raises:
            PipelineError: a stage of the loader's pipeline does not say its state.
        """
        if isinstance(self._state, PipelineError):
            raise self._state
        return self.loader.state_dict() if self._state is None else self._state  # type: ignore[attr-defined]

    def load_state_dict(self, state: Mapping[str, Any], **how: Any) -> None:
        """Have the next loop resume from a state; ``how`` is what the loader's own method takes besides, such as ``allow_changed``."""
        self.loader.load_state_dict(state, **how)  # type: ignore[attr-defined]
        self._state = None


def _state_of(loader: Any) -> Any:
    """Return where a loader is, the error if a stage does not say it, or ``None`` if no loader would."""
    try:
        return loader.state_dict() if hasattr(loader, "state_dict") else None
    except PipelineError as error:
        return error


class _Copying:
    """A source of a loader's batches on a device.

    Args:
        loader: The loader, for its state.
        batches: A loop over it.
        device: Where to.
        images: What is done with images there.
    """

    def __init__(self, loader: Any, batches: Iterator[Any], device: torch.device, images: _Images) -> None:
        self._loader, self._batches, self._device, self._images = loader, batches, device, images

    def __iter__(self) -> Iterator[_Ready]:
        move: Callable[[Any], tuple[Any, Any]] = _OnStream(self._device, self._images) if self._device.type == "cuda" else self._moved
        for batch in self._batches:
            moved, done = move(batch)
            yield _Ready(moved, done, _state_of(self._loader))
        yield _Ready(None, None, _state_of(self._loader), True)

    def _moved(self, batch: Any) -> tuple[Any, None]:
        return self._images.changed(mapped(batch, lambda leaf: _to(tensor_of(leaf), self._device))), None


class _OnStream:
    """Copies batches to a GPU on a stream of its own, and keeps their pinned memory until that is done."""

    def __init__(self, device: torch.device, images: _Images) -> None:
        self._device, self._stream, self._images = device, torch.cuda.Stream(device), images
        self._copied: deque[tuple[Any, Any]] = deque()  # pinned batches, and the events behind their copies

    def __call__(self, batch: Any) -> tuple[Any, torch.cuda.Event]:
        with torch.cuda.device(self._device), torch.cuda.stream(self._stream):
            pinned = mapped(batch, lambda leaf: pin(tensor_of(leaf)))
            moved = self._images.changed(mapped(pinned, lambda leaf: _to(leaf, self._device)))
            done = self._stream.record_event()
        self._copied.append((pinned, done))
        while self._copied and self._copied[0][1].query():
            self._copied.popleft()
        return moved, done


def pin(leaf: Any) -> Any:
    """Return a tensor in pinned memory; anything else as it is."""
    return leaf.pin_memory() if isinstance(leaf, torch.Tensor) and leaf.device.type == "cpu" else leaf


def _to(leaf: Any, device: torch.device) -> Any:
    return leaf.to(device, non_blocking=True) if callable(getattr(leaf, "to", None)) else leaf


def _numbered(device: torch.device) -> torch.device:
    """Return a device with its number: ``"cuda"`` is the current GPU of this thread, and may be another on the thread that copies."""
    return torch.device("cuda", torch.cuda.current_device()) if device.type == "cuda" and device.index is None else device


def _taken(ready: _Ready, device: torch.device) -> Any:
    """Return a batch for the stream of this thread, which waits for its copy; its memory is used again when that has used it."""
    if ready.done is not None:
        stream = torch.cuda.current_stream(device)
        stream.wait_event(ready.done)
        mapped(ready.batch, lambda leaf: leaf.record_stream(stream) if isinstance(leaf, torch.Tensor) else None)
    return ready.batch


class _Images:
    """What is done with images on the device: tensors of 4 axes."""

    def __init__(
        self,
        channels_last: bool,
        dtype: torch.dtype | None,
        normalize: tuple[Sequence[float], Sequence[float]] | None,
        field: str | int | None,
    ) -> None:
        self._channels_last, self._dtype, self._normalize, self._field = channels_last, dtype, normalize, field
        self._made: dict[torch.device, tuple[torch.Tensor, torch.Tensor]] = {}

    def changed(self, batch: Any) -> Any:
        """Return a batch with its images changed."""
        field = self._field
        if field is None and isinstance(batch, Mapping):
            field = next((name for name in ("image", "images") if name in batch), None)
        if field is None:
            return mapped(batch, self._image)
        image = batch[field] if isinstance(batch, Mapping) and field in batch else get(batch, field)
        return mapped(batch, lambda leaf: self._image(leaf) if leaf is image else leaf)

    def _image(self, image: Any) -> Any:
        if not isinstance(image, torch.Tensor) or image.ndim != 4:
            return image
        channels_are_last = image.shape[1] not in _CHANNELS and image.shape[3] in _CHANNELS
        if self._channels_last:
            image = image.permute(0, 3, 1, 2) if channels_are_last else image.contiguous(memory_format=torch.channels_last)
            channels_are_last = False
        if self._normalize is not None:
            image = self._normalized(image, channels_are_last)
        return image if self._dtype is None else image.to(self._dtype)

    def _normalized(self, image: torch.Tensor, channels_are_last: bool) -> torch.Tensor:
        if image.device not in self._made:
            mean, std = (torch.tensor(values, dtype=torch.float32, device=image.device) for values in self._normalize or ())
            self._made[image.device] = (mean, std)
        mean, std = self._made[image.device]
        scale = 255.0 if image.dtype is torch.uint8 else 1.0
        shape = (-1,) if channels_are_last else (-1, 1, 1)
        return (image.float() - (mean * scale).view(shape)) / (std * scale).view(shape)


_CHANNELS = (1, 3, 4)

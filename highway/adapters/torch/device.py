"""Copy batches to a device in advance, while the training runs: from pinned memory, and on a separate CUDA stream."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import torch
import torch.distributed as dist

from highway.adapters.common_end import TIMEOUT, CommonEnd
from highway.adapters.device_loader import DeviceLoader
from highway.adapters.torch.common_end import ranks_of
from highway.adapters.torch.nested import mapped
from highway.adapters.torch.over_pipeline import tensor_of
from highway.engine.batch import get


def to_device(
    loader: Iterable[Any],
    device: str | int | torch.device,
    depth: int = 2,
    channels_last: bool = False,
    dtype: torch.dtype | None = None,
    normalize: tuple[Sequence[float], Sequence[float]] | None = None,
    images: str | int | None = None,
    end_together: bool | dist.ProcessGroup = False,
    end_timeout: float = TIMEOUT,
) -> DeviceLoader:
    """Return a loader that copies its batches to a device, up to ``depth`` batches in advance.

    ::

        for epoch in range(10):
            for images, labels in to_device(loader, "cuda"):
                step(images, labels)
                state = loader.state_dict()  # after this batch, even if later batches are on the device

    A separate thread copies the batches to pinned memory, and from there to the GPU on a separate CUDA stream. The CUDA stream of the
    training waits for each copy. If the device is a CPU, neither pinned memory nor streams are used. Tensors and arrays in any nesting are
    moved. Other values do not change.

    ``len``, ``set_epoch``, ``state_dict`` and ``load_state_dict`` of the returned loader call the methods of ``loader``. If ``loader`` is
    not from highway, always call ``state_dict()`` of the returned loader, because ``loader`` does not know which batches the loop has
    received.

    Args:
        loader: A :class:`~highway.Pipeline`, a :class:`~highway.adapters.torch.DataLoader`, a ``torch.utils.data.DataLoader``, or any
            iterable of batches.
        device: For example ``"cuda"``, ``"cuda:1"`` or ``"cpu"``.
        depth: Maximum number of batches that wait on the device, at least 1.
        channels_last: Whether to return images as ``(B, C, H, W)`` in the memory format ``torch.channels_last``. Images ``(B, H, W, C)``
            with 1, 3 or 4 channels are permuted without a copy.
        dtype: Dtype of images on the device. Images are transferred in their original dtype, such as uint8, and converted on the device.
            With ``None``, the dtype is float32 if ``normalize`` is given. Otherwise, it does not change.
        normalize: Means and standard deviations of the channels, for pixel values from 0 to 1. uint8 images are divided by 255 first.
        images: The name or index of the field that ``channels_last``, ``dtype`` and ``normalize`` change. By default, this is the field
            ``"image"`` or ``"images"`` of a dict. If there is no such field, they change all tensors with 4 axes. Tensors with another
            number of axes never change.
        end_together: Whether the loops of all ranks end as soon as one rank has no more batches. If a rank drops batches, a warning
            contains their number, up to 100. All ranks must run the same loops in the same order. ``True`` means all ranks of
            ``torch.distributed``. A process group means the ranks of this group.
        end_timeout: With ``end_together``, the maximum seconds that a rank waits for the other ranks before a batch. After this time, the
            rank raises an error. The error names the batch and the missing ranks. The default is 30 minutes.

    Raises:
        ConfigError: ``depth`` is below 1; ``end_timeout`` is not above 0; ``end_together`` is a group without this process; or the launcher
            started several ranks, but ``torch.distributed`` is not initialised (when a loop begins).
        KeyError: a batch does not have the field that ``images`` names (when the batch is moved).
        PipelineError: with ``end_together``, another rank has ended, raised an error, runs different loops, or does not answer within
            ``end_timeout``.

    >>> batches = Pipeline([[(np.zeros((2, 3), np.float32), np.int32([5, 7]))]])
    >>> for images, labels in to_device(batches, "cpu"):
    ...     print(images.shape, labels)
    torch.Size([2, 3]) tensor([5, 7], dtype=torch.int32)
    """
    group = None if end_together is True else end_together
    end = None if end_together is False else CommonEnd(ranks_of(group, end_timeout), end_timeout)
    return DeviceLoader(loader, partial(_mover, torch.device(device), _Images(channels_last, dtype, normalize, images)), depth, end)


class _Mover:
    def __init__(self, device: torch.device, images: _Images) -> None:
        self._device, self._images = device, images

    def move(self, batch: Any) -> Any:
        return self._images.changed(mapped(batch, lambda leaf: _to(tensor_of(leaf), self._device)))

    def receive(self, batch: Any) -> Any:
        return batch


class _MoverToGPU(_Mover):
    """Copies batches to a GPU on a separate stream, and keeps their pinned memory until each copy is done."""

    def __init__(self, device: torch.device, images: _Images) -> None:
        super().__init__(device, images)
        self._stream = torch.cuda.Stream(device)
        self._copied: deque[tuple[Any, Any]] = deque()  # pinned batches, each with the CUDA event after its copy

    def move(self, batch: Any) -> tuple[Any, torch.cuda.Event]:
        with torch.cuda.device(self._device), torch.cuda.stream(self._stream):
            pinned = mapped(batch, lambda leaf: pin(tensor_of(leaf)))
            moved = self._images.changed(mapped(pinned, lambda leaf: _to(leaf, self._device)))
            done = self._stream.record_event()
        self._copied.append((pinned, done))
        while self._copied and self._copied[0][1].query():
            self._copied.popleft()
        return moved, done

    def receive(self, moved: tuple[Any, torch.cuda.Event]) -> Any:
        """Return a batch. The stream of this thread waits for the copy. Memory of the batch is not reused before the stream has used it."""
        batch, done = moved
        stream = torch.cuda.current_stream(self._device)
        stream.wait_event(done)
        mapped(batch, lambda leaf: leaf.record_stream(stream) if isinstance(leaf, torch.Tensor) else None)
        return batch


def pin(leaf: Any) -> Any:
    """Return a copy of a tensor in pinned memory. Other values are returned unchanged."""
    return leaf.pin_memory() if isinstance(leaf, torch.Tensor) and leaf.device.type == "cpu" else leaf


def _to(leaf: Any, device: torch.device) -> Any:
    return leaf.to(device, non_blocking=True) if callable(getattr(leaf, "to", None)) else leaf


def _mover(device: torch.device, images: _Images) -> _Mover:
    return _MoverToGPU(_numbered(device), images) if device.type == "cuda" else _Mover(device, images)


def _numbered(device: torch.device) -> torch.device:
    """Return a device with its index. Without an index, ``"cuda"`` means the current GPU, which can differ between threads."""
    return torch.device("cuda", torch.cuda.current_device()) if device.index is None else device


class _Images:
    """Applies ``channels_last``, ``dtype`` and ``normalize`` to images, which are tensors with 4 axes."""

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

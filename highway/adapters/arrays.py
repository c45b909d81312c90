"""Functions for ``Connection(converters=...)`` that convert NumPy arrays to torch tensors, or torch tensors to NumPy arrays."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from highway.errors import ConfigError
from highway.extras import pip_install
from highway.parameters.location import did_you_mean

Converter = Callable[[Any], Any]


def totorch(dtype: Any = None, device: str = "cpu", transpose: bool = True) -> Converter:
    """Return a function that converts arrays to tensors, and returns other values unchanged.

    Args:
        dtype: The dtype of the tensors, or its name. ``None`` converts floats to float32, and 16-, 32- and 64-bit integers to int64, and
            keeps other dtypes.
        device: The device of the tensors.
        transpose: Whether to move the channel axis: ``(H, W, C)`` becomes ``(C, H, W)``, and ``(B, H, W, C)`` becomes ``(B, C, H, W)``. The
            last axis of an array is the channel axis if its size is 3 or 4.

    Raises:
        ConfigError: torch is not installed.

    >>> convert = totorch()
    >>> convert(np.zeros((8, 32, 32, 3), np.uint8)).shape, convert(np.int32([5, 7])).dtype
    (torch.Size([8, 3, 32, 32]), torch.int64)
    """
    try:
        import torch
    except ImportError as error:
        raise ConfigError(f"tensors need torch: {pip_install('torch')}") from error
    wanted = getattr(torch, dtype) if isinstance(dtype, str) else dtype

    def convert(value: Any) -> Any:
        if not isinstance(value, np.ndarray):
            return value
        kind = wanted
        if kind is None and value.dtype.kind == "f":
            kind = torch.float32
        elif kind is None and value.dtype.kind in "iu" and value.dtype.itemsize > 1:
            kind = torch.int64
        # torch has no read-only tensors, so read-only arrays are copied.
        array = np.array(value, order="C") if not value.flags.writeable else value
        tensor = torch.from_numpy(array.astype(np.int64) if array.dtype.kind == "u" and array.dtype.itemsize > 1 else array)
        if transpose and value.ndim in (3, 4) and value.shape[-1] in (3, 4):
            tensor = tensor.movedim(-1, -3)
        return tensor.to(device=device, dtype=kind)

    return convert


def tonumpy(dtype: Any = None, transpose: bool = True) -> Converter:
    """Return a function that converts tensors to arrays, and returns other values unchanged.

    Args:
        dtype: The dtype of the arrays. ``None`` keeps the dtype of the tensors.
        transpose: Whether to move the channel axis to the end. The first axis of an image, or the second axis of a batch, is the channel
            axis if its size is 3 or 4.

    >>> import torch
    >>> tonumpy()(torch.zeros(8, 3, 32, 32)).shape
    (8, 32, 32, 3)
    """

    def convert(value: Any) -> Any:
        if not (hasattr(value, "detach") and hasattr(value, "numpy")):
            return value
        array = value.detach().cpu().numpy()
        if transpose and array.ndim in (3, 4) and array.shape[-3] in (3, 4):
            array = np.moveaxis(array, -3, -1)
        return array if dtype is None else array.astype(dtype)

    return convert


def named(name: str, device: str | None) -> Converter:
    """Return a converter by its name: ``torch``, ``torch_cuda`` or ``numpy``.

    Args:
        name: The name.
        device: Device of the tensors. ``None``: the CPU, or the GPU for ``torch_cuda``.

    Raises:
        ConfigError: no converter has this name, or the converter needs torch and torch is not installed.
    """
    if name not in _NAMED:
        raise ConfigError(f"unknown converter '{name}'{did_you_mean(name, _NAMED)}")
    return _NAMED[name](device)


_NAMED: dict[str, Callable[[str | None], Converter]] = {
    "torch": lambda device: totorch(device=device or "cpu"),
    "torch_cuda": lambda device: totorch(device=device or "cuda"),
    "numpy": lambda device: tonumpy(),
}

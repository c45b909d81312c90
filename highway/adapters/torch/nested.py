"""Convert nested batches: dicts, lists, tuples and named tuples of tensors, arrays, numbers and texts."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, MutableMapping
from typing import Any, NamedTuple

import numpy as np
import torch


def mapped(value: Any, function: Callable[[Any], Any], whole: type | None = None) -> Any:
    """Return a copy of a nested value in which ``function(leaf)`` replaces each leaf. A value of the type ``whole`` is a leaf."""
    if type(value) is whole:
        return function(value)
    if isinstance(value, (tuple, list)):
        return _like(value, [mapped(part, function, whole) for part in value])
    if isinstance(value, Mapping):
        items = {key: mapped(part, function, whole) for key, part in value.items()}
        if type(value) is dict or not isinstance(value, MutableMapping):
            return items
        clone = copy.copy(value)
        clone.update(items)
        return clone
    return function(value)


def _like(value: Any, parts: list[Any]) -> Any:
    kind = type(value)
    if kind is list:
        return parts
    if kind is tuple:
        return tuple(parts)
    return kind(*parts) if hasattr(value, "_fields") else kind(parts)


class Array(NamedTuple):
    """An array that shares the memory of a tensor. It replaces the tensor while a batch is sent to another process."""

    array: np.ndarray


def as_arrays(batch: Any) -> Any:
    """Replace the tensors of a batch by arrays, if possible. highway sends arrays to other processes in shared memory."""
    return mapped(batch, _array_of)


def as_tensors(batch: Any) -> Any:
    """Undo :func:`as_arrays`."""
    return mapped(batch, _tensor_of, Array)


def _array_of(leaf: Any) -> Any:
    if type(leaf) is torch.Tensor and leaf.device.type == "cpu" and not leaf.requires_grad:
        try:
            return Array(leaf.numpy())
        except (TypeError, RuntimeError):  # numpy has no such dtype or layout: torch pickles it
            return leaf
    return leaf


def _tensor_of(leaf: Any) -> Any:
    if type(leaf) is not Array:
        return leaf
    return torch.from_numpy(leaf.array if leaf.array.flags.writeable else leaf.array.copy())

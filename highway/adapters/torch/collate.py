"""Collate samples as torch does, but faster if samples consist of arrays, tensors and numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch.utils.data import default_collate

from highway.engine.batch import stacked

_NUMERIC = frozenset("biufc")


def collate(samples: Sequence[Any]) -> Any:
    """Collate samples as ``torch.utils.data.default_collate`` does: types, dtypes, nesting and errors are the same as in torch.

    Arrays and tensors of equal shape are stacked without the threads of torch, so that the training can use these threads.

    Args:
        samples: At least one sample. A sample consists of tensors, arrays, numbers or texts, in any nesting of dicts, lists and tuples.

    Returns:
        Tensors with a new first axis, in the nesting of a sample. Tuples become lists, as in torch. Texts are not converted: the texts of
        all samples become a list, or a tuple if each sample is a tuple or list.

    Raises:
        RuntimeError: the samples differ in their shapes, or in their number of values.
        KeyError: a key of the first sample is missing in another sample.
        TypeError: the type of a value is not supported.

    >>> collate([(np.zeros((2, 3), np.uint8), 1), (np.ones((2, 3), np.uint8), 7)])[1]
    tensor([1, 7])
    """
    first = samples[0]
    kind = type(first)
    if len(set(map(type, samples))) > 1:
        return default_collate(samples)
    if kind is np.ndarray:
        return _stacked(samples, samples)
    if kind is torch.Tensor:
        try:
            return _stacked([sample.numpy() for sample in samples], samples)
        except (TypeError, RuntimeError):  # numpy has no such dtype, or the tensor is on a GPU or requires a gradient
            return default_collate(samples)
    if kind is dict:
        return {name: collate([sample[name] for sample in samples]) for name in first}
    if kind in (tuple, list) and len(set(map(len, samples))) == 1:
        return [collate(values) for values in zip(*samples, strict=True)]
    return default_collate(samples)


def _stacked(arrays: Sequence[np.ndarray], samples: Sequence[Any]) -> Any:
    first = arrays[0]
    shape, dtype = first.shape, first.dtype
    alike = all(array.shape == shape and array.dtype == dtype for array in arrays)
    if not alike or dtype.kind not in _NUMERIC or not dtype.isnative:
        return default_collate(samples)
    try:
        return torch.from_numpy(stacked(arrays))
    except TypeError:  # torch has no such dtype
        return default_collate(samples)

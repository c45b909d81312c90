"""Checks whether threads may read a dataset: its declaration, and its first samples."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import torch
from torch.utils.data import ConcatDataset, Subset, TensorDataset

from highway.adapters.torch.generators import GLOBAL, set_states, states_of
from highway.errors import ConfigError

_WAYS_OUT = (
    'leave out workers="threads", so that worker processes read it. If you know that threads may read it, declare '
    "__thread_safe__ = True in its class"
)


def is_declared_safe(dataset: Any) -> bool:
    """Whether a dataset is highway's own, or declares that several threads may call its ``__getitem__`` concurrently."""
    if isinstance(dataset, Subset):
        return is_declared_safe(dataset.dataset)
    if isinstance(dataset, ConcatDataset):
        return all(map(is_declared_safe, dataset.datasets))
    declared = getattr(type(dataset), "__thread_safe__", None)
    return bool(declared) if declared is not None else type(dataset).__module__.partition(".")[0] == "highway"


def check_threads(dataset: Any, num_threads: int) -> None:
    """Read the first samples of a dataset again, one at a time and by several threads at once, and compare.

    Args:
        dataset: Has ``__len__`` and ``__getitem__``.
        num_threads: Number of threads that will read it.

    Raises:
        ConfigError: the samples draw random numbers from a generator that all threads share, or differ when threads read them.
    """
    if is_declared_safe(dataset) or type(dataset) is TensorDataset:
        return
    name = type(dataset).__name__
    before, alone = states_of(GLOBAL), dict[int, Any]()
    for index in range(min(len(dataset), max(8, 2 * num_threads))):
        with contextlib.suppress(Exception):  # the loop raises it when it comes to this sample
            alone[index] = dataset[index]
    indices = list(alone)
    drawn = [which for which, old, new in zip(("torch", "NumPy", "random"), before, states_of(GLOBAL), strict=True) if old != new]
    set_states(GLOBAL, before)
    if drawn:
        raise ConfigError(
            f'DataLoader(workers="threads"): samples of {name} draw random numbers from the global generator of {" and ".join(drawn)}. '
            "All threads and your training share it, so that the numbers would depend on which thread is first. Make a generator from the "
            f"index of the sample, np.random.default_rng((seed, index)), or {_WAYS_OUT}"
        )
    barrier = threading.Barrier(num_threads)

    def read(first: int) -> list[Any]:
        barrier.wait()
        return [_read(dataset, index) for index in (*indices[first:], *indices[:first])]  # each begins at another index

    with ThreadPoolExecutor(num_threads) as pool:
        for first, samples in zip(range(num_threads), pool.map(read, [n % len(indices or [0]) for n in range(num_threads)]), strict=True):
            start = first % len(indices or [0])
            for index, sample in zip((*indices[start:], *indices[:start]), samples, strict=True):
                if not _equal(sample, alone[index]):
                    what = f"raises {sample!r} for" if isinstance(sample, Exception) else "returns another"
                    raise ConfigError(
                        f'DataLoader(workers="threads"): {name} {what} sample {index} when {num_threads} threads read it at the '
                        "same time. The sample is random, or the dataset shares something that is not thread-safe, such as an open file. "
                        f"Open one for each thread (threading.local()), or use per_worker=True, or {_WAYS_OUT}"
                    )


def _read(dataset: Any, index: int) -> Any:
    try:
        return dataset[index]
    except Exception as error:
        return error


def _equal(one: Any, other: Any) -> bool:
    if type(one) is not type(other):
        return False
    if isinstance(one, torch.Tensor):
        return (
            one.dtype == other.dtype
            and one.shape == other.shape
            and bool(torch.equal(one, other) or _same_bytes(one.numpy(), other.numpy()))
        )
    if isinstance(one, np.ndarray):
        return one.dtype == other.dtype and one.shape == other.shape and (one.dtype == object or _same_bytes(one, other))
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(_equal(one[name], other[name]) for name in one)
    if isinstance(one, Sequence) and not isinstance(one, (str, bytes)):
        return len(one) == len(other) and all(map(_equal, one, other))
    if isinstance(one, (str, bytes, bool, int, float, complex, np.generic)) or one is None:
        return bool(one == other or (one != one and other != other))
    return True  # objects that cannot be compared


def _same_bytes(one: np.ndarray, other: np.ndarray) -> bool:
    return one.tobytes() == other.tobytes()

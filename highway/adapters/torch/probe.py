"""Check whether several threads can read a dataset, by its declaration or by reading its first samples."""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from types import CodeType, FrameType
from typing import Any

import numpy as np
import torch
from torch.utils.data import ConcatDataset, Subset, TensorDataset

from highway.adapters.torch.generators import GLOBAL, set_states, states_of
from highway.errors import ConfigError

_READERS = 4  # minimum number of threads, because two threads might never run at the same time
_PAUSE = 1e-4  # seconds
_PAUSES, _PAUSES_OF_CALL = 256, 16  # maximum number of pauses of a thread: in total, and at one place in the code
_WAYS_OUT = (
    'remove workers="threads", so that worker processes read the dataset. If the dataset is thread-safe, declare '
    "__thread_safe__ = True in its class"
)


def is_declared_safe(dataset: Any) -> bool:
    """Return whether a dataset is part of highway, or declares with ``__thread_safe__`` that it is thread-safe."""
    if isinstance(dataset, Subset):
        return is_declared_safe(dataset.dataset)
    if isinstance(dataset, ConcatDataset):
        return all(map(is_declared_safe, dataset.datasets))
    declared = getattr(type(dataset), "__thread_safe__", None)
    return bool(declared) if declared is not None else type(dataset).__module__.partition(".")[0] == "highway"


def check_threads(dataset: Any, num_threads: int) -> None:
    """Read the first samples of a dataset twice: by one thread, and by several threads at once. Compare the results.

    Args:
        dataset: An object with ``__len__`` and ``__getitem__``.
        num_threads: Number of threads that will read the dataset.

    Raises:
        ConfigError: a sample draws random numbers from a global generator, which all threads share; or the two results differ.
    """
    if is_declared_safe(dataset) or type(dataset) is TensorDataset:
        return
    name = type(dataset).__name__
    before, alone = states_of(GLOBAL), dict[int, Any]()
    for index in range(min(len(dataset), max(8, 2 * num_threads))):
        with contextlib.suppress(Exception):  # the loop will raise this error when it reads the sample
            alone[index] = dataset[index]
    indices = list(alone)
    drawn = [which for which, old, new in zip(("torch", "NumPy", "random"), before, states_of(GLOBAL), strict=True) if old != new]
    set_states(GLOBAL, before)
    if drawn:
        raise ConfigError(
            f'DataLoader(workers="threads"): samples of {name} draw random numbers from the global generator of {" and ".join(drawn)}. '
            "All threads and your training share this generator, so the numbers would depend on the timing of the threads. In __getitem__, "
            f"create a generator from the index, np.random.default_rng((seed, index)), or {_WAYS_OUT}"
        )
    readers = 1 if num_threads == 1 else max(_READERS, num_threads)
    barrier = threading.Barrier(readers)

    def difference(number: int) -> str | None:
        with contextlib.suppress(threading.BrokenBarrierError):  # the machine cannot start more threads
            barrier.wait(1)
        pause, first = _pauses(), number % max(1, len(indices))  # each thread begins at a different index
        for index in (*indices[first:], *indices[:first]):
            sample = _read(dataset, index, pause)
            if not _equal(sample, alone[index]):
                what = f"raises {sample!r}" if isinstance(sample, Exception) else "returns different values"
                return f"{what} for sample {index}"
        return None

    with ThreadPoolExecutor(readers) as pool:
        found = next(filter(None, list(pool.map(difference, range(readers)))), None)
    if found is not None:
        raise ConfigError(
            f'DataLoader(workers="threads"): {name} {found} when {readers} threads read it at the same time. The sample is random, or the '
            "dataset contains an object that is not thread-safe, such as an open file. Create such an object for each thread "
            f"(threading.local()), or use per_worker=True, or {_WAYS_OUT}"
        )


def _pauses() -> Callable[[FrameType, str, Any], None]:
    """Return a profile function that pauses the thread before and after calls. Other threads can then run between any two calls."""
    counts, left = Counter[tuple[CodeType, int]](), iter(range(_PAUSES))

    def pause(frame: FrameType, _event: str, _argument: Any) -> None:
        place = frame.f_code, frame.f_lasti
        if counts[place] < _PAUSES_OF_CALL and next(left, None) is not None:
            counts[place] += 1
            time.sleep(_PAUSE)

    return pause


def _read(dataset: Any, index: int, pause: Callable[[FrameType, str, Any], None]) -> Any:
    before = sys.getprofile()
    sys.setprofile(pause)
    try:
        return dataset[index]
    except Exception as error:
        return error
    finally:
        sys.setprofile(before)


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

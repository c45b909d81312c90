"""The cost of each sample of a dataset: its pixels, its tokens, or numbers from the user."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from highway.datasets.dataset import Dataset, described, length_of, locate, read_several, several_of
from highway.datasets.index.file import Group, load_index, save_index
from highway.datasets.parts import Joined
from highway.engine.cancel import check_cancelled
from highway.engine.component import fingerprint_of
from highway.errors import ConfigError, ImageError
from highway.images.header import read_header
from highway.parameters.location import show
from highway.reading.images import image_and_label
from highway.stores.unchanging import FileState

_VERSION = "costs 1"
_AT_ONCE = 256  # samples that a thread reads in one task
_THREADS = 16  # more threads than cores, because reading a header is mostly waiting for the disk
_HEAD = 1 << 16  # bytes to read from the start of a file: the headers of nearly all images are shorter
_TOKENS = ("input_ids", "tokens")


def costs_of(dataset: Dataset, cost: Any) -> np.ndarray:
    """Return the cost of each sample, float64 ``(N,)``.

    Args:
        dataset: The dataset.
        cost: ``"pixels"``, ``"tokens"``, one number per sample, or a function that receives the dataset and returns one number per sample.

    Raises:
        ConfigError: the costs are not one finite number of at least 0 for each sample. The message names the first sample that is wrong.
    """
    name = f"Deal: cost={cost!r}" if isinstance(cost, str) else "Deal: cost"
    if isinstance(cost, str):
        found = _of_kind(dataset, cost)
    else:
        found = cost(dataset) if callable(cost) else cost
    total = length_of(dataset)
    try:
        costs = np.asarray(found, np.float64)
    except (TypeError, ValueError) as error:
        raise ConfigError(f"{name} returned {show(found)}; expected one number for each of {total} samples") from error
    if costs.shape != (total,):
        raise ConfigError(
            f"{name} returned an array of shape {costs.shape} for {described(dataset)}; expected one number for each of {total} samples"
        )
    if (wrong := np.flatnonzero(~(np.isfinite(costs) & (costs >= 0)))).size:
        number = int(wrong[0])
        raise ConfigError(
            f"{name} of {locate(dataset, number)} is {costs[number]} ({len(wrong)} of {total} are negative or not finite); expected a "
            "number of at least 0: correct the function or the list, or use the mean cost for such samples"
        )
    return costs


def _of_kind(dataset: Dataset, kind: str) -> np.ndarray:
    """Return the costs from the dataset or from a saved index. If neither has the costs, read all samples."""
    if isinstance(dataset, Joined):
        return np.concatenate([costs_of(part, kind) for part in dataset.datasets])
    own = getattr(dataset, "costs", None)
    if callable(own) and (known := own(kind)) is not None:
        return np.asarray(known)
    kept_at = getattr(dataset, "kept_at", None)
    place = kept_at(kind) if callable(kept_at) else None
    if place is None:
        return _measured(dataset, kind)
    fingerprint = fingerprint_of(dataset)
    version = f"{_VERSION} {fingerprint() if fingerprint else length_of(dataset)}"

    def measured(kind: str) -> Group:
        return Group.of(FileState(0, 0), [_measured(dataset, kind)])  # the version contains the states of the files

    index = load_index(place, version, measured)
    if index is not None and kind in index:
        return index[kind].arrays[0]
    costs = measured(kind)
    save_index(place, version, {kind: costs})
    return costs.arrays[0]


def _measured(dataset: Dataset, kind: str) -> np.ndarray:
    """Return the costs of all samples. An image with a damaged header gets the mean cost of the other images."""
    total, measure = length_of(dataset), _MEASURES[kind]
    method = several_of(dataset, "__getfiles__" if kind == "pixels" else "__getitems__")

    def some(begin: int) -> list[float]:
        numbers = range(begin, min(begin + _AT_ONCE, total))
        samples = map(dataset.__getitem__, numbers) if method is None else read_several(dataset, method, numbers)
        return [_measured_sample(dataset, number, sample, measure) for number, sample in zip(numbers, samples, strict=True)]

    def groups() -> Iterator[list[float]]:
        with ThreadPoolExecutor(_THREADS, "highway costs") as threads:
            for first in range(0, total, _AT_ONCE * _THREADS):
                check_cancelled()
                yield from threads.map(some, range(first, min(first + _AT_ONCE * _THREADS, total), _AT_ONCE))

    costs = np.concatenate(list(groups()))
    damaged = np.isnan(costs)
    costs[damaged] = 0.0 if damaged.all() else costs[~damaged].mean()
    return costs


def _measured_sample(dataset: Dataset, number: int, sample: Any, measure: Callable[[Any], float]) -> float:
    try:
        return measure(sample)
    except ImageError:
        return np.nan
    except Exception as error:
        error.add_note(f"highway: the error was raised for {locate(dataset, number)}, whose cost deal= needs")
        raise


def _pixels(sample: Any) -> float:
    """Return the number of pixels of an image, from its header. If the sample is a string, it is the path of the image file."""
    if isinstance(sample, str):
        with open(sample, "rb") as file:
            try:
                return _pixels(file.read(_HEAD))
            except ImageError:  # the header can be longer than the first bytes
                file.seek(0)
                return _pixels(file.read())
    height, width = read_header(bytes(image_and_label(sample, False)[0])).size
    return height * width


def _tokens(sample: Any) -> float:
    if isinstance(sample, dict):
        values = [sample[name] for name in _TOKENS if name in sample][:1] or list(sample.values())
    else:
        values = list(sample) if isinstance(sample, (tuple, list)) else [sample]
    sequences = [value for value in values if isinstance(value, list) or getattr(value, "ndim", 0) > 0]
    if not sequences and isinstance(sample, list):
        sequences = [sample]
    if len(sequences) != 1:
        names = ", ".join(map(repr, sample)) if isinstance(sample, dict) else type(sample).__name__
        raise ConfigError(
            f"Deal: cost='tokens': a sample with {names} has {len(sequences)} sequences; expected a field input_ids or tokens, or exactly "
            "one sequence; or pass a function, cost=lambda dataset: [len(sample[...]) for sample in dataset]"
        )
    return len(sequences[0])


_MEASURES: dict[str, Callable[[Any], float]] = {"pixels": _pixels, "tokens": _tokens}

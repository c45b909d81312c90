"""A hash of each stage, by which a state knows the pipeline that it belongs to: its class, parameters, and what it reads."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from highway.engine.component import Traits, name_of, written
from highway.engine.stage import Stage
from highway.engine.workers import StageWorkers

_CHANGES_NO_ITEM = ("epochs", "budget", "buffer_size", "num_workers", "num_processes", "rank", "world_size")  # parameters
_ENTRIES = 64  # of a list or an array that are looked at, from the first to the last
_LETTERS = 4096  # of a text


def identities(workers: Sequence[StageWorkers]) -> dict[str, str]:
    """Return a hash of each stage, by the stage's name; it changes with the component's parameters and what it reads."""
    return {worker.stage.name: hashlib.blake2b(_stage(worker).encode(), digest_size=6).hexdigest() for worker in workers}


def _stage(worker: StageWorkers) -> str:
    own = worker.traits.identity
    return f"{_described(written(worker.stage.op))} {own() if own is not None else ''}"


def _described(value: Any, entries: int = _ENTRIES) -> str:
    """Return a text that changes with a value, in a time that does not hang on its size: of a list, so many ``entries`` are looked at."""
    kind = type(value).__qualname__  # not its module: that of a script has other names in a child process, or where it is imported
    if value is None or isinstance(value, (int, float, range, np.dtype)):
        return repr(value)
    if isinstance(value, (str, bytes)):
        return f"{len(value)} {value[:: len(value) // _LETTERS + 1]!r} {value[-1:]!r}"
    if isinstance(value, (np.generic, np.ndarray)):
        array = np.asarray(value)
        sample = array.flat[_spread(array.size, _ENTRIES)]
        return f"{array.dtype} {array.shape} {_described(sample.tolist()) if array.dtype.hasobject else sample.tobytes().hex()}"
    if isinstance(value, (list, tuple)):
        own: Any = list if isinstance(value, list) else tuple  # a class that is derived from it may fail, as datasets may
        parts = [_described(own.__getitem__(value, place), entries // 8) for place in _spread(own.__len__(value), entries)]
        return f"{kind} of {own.__len__(value)}: {', '.join(parts)}"
    if isinstance(value, Mapping):
        return f"{kind} {_described(list(value.items()), entries)}"
    if isinstance(value, Stage):
        return f"{value.name} {_described(written(value.op))}"
    traits = Traits.of(value)
    if traits.stamped is not None:  # it is a pipeline
        return f"{value.seed} {[_described(stage) for stage in value.stages]}"
    if traits.fingerprint is not None:
        return traits.fingerprint()
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        names = [field.name for field in dataclasses.fields(value) if field.init and field.name not in _CHANGES_NO_ITEM]
        return f"{kind}: {', '.join(f'{name}={_described(getattr(value, name))}' for name in names)}"
    return f"{kind} {name_of(value)}"


def _spread(length: int, count: int) -> list[int]:
    """Return at most ``count`` places of so many, the first and the last among them."""
    places: list[int] = np.linspace(0, length - 1, min(length, max(count, 2)), dtype=int).tolist()
    return places

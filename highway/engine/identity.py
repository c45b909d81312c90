"""A hash of each stage, by which a state knows the pipeline that it belongs to: its class, parameters, and what it reads."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Any

import numpy as np

from highway.engine.component import Traits, name_of, written
from highway.engine.workers import StageWorkers

_CHANGES_NO_ITEM = ("epochs", "budget", "buffer_size", "num_workers", "num_processes", "rank", "world_size")  # parameters


def identities(workers: Sequence[StageWorkers]) -> dict[str, str]:
    """Return a hash of each stage, by the stage's name; it changes with the component's parameters and what it reads."""
    return {worker.stage.name: hashlib.blake2b(_stage(worker).encode(), digest_size=6).hexdigest() for worker in workers}


def _stage(worker: StageWorkers) -> str:
    own = worker.traits.identity
    return f"{_described(written(worker.stage.op))} {own() if own is not None else ''}"


def _described(value: Any) -> str:
    kind = f"{type(value).__module__}.{type(value).__qualname__}"
    if value is None or isinstance(value, (str, bytes, int, float, range, np.generic, np.dtype)):
        return repr(value)
    if isinstance(value, (list, tuple)):
        return f"{kind} of {len(value)}: {', '.join(map(_described, islice(value, 16)))}"
    if isinstance(value, Mapping):
        return f"{kind}: {', '.join(f'{key}: {_described(part)}' for key, part in value.items())}"
    if isinstance(value, np.ndarray):
        return f"{value.dtype} {value.shape}"
    if (own := Traits.of(value).fingerprint) is not None:
        return own()
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        parts = [field.name for field in dataclasses.fields(value) if field.init and field.name not in _CHANGES_NO_ITEM]
        return f"{kind}: {', '.join(f'{name}={_described(getattr(value, name))}' for name in parts)}"
    return f"{kind} {name_of(value)}"

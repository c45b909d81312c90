"""What made the items of a pipeline, in a few letters: other files or other parameters give other letters."""

from __future__ import annotations

import dataclasses
import enum
import hashlib
import os
import types
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple, cast

import numpy as np

from highway.datasets.dataset import keys_of
from highway.datasets.file import FileState
from highway.datasets.mixing.mixed import Parts, opened_parts
from highway.datasets.tar_stream import has_ranges
from highway.engine import Pipeline
from highway.engine.cancel import check_cancelled
from highway.engine.component import Traits, hangs_on_seed, written
from highway.engine.stage import Stage, unique
from highway.errors import ConfigError, HighwayError
from highway.images.decode import backend
from highway.images.ops import cv2_or_none
from highway.modules.caching.function_code import code_texts, is_users, methods, name_and_version, referred
from highway.modules.webdataset import WebDatasetSource
from highway.process.ranks import rank_and_world_size
from highway.reading.loader import samples_of_epoch
from highway.reading.plan import ReaderLike
from highway.reading.sampling import Sampling
from highway.stores.file import states_of
from highway.stores.url import is_url

_HOW = ("epochs", "num_workers")  # parameters that say how often or how fast, not what


def fingerprint(components: Sequence[Any], seed: int = 0) -> str:
    """Return what made the items that come out of a source and the stages after it, as 32 hexadecimal digits.

    Readers are known by their parameters, and the names, sizes and times of their files; functions by their code, as far as that can be
    seen (:mod:`highway.modules.caching.function_code`); maps and streams that are dataclasses by their parameters and the code of their
    methods; others by their method ``fingerprint()`` (:class:`~highway.engine.component.Traits`). The decoder and
    highway's version count: pixels differ between them. So do the pipeline's seed and the name of a stage that draws random numbers
    (:func:`chance`).

    Args:
        components: The stages, or bare components, in their order.
        seed: The pipeline's.

    Raises:
        ConfigError: one of the components cannot be known in this way.
    """
    stages = unique([component if isinstance(component, Stage) else Stage(component) for component in components])
    made = (name_and_version(HighwayError), backend(), cv2_or_none() is not None, chance(stages, seed))
    digest = hashlib.blake2b(repr(made).encode(), digest_size=16)
    for position, stage in enumerate(stages):
        op = written(stage.op)
        if position == 0 and not isinstance(op, (Sampling, WebDatasetSource)) and Traits.of(op).fingerprint is None:
            raise _unknown(stage.op)
        if position and op is written(stages[0].op):  # its files are known already
            continue
        for part in _Parts(seed % 2**63).of(stage.op):
            digest.update(part.encode() + b"\0")
    return digest.hexdigest()


def chance(stages: Sequence[Stage], seed: int) -> str:
    """Return what the random numbers of stages hang on, the seed and their names; nothing if none of them draws any."""
    drawing = [stage.label for stage in stages if hangs_on_seed(stage.op)]
    return f"seed {seed}: {', '.join(drawing)}" if drawing else ""


class Share(NamedTuple):
    """Which part of the samples the readers of a rank read."""

    rank: int
    world_size: int

    @property
    def name(self) -> str:
        """What it is called; nothing if it is the whole."""
        return f"rank-{self.rank}-of-{self.world_size}" if self.world_size > 1 else ""


def share_of(components: Sequence[Stage]) -> Share:
    """Return which part of the samples comes out of a source: that of the first of its readers that has not all."""
    shares = [Share(*rank_and_world_size(reader.rank, reader.world_size)) for stage in components[:1] for reader in _readers(stage.op)]
    return next((share for share in shares if share.world_size > 1), Share(0, 1))


def _readers(value: Any) -> Iterator[Sampling]:
    """Yield the readers that a component is or is made of."""
    op = written(value.op if isinstance(value, Stage) else value)
    if isinstance(op, Sampling):
        yield op
        return
    parts: list[Any] = [op.stages] if isinstance(op, Pipeline) else []
    if dataclasses.is_dataclass(op) and not isinstance(op, type):
        parts = [getattr(op, field.name, None) for field in dataclasses.fields(op)]
    for part in parts:
        for one in part if isinstance(part, (list, tuple)) else [part]:
            if one is not None:
                yield from _readers(one)


def samples_of(components: Sequence[Stage]) -> int | None:
    """Return how many samples the first epoch of a reader has, or ``None`` where only reading tells."""
    reader = written(components[0].op) if components else None
    return samples_of_epoch(cast(ReaderLike, reader)) if isinstance(reader, Sampling) else None


def has_unique_keys(components: Sequence[Stage]) -> bool:
    """Say whether no two samples of an epoch have the same key, if all can be read; known of batches of a reader only."""
    reader = cast(ReaderLike, written(components[0].op) if components else None)
    dataset = reader.open() if isinstance(reader, Sampling) and reader.batch_size else None
    keys = keys_of(dataset) if dataset is not None and not isinstance(dataset, Parts) else None  # a mix may have a sample twice
    return keys is not None and len(set(keys)) == len(keys)


def _states(urls: Sequence[str]) -> Iterator[str]:
    """Yield what shards are now; what a command will give cannot be known."""
    stored = dict(states_of([(url, url) for url in urls if is_url(url) and has_ranges(url)]))
    for url in urls:
        check_cancelled()
        yield f"{url!r} {stored.get(url) or (FileState.of(url) if os.path.exists(url) else None)}"


class _Parts:
    """Finds what values consist of, as texts; each function and class once.

    Args:
        seed: What those draw by that have no seed of their own.
    """

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._seen: set[int] = set()

    def of(self, value: Any) -> Iterator[str]:
        """Yield all that a value consists of.

        Raises:
            ConfigError: it cannot be known.
        """
        kind = f"{type(value).__module__}.{type(value).__qualname__}"
        if value is None or isinstance(value, (str, bytes, int, float, complex, enum.Enum, range, np.dtype, np.generic, os.PathLike)):
            yield f"{kind} {value!r}"
        elif (own := Traits.of(value).fingerprint) is not None:
            yield f"{kind} {own()}"
        elif dataclasses.is_dataclass(value) and not isinstance(value, type):
            yield from self._dataclass(value)
        elif isinstance(value, np.ndarray) and value.dtype != object:
            yield f"{value.dtype} {value.shape} {hashlib.blake2b(value.tobytes()).hexdigest()}"
        elif isinstance(value, (list, tuple)):
            yield f"{kind} {len(value)}"
            for part in value:
                yield from self.of(part)
        elif isinstance(value, dict):
            yield f"{kind} {len(value)}"
            for pair in value.items():
                yield from self.of(pair)
        elif isinstance(value, (set, frozenset)):
            yield f"{kind} {len(value)} {sorted(map(repr, value))}"
        elif isinstance(value, partial):
            yield from self.of((value.func, value.args, value.keywords))
        elif isinstance(value, types.MethodType):
            yield from self.of((value.__self__, value.__func__))
        elif callable(value) and isinstance(getattr(value, "__qualname__", getattr(value, "__name__", None)), str):
            yield from self._code(value)
        else:
            raise _unknown(value)

    def _dataclass(self, value: Any) -> Iterator[str]:
        yield from self._code(type(value))
        for field in dataclasses.fields(value):
            if field.init and field.name not in _HOW:
                yield field.name
                found = getattr(value, field.name)
                yield from self.of(self._seed if field.name == "seed" and found is None else found)
        if isinstance(value, Sampling):
            yield repr(rank_and_world_size(value.rank, value.world_size))
            dataset = cast(ReaderLike, value).open()
            if all(dataset is not opened_parts(getattr(value, field.name)) for field in dataclasses.fields(value)):
                yield from self.of(dataset)
        elif isinstance(value, WebDatasetSource):
            yield from _states(value.shards)

    def _code(self, value: Any) -> Iterator[str]:
        """Yield what a function or class does."""
        yield name_and_version(value)
        if id(value) in self._seen or not is_users(value):
            return
        self._seen.add(id(value))
        if isinstance(value, type):
            for name, method in methods(value):
                yield name
                yield from self._code(method)
        elif isinstance(value, types.FunctionType):
            yield from code_texts(value.__code__)
            for name, found in referred(value):
                yield name
                yield from self._referred(found)

    def _referred(self, value: Any) -> Iterator[str]:
        """Yield what a value is that code refers to; of what cannot be known, or is kept there while it runs, the type."""
        if isinstance(value, types.ModuleType):
            yield name_and_version(value)
            return
        try:
            parts = [] if isinstance(value, dict) and type(value) is not dict else list(self.of(value))  # a Counter, a defaultdict
        except (ConfigError, RecursionError):
            parts = []
        yield from parts or [f"{type(value).__module__}.{type(value).__qualname__}"]


def _unknown(value: Any) -> ConfigError:
    return ConfigError(
        f"Cache: it cannot be seen whether {value!r} still makes the same items: give Cache(key=...) a text that you change when it does, "
        "or give the component a method fingerprint() that returns one"
    )

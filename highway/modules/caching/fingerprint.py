"""Compute the key of a cache. The key changes if the files, parameters or code of the stages before the cache change."""

from __future__ import annotations

import dataclasses
import hashlib
import logging
import os
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import highway
from highway.datasets.tar_stream import has_ranges
from highway.engine import Pipeline
from highway.engine.cancel import check_cancelled
from highway.engine.component import Traits, fingerprint_of, hangs_on_seed, written
from highway.engine.hashing import Hasher, UnknownValueError
from highway.engine.stage import Stage, unique
from highway.errors import ConfigError
from highway.images.decode import backend
from highway.images.ops import cv2_or_none
from highway.modules.webdataset import WebDatasetSource
from highway.process.ranks import rank_and_world_size
from highway.reading.loader import samples_of_epoch
from highway.reading.sampling import Sampling
from highway.stores.file import states_of
from highway.stores.unchanging import FileState
from highway.stores.url import is_url

log = logging.getLogger("highway")


def fingerprint(components: Sequence[Any], seed: int = 0) -> str:
    """Return the fingerprint of a source and the stages after it, as 32 hexadecimal digits.

    The fingerprint includes the parameters and code of each component (:mod:`highway.engine.hashing`), or the ``fingerprint`` that the
    component declares (:class:`~highway.engine.component.Traits`). For a reader, it also includes the names, sizes and times of the files,
    the rank and the number of ranks. The fingerprint includes the image decoder and the version of highway, because different decoders and
    versions can return different pixels. If stages draw random numbers, it also includes the seed of the pipeline and the names of these
    stages (:func:`chance`).

    Some values cannot be hashed, and maps can change values while they run. The fingerprint cannot detect changes of these values, so a
    warning names them.

    Args:
        components: The stages or components, in order.
        seed: The seed of the pipeline.

    Raises:
        ConfigError: the source is neither a reader nor a :class:`WebDatasetSource`, and has no ``fingerprint``; or a parameter of a
            component cannot be hashed.
    """
    stages = unique([component if isinstance(component, Stage) else Stage(component) for component in components])
    made = (getattr(highway, "__version__", ""), backend(), cv2_or_none() is not None, chance(stages, seed))
    digest = hashlib.blake2b(repr(made).encode(), digest_size=16)
    hasher = Hasher(strict=True, seed=seed % 2**63)
    known: list[Any] = []
    unseen: list[str] = []
    for position, stage in enumerate(stages):
        op = stage.layers[-1]
        if position == 0 and not isinstance(op, (Sampling, WebDatasetSource)) and (Traits.of(op).fingerprint or fingerprint_of(op)) is None:
            raise _unknown(stage.op)
        if any(op is other for other in known):  # one reader can consist of several stages
            continue
        known.append(op)
        try:
            parts = [(name, part) for name, part in hasher.parameters(op)]
        except UnknownValueError as error:
            raise _unknown(stage.op, f"{error} in ") from None
        for name, part in parts:
            digest.update(f"{name} ".encode() + part.values + b" " + part.code + b"\0")
        unseen += [*hasher.unseen, *(name for name, _ in hasher.changing)]
        for say in hasher.data:
            digest.update(say().encode() + b"\0")
        hasher.data, hasher.unseen = [], []
        if isinstance(op, Sampling):
            digest.update(repr(rank_and_world_size(op.rank, op.world_size)).encode())
            own = fingerprint_of(op.open())
            digest.update(own().encode() if own is not None else b"")
        elif isinstance(op, WebDatasetSource):
            digest.update(" ".join(_states(op.shards)).encode())
    if unseen:
        log.warning(
            "Cache: maps before the cache refer to %s, whose changes the cache cannot detect; pass a text as Cache(key=...) and change it "
            "together with them, otherwise the cache will serve old items",
            ", ".join(dict.fromkeys(unseen)),
        )
    return digest.hexdigest()


def chance(stages: Sequence[Stage], seed: int) -> str:
    """Return a text with the seed and the names of the stages that draw random numbers, or an empty text if there are none."""
    drawing = [stage.label for stage in stages if hangs_on_seed(stage.op)]
    return f"seed {seed}: {', '.join(drawing)}" if drawing else ""


class Share(NamedTuple):
    """The rank and world size of a reader. They determine which samples the reader reads."""

    rank: int
    world_size: int

    @property
    def name(self) -> str:
        """The name of the subfolder for the rank. Empty if there is only one rank."""
        return f"rank-{self.rank}-of-{self.world_size}" if self.world_size > 1 else ""


def share_of(components: Sequence[Stage]) -> Share:
    """Return the rank and world size of the first reader in the source that has several ranks.

    If there is no such reader, return rank 0 of 1.
    """
    shares = [Share(*rank_and_world_size(reader.rank, reader.world_size)) for stage in components[:1] for reader in _readers(stage.op)]
    return next((share for share in shares if share.world_size > 1), Share(0, 1))


def _readers(value: Any) -> Iterator[Sampling]:
    """Yield the readers that a component contains, or the component itself if it is a reader."""
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
    """Return the number of samples in the first epoch. ``None`` if the first stage is not a reader, or the number is unknown."""
    reader = components[0].layers[-1] if components else None
    return samples_of_epoch(reader) if isinstance(reader, Sampling) else None


def _states(urls: Sequence[str]) -> Iterator[str]:
    """Yield a text for each shard. If a shard changes, its text changes. The text of a command (``pipe:``) never changes."""
    stored = dict(states_of([(url, url) for url in urls if is_url(url) and has_ranges(url)]))
    for url in urls:
        check_cancelled()
        yield f"{url!r} {stored.get(url) or (FileState.of(url) if os.path.exists(url) else None)}"


def _unknown(value: Any, part: str = "") -> ConfigError:
    return ConfigError(
        f"Cache: the cache cannot detect whether {part}{value!r} still makes the same items: pass a text as Cache(key=...) and change it "
        "when the items change, or define a method fingerprint() of the component that returns such a text"
    )

"""The parameters of ``Cache``, for the modules that implement it."""

from __future__ import annotations

from typing import Protocol

from highway.engine.component import Makes


class CacheOptions(Protocol):
    """The parameters of :class:`~highway.modules.cache.Cache`."""

    path: str | None
    budget: int | None
    batch_size: int | None
    stack: bool
    shuffle: bool
    seed: int | None
    epochs: int | None
    key: str
    batched: bool | None

    @property
    def takes(self) -> Makes | None:
        """The type of the inputs; ``None`` if no parameter defines it."""

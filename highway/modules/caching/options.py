"""The parameters of ``Cache``, for the modules that implement it."""

# No annotations from __future__: Cache inherits these hints, and would evaluate strings in the wrong module.
from dataclasses import dataclass
from typing import Annotated

from highway.engine.component import Makes
from highway.parameters.ranges import ENDS, Count, Predicate, Seed
from highway.stores.url import is_url


def _is_folder(path: str) -> bool:
    return bool(path) and not is_url(path)


@dataclass
class CacheOptions:
    """The parameters of :class:`~highway.modules.cache.Cache`, which documents them."""

    path: Annotated[str | None, Predicate(_is_folder, "a folder on this machine, or None to keep the cache in memory")] = None
    budget: Count | None = None
    batch_size: Count | None = None
    stack: bool = True
    shuffle: bool = True
    seed: Seed | None = None
    epochs: Annotated[Count | None, ENDS] = None
    key: str = ""
    batched: bool | None = None

    @property
    def takes(self) -> Makes | None:
        """The type of the inputs; ``None`` if no parameter defines it."""
        if self.batched is None and self.batch_size is None:
            return None
        return "batches" if self.batched else "samples"

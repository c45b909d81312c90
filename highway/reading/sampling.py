"""Base classes of readers."""

# No annotations from __future__: components in other modules inherit these hints, and would evaluate strings in the wrong module.
from dataclasses import dataclass
from typing import Any, ClassVar

from highway.engine.component import Traits
from highway.errors import ConfigError
from highway.parameters.checks import require
from highway.parameters.ranges import Count
from highway.process.ranks import rank_and_world_size
from highway.reading.loader import stages_of
from highway.reading.options import ReaderOptions


@dataclass
class Sampling(ReaderOptions):
    """Base class of readers."""

    def __highway__(self) -> Traits:
        return Traits(draws=self.draws)

    def stages(self) -> list[Any]:
        return stages_of(self)


@dataclass
class Batching(Sampling):
    """The size of batches. Base class of readers that yield batches, with a parameter ``batch_size``.

    Args:
        global_batch_size: Number of samples of all ranks in one step. Pass either this number or ``batch_size``. Each rank gets an equal
            part. If a run resumes on a different number of ranks, the global batch stays the same.
    """

    global_batch_size: Count | None = None

    yields_samples: ClassVar[bool] = True  # whether the reader yields single samples if it has no batch size

    def __post_init__(self) -> None:
        require(
            self.global_batch_size is None or self._own_size is None,
            self,
            "global_batch_size",
            f"None, because batch_size={self._own_size} is set",
        )
        require(self.has_size or self.yields_samples, self, "batch_size", "a number of samples, or a global_batch_size")

    @property
    def _own_size(self) -> int | None:
        size: int | None = getattr(self, "batch_size", None)
        return size

    @property
    def has_size(self) -> bool:
        """Whether the reader yields batches."""
        return self._own_size is not None or self.global_batch_size is not None

    @property
    def rows(self) -> int | None:
        return self._own_size if self.global_batch_size is None else self.rows_on(rank_and_world_size(self.rank, self.world_size)[1])

    def rows_on(self, world_size: int) -> int | None:
        if self.global_batch_size is None:
            return self._own_size
        size, rest = divmod(self.global_batch_size, world_size)
        if rest:
            raise ConfigError(
                f"{type(self).__name__}: {world_size} ranks cannot share global_batch_size={self.global_batch_size} evenly; expected a "
                f"multiple of {world_size}, such as {(size + 1) * world_size}, or another number of ranks"
            )
        return size

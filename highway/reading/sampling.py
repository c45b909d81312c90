"""The order of samples and the ranks: the parameters that readers share."""

# No annotations from __future__: components in other modules inherit these hints, and would evaluate strings in the wrong module.
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, cast

from highway.datasets.dataset import Dataset
from highway.engine.component import Traits
from highway.errors import ConfigError
from highway.parameters.checks import require
from highway.parameters.ranges import HOW, RANK, Count, Range, Seed
from highway.process.ranks import rank_and_world_size
from highway.reading.batch_formats import BatchFormat, Stacked
from highway.reading.deal import Deal
from highway.reading.loader import stages_of
from highway.reading.plan import ReaderLike
from highway.reading.sampler import OnUneven, Shuffle


@dataclass
class Sampling:
    """The order of samples and the ranks. Base class of readers with these parameters.

    Args:
        shuffle: ``True`` shuffles all samples in each epoch. ``False`` keeps the order of the dataset. ``"blocks"`` shuffles blocks of
            samples that are cheap to read together (row groups, chunks, shards). Then it shuffles the samples within windows, which are
            parts of the resulting order.
        seed: Seed of the orders, at least 0. ``None``: the pipeline's seed.
        drop_last: Whether to drop the last batch of an epoch if it is smaller than the other batches.
        num_workers: Number of threads that read. ``Stage(reader, num_workers=...)`` overrides it. ``None``: the number of available cores.
        window: With ``"blocks"``, the number of samples in a window. ``None``: the number of samples in 16 average blocks.
        rank: Rank of this process among the processes that divide the dataset, from 0. ``None``: rank and world size are the values of
            ``RANK`` and ``WORLD_SIZE`` (from torchrun) or ``SLURM_PROCID`` and ``SLURM_NTASKS`` (from srun). Without these variables: rank
            0 of 1.
        world_size: Number of processes that divide the dataset. Set both ``rank`` and ``world_size``, or neither.
        on_uneven: If the samples cannot be divided evenly among the ranks: ``"pad"`` repeats samples from the start of the epoch,
            ``"drop"`` skips the last samples, ``"raise"`` raises an error. Every rank has the same number of batches.
        deal: Assigns the samples of each global batch to ranks so that all ranks have about the same cost, such as ``Deal("pixels")``. A
            deal needs a batch size, and has no effect on one rank. ``None``: samples are assigned by their positions.
    """

    shuffle: Shuffle = True
    seed: Seed | None = None
    drop_last: bool = False
    num_workers: Annotated[Count | None, HOW] = None
    window: Count | None = None
    rank: Annotated[Annotated[int, Range(ge=0)] | None, RANK] = None
    world_size: Annotated[Count | None, RANK] = None
    on_uneven: OnUneven = "pad"
    deal: Deal | None = None

    at_once: ClassVar[int] = 8  # number of samples to read together, without batch_size

    def __highway__(self) -> Traits:
        return Traits(draws=self.draws)

    @property
    def rows(self) -> int | None:
        """Samples per batch on this rank; ``None`` if there are no batches."""
        return None

    def rows_on(self, world_size: int) -> int | None:
        """Return the samples per batch if the data is divided among ``world_size`` ranks; ``None`` if there are no batches."""
        return None

    @property
    def draws(self) -> bool:
        """Whether random numbers change the samples, not only their order."""
        return False

    def batch_format(self, dataset: Dataset) -> BatchFormat:
        """Return the format of the batches, or of single samples."""
        return Stacked()

    def stages(self) -> list[Any]:
        return stages_of(cast(ReaderLike, self))


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

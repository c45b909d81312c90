"""The parameters that readers share: the order of samples and the ranks."""

# No annotations from __future__: components in other modules inherit these hints, and would evaluate strings in the wrong module.
from dataclasses import dataclass
from typing import Annotated, ClassVar

from highway.datasets.dataset import Dataset
from highway.parameters.ranges import HOW, RANK, Count, Range, Seed
from highway.reading.batch_formats import BatchFormat, Stacked
from highway.reading.deal import Deal
from highway.reading.sampler import OnUneven, Shuffle


class _Epochs:
    """Each reader declares this parameter at its own position."""

    epochs: int | None


@dataclass
class ReaderOptions(_Epochs):
    """The order of samples and the ranks, with the methods of a reader that its stages call.

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

    def open(self) -> Dataset:
        """Return the dataset. Each reader defines this method."""
        raise NotImplementedError

    def batch_format(self, dataset: Dataset) -> BatchFormat:
        """Return the format of the batches, or of single samples."""
        return Stacked()

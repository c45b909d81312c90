"""Which samples stand where, for which rank: the parameters that readers share."""

# Without annotations from __future__: components in other modules inherit these hints, and theirs are evaluated where they are.
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, cast

from highway.engine.component import Traits
from highway.parameters.ranges import HOW, RANK, Count, Range, Seed
from highway.reading.loader import stages_of
from highway.reading.plan import ReaderLike
from highway.reading.sampler import OnUneven, Shuffle


@dataclass
class Sampling:
    """Which samples stand where, for which rank. Readers have these parameters by having this as a base.

    Args:
        shuffle: ``True`` for an order of its own in each epoch, ``False`` for that of the numbers, ``"blocks"`` where neighbours are cheap
            to read together (row groups, chunks, shards): the blocks shuffled, and then the samples in windows of that.
        seed: What the orders derive from, at least 0; ``None``: the pipeline's seed.
        drop_last: Whether to leave out an epoch's last batch if it is smaller than the others.
        num_workers: Threads that read, as in ``Stage(reader, num_workers=...)``, which goes first; ``None`` means the cores that this
            process may use.
        window: With ``"blocks"``, how many samples are mixed with each other; ``None``: as many as 16 blocks have.
        rank: Which of the processes that share the dataset this is, from 0. ``None``: as the launcher says, by ``RANK`` and ``WORLD_SIZE``
            (torchrun) or ``SLURM_PROCID`` and ``SLURM_NTASKS`` (srun), else 0 of 1.
        world_size: How many processes share it; given if ``rank`` is, and only then.
        on_uneven: If the ranks do not share the samples evenly: ``"pad"`` reads some from the epoch's begin again, ``"drop"`` leaves out
            the last ones, ``"raise"`` is an error. Every rank has as many batches as the others.
    """

    shuffle: Shuffle = True
    seed: Seed | None = None
    drop_last: bool = False
    num_workers: Annotated[Count | None, HOW] = None
    window: Count | None = None
    rank: Annotated[Annotated[int, Range(ge=0)] | None, RANK] = None
    world_size: Annotated[Count | None, RANK] = None
    on_uneven: OnUneven = "pad"

    at_once: ClassVar[int] = 8  # samples that are read together where they go out one by one

    def __highway__(self) -> Traits:
        return Traits(draws=self.draws)

    @property
    def draws(self) -> bool:
        """Whether chance has a part in what comes out, and not in its order alone."""
        return False

    def stages(self) -> list[Any]:
        return stages_of(cast(ReaderLike, self))

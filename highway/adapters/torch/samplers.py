"""Which samples are in which batch: torch's samplers, made as its ``DataLoader`` makes them, and dealt out to ranks."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import torch
import torch.distributed
from torch.utils.data import BatchSampler, DistributedSampler, RandomSampler, SequentialSampler

from highway.errors import ConfigError
from highway.process.ranks import rank_and_world_size


class Samplers(NamedTuple):
    """What says the numbers of samples.

    Args:
        sampler: Yields them one by one.
        batch_sampler: Yields lists of them; ``None``: there are no batches.
        deals: Whether each rank gets a part of its own by them, in an order that hangs on ``set_epoch``.
    """

    sampler: Any
    batch_sampler: Any
    deals: bool

    @property
    def numbers(self) -> Iterable[Any]:
        """What a loop over the loader follows."""
        return self.sampler if self.batch_sampler is None else self.batch_sampler  # type: ignore[no-any-return]

    @property
    def parts(self) -> list[Any]:
        """The samplers, the one inside of a batch sampler among them, each once."""
        found = [self.sampler, self.batch_sampler, getattr(self.batch_sampler, "sampler", None)]
        return list({id(part): part for part in found if part is not None}.values())

    def set_epoch(self, epoch: int) -> None:
        """Tell those that want to know."""
        for part in self.parts:
            if callable(tell := getattr(part, "set_epoch", None)):
                tell(epoch)


class SampleOrder(NamedTuple):
    """In which order samples are read, and in which batches: the arguments of torch's ``DataLoader`` of these names.

    Raises:
        ConfigError: they do not go together.
    """

    batch_size: int | None = 1
    shuffle: bool | None = None
    sampler: Iterable[Any] | None = None
    batch_sampler: Iterable[Any] | None = None
    drop_last: bool = False
    generator: torch.Generator | None = None
    rank: int | None = None
    world_size: int | None = None

    def check(self) -> None:
        if self.batch_size is not None and (not isinstance(self.batch_size, int) or self.batch_size < 1):
            raise ConfigError(f"DataLoader: batch_size={self.batch_size!r}; expected at least 1 sample, or None for no batches")
        if self.batch_sampler is not None and (self.batch_size != 1 or self.shuffle or self.sampler is not None or self.drop_last):
            raise ConfigError("DataLoader: batch_sampler says all that batch_size, shuffle, sampler and drop_last do; leave these out")
        if self.sampler is not None and self.shuffle:
            raise ConfigError("DataLoader: sampler and shuffle=True are two answers to one question; give one of them")
        if self.batch_size is None and self.drop_last:
            raise ConfigError("DataLoader: batch_size=None makes no batches, of which drop_last could leave out the last")
        if (self.rank is None) != (self.world_size is None):
            raise ConfigError(f"DataLoader: rank={self.rank}, world_size={self.world_size}; give both of them or none")

    @property
    def ranks(self) -> tuple[int, int]:
        """Which rank this process is, and of how many: as was said, as torch.distributed says, or as the environment does."""
        if self.rank is None and torch.distributed.is_available() and torch.distributed.is_initialized():
            return torch.distributed.get_rank(), torch.distributed.get_world_size()
        return rank_and_world_size(self.rank, self.world_size)

    def samplers(self, dataset: Any) -> Samplers:
        """Return the samplers of this rank."""
        rank, world_size = self.ranks
        if self.batch_sampler is not None:
            return Samplers(getattr(self.batch_sampler, "sampler", None), self.batch_sampler, False)
        sampler: Any = self.sampler
        deals = sampler is None and world_size > 1
        if deals:
            seed = 0 if self.generator is None else self.generator.initial_seed()
            sampler = DistributedSampler(dataset, world_size, rank, bool(self.shuffle), seed, self.drop_last)
        elif sampler is None:
            sampler = RandomSampler(dataset, generator=self.generator) if self.shuffle else SequentialSampler(dataset)
        batches = None if self.batch_size is None else BatchSampler(sampler, self.batch_size, self.drop_last)
        return Samplers(sampler, batches, deals)

"""The rank of this process and the number of ranks, from arguments or from the launcher's environment variables."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TypedDict

from highway.errors import ConfigError

_LAUNCHERS = (
    ("RANK", "WORLD_SIZE", "RANK"),  # torchrun, Lightning, accelerate
    ("SLURM_PROCID", "SLURM_NTASKS", "SLURM_STEP_ID"),  # srun; a batch script also has the first two variables, but is not a task
)
"""For each launcher: the variables for the rank and the number of ranks, which count only if the third variable is also set."""


class ReaderRanks(TypedDict):
    """Parameters of a reader: the rank of this process, and the number of ranks."""

    rank: int
    world_size: int


@dataclass(frozen=True)
class PeerRanks:
    """Processes of one host that get the same items. The first process runs the stages and passes the items to the other processes.

    Args:
        rank: The rank of this process among all processes of the job.
        ranks: The ranks of the processes that get the same items, including this process, in ascending order.
        name: The name of the link between the processes. It must be unique on the host.
    """

    rank: int
    ranks: tuple[int, ...]
    name: str

    def __post_init__(self) -> None:
        if self.rank not in self.ranks:
            raise ConfigError(
                f"PeerRanks: rank={self.rank} is not among ranks={self.ranks}; pass the ranks of all peers, including this rank"
            )


def rank_and_world_size(rank: int | None = None, world_size: int | None = None) -> tuple[int, int]:
    """Return the rank of this process and the number of ranks; ``(0, 1)`` if neither arguments nor the environment define them.

    Args:
        rank: The rank, from 0. ``None``: the value of ``RANK`` or ``SLURM_PROCID``.
        world_size: Number of ranks. ``None``: the value of ``WORLD_SIZE`` or ``SLURM_NTASKS``. Give both arguments or neither.

    Raises:
        ConfigError: only one argument is given, a variable is not a number, or the rank is not below the number of ranks.
    """
    if (rank is None) != (world_size is None):
        raise ConfigError(f"rank={rank}, world_size={world_size}; pass both or neither")
    place = "rank and world_size"
    if rank is None or world_size is None:
        for rank_name, size_name, marker in _LAUNCHERS:
            if rank_name in os.environ and size_name in os.environ and marker in os.environ:
                place = f"{rank_name} and {size_name} in the environment"
                rank, world_size = _number(rank_name), _number(size_name)
                break
        else:
            return 0, 1
    if not 0 <= rank < world_size:
        ranks = f"a rank from 0 to {world_size - 1}" if world_size > 0 else "at least 1 rank"
        raise ConfigError(f"{place}: rank {rank} of {world_size}; expected {ranks}")
    return rank, world_size


def ranks_here(world_size: int) -> int:
    """Return the number of ranks on this machine: ``LOCAL_WORLD_SIZE`` (of torchrun), or ``world_size`` if the variable is not set.

    Raises ConfigError if the variable is not a number.
    """
    return max(1, min(world_size, _number("LOCAL_WORLD_SIZE"))) if "LOCAL_WORLD_SIZE" in os.environ else world_size


def local_rank() -> tuple[int, int]:
    """Return the local rank of this process, and the number of ranks on this machine, from torchrun's environment variables.

    Raises:
        ConfigError: the launcher does not set these variables, or a value is not a number.
    """
    if missing := [name for name in ("LOCAL_RANK", "LOCAL_WORLD_SIZE") if name not in os.environ]:
        raise ConfigError(
            f"{' and '.join(missing)} are not in the environment, so the ranks on this host are unknown; start with torchrun, or set "
            "LOCAL_RANK and LOCAL_WORLD_SIZE"
        )
    return _number("LOCAL_RANK"), _number("LOCAL_WORLD_SIZE")


def _number(name: str) -> int:
    try:
        return int(os.environ[name])
    except ValueError:
        shown = f"{name}={os.environ[name]!r}"
        raise ConfigError(f"{shown} in the environment is not a number; correct it, or pass rank and world_size") from None

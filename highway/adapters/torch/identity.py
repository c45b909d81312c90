"""What must be the same when a state is loaded, and which rank a loader is."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from typing import Any

import torch.distributed

from highway.errors import ConfigError, PipelineError
from highway.process.ranks import rank_and_world_size

log = logging.getLogger("highway")


def identity_of(loader: Any) -> dict[str, Any]:
    """Return what must be the same when a state of a loader is loaded."""
    try:
        samples = len(loader.dataset)
    except (TypeError, NotImplementedError):
        samples = None
    sampler = getattr(loader.batch_sampler, "sampler", None) or loader.sampler
    return {
        "samples": samples,
        "batch_size": loader.batch_size,
        "drop_last": loader.drop_last,
        "samplers": [type(part).__name__ for part in (loader.batch_sampler, sampler) if part is not None],
        "ranks": [getattr(sampler, "num_replicas", 1), getattr(sampler, "rank", 0)],
    }


def expect_same(here: Mapping[str, Any], there: Mapping[str, Any], allow_changed: Collection[str]) -> None:
    """Compare the loader that loads a state with the one that saved it.

    Raises:
        PipelineError: they differ in what ``allow_changed`` does not name; or it names what is not compared.
    """
    if unknown := [name for name in allow_changed if name not in here]:
        raise PipelineError(f"load_state_dict: allow_changed names {', '.join(unknown)}; what is compared is {', '.join(here)}")
    changed = {name: f"{name}={here[name]!r}, was {there.get(name)!r}" for name in here if here[name] != there.get(name)}
    if refused := [text for name, text in changed.items() if name not in allow_changed]:
        raise PipelineError(
            f"load_state_dict: another DataLoader saved the state: {'; '.join(refused)}; use the same arguments as then, or accept the "
            f"changes, after which the rest of the run may differ: load_state_dict(state, allow_changed={list(changed)})"
        )
    if changed:
        log.warning("load_state_dict: the DataLoader has changed, which allow_changed accepts: %s", "; ".join(changed.values()))


def ranks_of(rank: int | None, world_size: int | None) -> tuple[int, int]:
    """Return the rank and the number of ranks: as given, as ``torch.distributed`` reports, or as the environment says.

    Raises:
        ConfigError: only one of the two is given.
    """
    if (rank is None) != (world_size is None):
        raise ConfigError(f"DataLoader: rank={rank}, world_size={world_size}; give both of them or none")
    if rank is None and torch.distributed.is_available() and torch.distributed.is_initialized():
        return torch.distributed.get_rank(), torch.distributed.get_world_size()
    return rank_and_world_size(rank, world_size)

"""Compare a loader that loads a state with the loader that saved it, and find the rank of a loader."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from typing import Any

import torch.distributed
from torch.utils.data import IterableDataset

from highway.errors import ConfigError, PipelineError
from highway.process.ranks import rank_and_world_size

log = logging.getLogger("highway")


def identity_of(loader: Any) -> dict[str, Any]:
    """Return the parameters of a loader that must be equal in the loader that loads its state."""
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
    """Compare the loader that loads a state with the loader that saved it.

    Raises:
        PipelineError: the loaders differ in a parameter that is not in ``allow_changed``, or ``allow_changed`` contains an unknown name.
    """
    if unknown := [name for name in allow_changed if name not in here]:
        raise PipelineError(
            f"load_state_dict: allow_changed contains {', '.join(unknown)}, which is not a compared parameter; the compared parameters are "
            f"{', '.join(here)}"
        )
    there = {**there, "ranks": here["ranks"]} if there["ranks"][0] == here["ranks"][0] else there  # see of_another_rank
    changed = {name: f"{name}={here[name]!r}, was {there.get(name)!r}" for name in here if here[name] != there.get(name)}
    if refused := [text for name, text in changed.items() if name not in allow_changed]:
        raise PipelineError(
            f"load_state_dict: the arguments differ from those of the DataLoader that saved the state: {'; '.join(refused)}; use the same "
            f"arguments, or accept the changes. The rest of the run can then differ: load_state_dict(state, allow_changed={list(changed)})"
        )
    if changed:
        log.warning("load_state_dict: the DataLoader has changed, which allow_changed accepts: %s", "; ".join(changed.values()))


def of_another_rank(resumed: dict[str, Any], there: int, here: int) -> dict[str, Any]:
    """Convert a snapshot (an internal state) of one rank for another rank. Lightning loads the state of the first rank on all ranks."""
    log.warning(
        "load_state_dict: rank %s saved this state, but rank %s loads it. Samples and their order continue exactly, but random transforms "
        "differ; to continue them too, save and load one state for each rank",
        there,
        here,
    )
    resumed = {**resumed, "workers": [], "generators": None}
    if resumed["yielded"] is None:
        return resumed
    order = {**resumed["order"], "sampled": resumed["yielded"], "is_exhausted": False}
    return {**resumed, "order": order, "pending": [], "next_worker": 0}


def with_workers_of(loader: Any, resumed: dict[str, Any] | None) -> dict[str, Any] | None:
    """Return the snapshot from which a loader resumes. If the number of workers has changed, remove the states of the workers.

    Raises:
        PipelineError: the snapshot is in the middle of an epoch of an ``IterableDataset``, and the number of workers has changed.
    """
    now = loader.num_workers if loader.workers == "processes" else 0
    then = now if resumed is None or resumed["yielded"] is None else resumed["num_workers"]
    if resumed is None or then == now:
        return resumed
    if isinstance(loader.dataset, IterableDataset):
        raise PipelineError(
            f"load_state_dict: the state is in the middle of an epoch with num_workers={then}, but now num_workers is {now}. Each worker "
            f"has its own part of an IterableDataset: use num_workers={then} until the epoch ends"
        )
    log.warning(
        "load_state_dict: the state was saved with num_workers=%s, but now num_workers is %s. Samples and their order continue exactly, "
        "but random transforms differ; to continue them too, use num_workers=%s until the epoch ends",
        then,
        now,
        then,
    )
    return {**resumed, "workers": []}


def ranks_of(rank: int | None, world_size: int | None) -> tuple[int, int]:
    """Return the rank and the number of ranks, from the arguments, ``torch.distributed`` or the environment, in this order.

    Raises:
        ConfigError: only one of the two arguments is given.
    """
    if (rank is None) != (world_size is None):
        raise ConfigError(f"DataLoader: rank={rank}, world_size={world_size}; pass both or neither")
    if rank is None and torch.distributed.is_available() and torch.distributed.is_initialized():
        return torch.distributed.get_rank(), torch.distributed.get_world_size()
    return rank_and_world_size(rank, world_size)

"""The progress of one epoch, from which the state of a loader is created."""

from __future__ import annotations

import copy
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from highway.adapters.torch.generators import GLOBAL, as_text, from_text, states_of
from highway.adapters.torch.order import IndexOrder
from highway.adapters.torch.worker import Fetching, WorkerState

FORMAT = 2  # the version of the state's format
_GENERATORS = ("generators", "begun")  # the fields of a worker's state that contain generators


@dataclass
class EpochProgress:
    """The progress of an epoch.

    Args:
        epoch: The number of the epoch, from 0.
        order: The sampler of the indices.
        is_map: Whether the dataset is read by index.
        num_workers: Number of workers.
        yielded: Number of delivered batches.
        pending: The batches that were requested, but not yet delivered: a dict from the number of a batch to its worker and indices.
        workers: The state of each worker after its last delivered batch. If ``num_workers`` is 0, a list with the state of this process
            before or after the loop.
        fetching: If ``num_workers`` is 0, the object that reads the batches during the loop. Then :meth:`snapshot` uses the state of this
            object instead of ``workers``.
        base_seed: The seed of torch for the epoch. Each worker adds its index to this seed.
        shared_seed: The seed of torch for data pipes. All workers use the same seed.
        failed: If reading the last batch raised an error, the worker and the indices of this batch. A resumed run tries the batch again.
        has_finished: Whether the loop has reached the end of the epoch.
        is_untouched: Whether the epoch was resumed, and no batch was delivered since then.
        is_in_stage: Whether a stage of a pipeline received the last batch.
        keeps_workers: Whether the workers continue in the next epoch (``persistent_workers``).
    """

    epoch: int
    order: IndexOrder
    is_map: bool
    num_workers: int
    yielded: int = 0
    pending: dict[int, tuple[int, Any]] = field(default_factory=dict)
    workers: list[WorkerState] = field(default_factory=list)
    fetching: Fetching | None = None
    base_seed: int = 0
    shared_seed: int | None = None
    failed: tuple[int, Any] | None = None
    has_finished: bool = False
    is_untouched: bool = False
    is_in_stage: bool = False
    keeps_workers: bool = False

    def snapshot(self) -> dict[str, Any]:
        """Return the progress as a dict (a snapshot).

        The snapshot does not contain the states of the global random generators, because the program can use these generators before it
        saves the state. :func:`to_public` adds their current states.
        """
        workers = list(self.workers) if self.fetching is None else [self.fetching.state()]
        if self.has_finished:
            kept = workers if self.keeps_workers or self.num_workers == 0 else []
            return between(self.epoch + 1, self.order, [at_start(state) for state in kept], self.base_seed)
        tasks = [self.pending[task] for task in sorted(self.pending)]
        if self.failed is not None:
            tasks.insert(0, self.failed)
        if self.num_workers:
            tasks = [(worker, index) for worker, index in tasks if not workers[worker].has_ended]
        return {
            "format": FORMAT,
            "epoch": self.epoch,
            "yielded": self.yielded,
            "pending": [index for _, index in tasks] if self.is_map else [],
            "next_worker": tasks[0][0] if tasks else 0,
            "num_workers": self.num_workers,
            "base_seed": self.base_seed,
            "shared_seed": self.shared_seed,
            "order": self.order.state() if self.is_map else self.order.at_start(),
            "workers": workers,
        }


def between(epoch: int, order: IndexOrder, workers: Iterable[WorkerState] = (), base_seed: int = 0) -> dict[str, Any]:
    """Return the snapshot of a loader between two epochs. ``epoch`` is the next epoch."""
    return {"format": FORMAT, "epoch": epoch, "yielded": None, "order": order.at_start(), "workers": list(workers), "base_seed": base_seed}


def at_start(state: WorkerState) -> WorkerState:
    """Convert the state of a worker at the end of an epoch to its state at the start of the next epoch."""
    return WorkerState(begun=state.begun if state.generators is None else state.generators, dataset=state.dataset)


def to_public(snapshot: dict[str, Any]) -> dict[str, Any]:
    """Convert a snapshot to a state that JSON can hold.

    If the snapshot does not contain the states of the global random generators, add their current states. The states of the user's objects
    are not converted.
    """
    order = {name: as_text(part) if name in ("begun", "own") else part for name, part in snapshot["order"].items()}
    workers = [{**state._asdict(), **{name: as_text(getattr(state, name)) for name in _GENERATORS}} for state in snapshot["workers"]]
    generators = snapshot.get("generators") or states_of(GLOBAL)
    return {**snapshot, "order": order, "workers": workers, "generators": as_text(generators)}


def from_public(state: dict[str, Any]) -> dict[str, Any]:
    """Convert a state from :func:`to_public` back to a snapshot, which also contains the states of the global generators."""
    order = {name: from_text(part) if name in ("begun", "own") else part for name, part in state["order"].items()}
    workers = [WorkerState(**{**one, **{name: from_text(one[name]) for name in _GENERATORS}}) for one in state["workers"]]
    return {**copy.copy(state), "order": order, "workers": workers, "generators": from_text(state["generators"])}

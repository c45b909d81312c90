"""The batches of a dataset: one loop after the other, and where these are."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from typing import Any

import torch

from highway.adapters.torch.generators import generators_of, gone_back, states_of
from highway.adapters.torch.loop import Loop, LoopState, Workers
from highway.adapters.torch.samplers import SampleOrder, Samplers
from highway.engine import cancel
from highway.errors import ConfigError, PipelineError

log = logging.getLogger("highway")

FORMAT = 1  # of states


class DatasetBatches:
    """Makes a :class:`Loop` for each epoch.

    Args:
        dataset: What is read.
        order: In which order.
        make_workers: Starts who reads.
        persistent: Whether they stay for the next loop.
        timeout: Seconds to wait for a batch at most.
    """

    def __init__(
        self, dataset: Any, order: SampleOrder, make_workers: Callable[[], Workers], persistent: bool, timeout: float | None
    ) -> None:
        self._dataset, self._order, self._make_workers = dataset, order, make_workers
        self._persistent, self._timeout = persistent, timeout
        self._workers: list[Workers] = []  # those that are idle, one at most
        self._at_work: list[Workers] = []
        self._ranks: tuple[int, int] | None = None
        self._samplers: Samplers | None = None
        self._loops = 0
        self._place: LoopState | None = None  # of the last loop
        self._resumed: LoopState | None = None  # of the next one
        self._received: LoopState | PipelineError | None = None  # where the loop is, if somebody takes batches ahead of it
        self.epoch = 0  # the next loop's

    @property
    def samplers(self) -> Samplers:
        """The samplers of this rank."""
        if self._samplers is None or self._ranks != self._order.ranks:
            self._ranks, self._samplers = self._order.ranks, self._order.samplers(self._dataset)
        return self._samplers

    def __len__(self) -> int:
        return len(self.samplers.numbers)  # type: ignore[arg-type]

    def __iter__(self) -> Loop:
        if self._resumed is None and self._place is not None and self._place.is_untouched:
            self._resumed = self._place.copy()
        samplers, place = self.samplers, self._resumed
        generators = generators_of(samplers, self._order.generator)
        if place is None:
            place = LoopState(self.epoch, {"generators": states_of(generators), "samplers": _states(samplers), "epochs": _epochs(samplers)})
            back: contextlib.AbstractContextManager[None] = contextlib.nullcontext()
        else:
            _go_back(samplers, place.begun)
            back = gone_back(generators, place.begun["generators"])
        with contextlib.suppress(TypeError):  # a sampler need not know
            place.length = len(self)
        if samplers.deals:
            samplers.set_epoch(place.epoch)
        workers = self._workers.pop() if self._workers else self._make_workers()
        self._at_work.append(workers)
        self._loops += 1
        with back:
            seed = int(torch.empty((), dtype=torch.int64).random_(generator=self._order.generator).item())  # as torch draws one
            loop = Loop(self._loops, workers, samplers.numbers, seed, place, self._timeout, self._take_back)
            loop.begin(0 if self._resumed is None else 1)
        self._resumed, self._received, self._place, self.epoch = None, None, place, place.epoch + 1
        return loop

    def _take_back(self, workers: Workers) -> None:
        """Keep the workers of a loop that has ended, if they are to stay and no others are there."""
        if workers not in self._at_work:  # the loader was closed
            return
        self._at_work.remove(workers)
        if self._persistent and not self._workers:
            self._workers.append(workers)
        else:
            workers.close()

    def close(self) -> None:
        """End all workers."""
        for workers in (*self._workers, *self._at_work):
            workers.close()
        self._workers.clear()
        self._at_work.clear()

    def set_epoch(self, epoch: int) -> None:
        """Have the next loop be this epoch."""
        if self._resumed is not None and epoch != self._resumed.epoch:
            raise ConfigError(
                f"DataLoader: set_epoch({epoch}), but the state that was loaded is in epoch {self._resumed.epoch}, behind "
                f"{self._resumed.batches} batches; go on with that epoch, or build a new DataLoader without the state"
            )
        if self._resumed is None:
            self.epoch = epoch
            self.samplers.set_epoch(epoch)

    def position(self) -> LoopState:
        """Return where the last loop is after the last batch that was taken."""
        place = self._resumed or self._place
        return LoopState(self.epoch, {}, has_ended=True) if place is None else place.copy()

    def received(self, position: LoopState | PipelineError | None) -> None:
        """Have the state be the one at a position; ``None``: batches that the loop has not received count no longer as taken."""
        if position is None and isinstance(self._received, LoopState):
            self._place = replace(self._received, is_in_stage=False)
        self._received = position

    def state_dict(self) -> dict[str, Any]:
        """Return where the last loop is.

        Raises:
            PipelineError: nobody knows which batch the loop has received last.
        """
        if isinstance(self._received, PipelineError):
            raise self._received
        samplers = self.samplers
        place = self._resumed or self._received or self._place
        if self._received is None and place is not None and place.is_in_stage and not cancel.in_stage():
            raise PipelineError(
                "state_dict: a stage of a pipeline takes the batches ahead of your loop; call state_dict() of what your loop is over"
            )
        if place is None or place.has_ended:
            begun = {
                "generators": states_of(generators_of(samplers, self._order.generator)),
                "samplers": _states(samplers),
                "epochs": _epochs(samplers),
            }
            place = LoopState(self.epoch, begun)
        return {
            "format": FORMAT,
            "epoch": place.epoch,
            "batches": place.batches,
            "ahead": sorted(place.ahead),
            "begun": place.begun,
            "of": self._identity(),
        }

    def load_state_dict(self, state: Mapping[str, Any], allow_changed: Collection[str] = ()) -> None:
        """Have the next loop resume from a state."""
        if not isinstance(state, Mapping) or state.get("format") != FORMAT or "begun" not in state:
            raise PipelineError(
                f"load_state_dict: expected what state_dict() of a highway DataLoader over a dataset returned; got {str(state)[:60]}"
            )
        here, there = self._identity(), state["of"]
        if unknown := [name for name in allow_changed if name not in here]:
            raise PipelineError(f"load_state_dict: allow_changed names {', '.join(unknown)}; what is compared is {', '.join(here)}")
        changed = {name: f"{name}={here[name]!r}, was {there.get(name)!r}" for name in here if here[name] != there.get(name)}
        if refused := [text for name, text in changed.items() if name not in allow_changed]:
            raise PipelineError(
                f"load_state_dict: the state is that of another DataLoader: {'; '.join(refused)}; use the same as then, or accept the "
                f"changes, after which the rest of the run may differ: load_state_dict(state, allow_changed={list(changed)})"
            )
        if changed:
            log.warning("load_state_dict: the DataLoader has changed, which allow_changed accepts: %s", "; ".join(changed.values()))
        self._resumed = LoopState(state["epoch"], dict(state["begun"]), state["batches"], set(state["ahead"]), is_untouched=True)
        self.epoch = state["epoch"]

    def _identity(self) -> dict[str, Any]:
        """Return what a loop goes on by."""
        order, samplers = self._order, self.samplers
        generators = generators_of(samplers, order.generator)
        return {
            "samples": len(self._dataset),
            "batch_size": order.batch_size,
            "drop_last": order.drop_last,
            "shuffle": bool(order.shuffle),
            "samplers": [type(part).__name__ for part in samplers.parts],
            "generators": len(generators),
            "ranks": list(self._order.ranks),
        }


def _states(samplers: Samplers) -> list[Any]:
    return [part.state_dict() if callable(getattr(part, "state_dict", None)) else None for part in samplers.parts]


def _epochs(samplers: Samplers) -> list[Any]:
    return [getattr(part, "epoch", None) for part in samplers.parts]


def _go_back(samplers: Samplers, begun: Mapping[str, Any]) -> None:
    """Set samplers to where they were when an epoch began."""
    for part, state, epoch in zip(samplers.parts, begun["samplers"], begun["epochs"], strict=True):
        if state is not None:
            part.load_state_dict(state)
        if epoch is not None and callable(tell := getattr(part, "set_epoch", None)):
            tell(epoch)

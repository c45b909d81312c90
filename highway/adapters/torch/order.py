"""Count the indices that a sampler has yielded in an epoch, and resume after these indices."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator
from typing import Any

import torch.utils.data

from highway.adapters.torch.generators import GLOBAL, generators_in, set_states, states_of


def is_stateful(value: Any) -> bool:
    """Return whether an object has ``state_dict`` and ``load_state_dict``."""
    return callable(getattr(value, "state_dict", None)) and callable(getattr(value, "load_state_dict", None))


def state_of_user(value: Any) -> Any:
    """Return a copy of the state of a user's object, which might change the state in place. ``None``: it has no state."""
    return copy.deepcopy(value.state_dict()) if is_stateful(value) else None


def restore_user(value: Any, state: Any) -> None:
    """Load a copy of a state into a user's object, which might change the state in place. Do nothing if there is no state."""
    if state is not None and is_stateful(value):
        value.load_state_dict(copy.deepcopy(state))


class IndexOrder:
    """The index sampler of a loader. It counts the indices, and can resume in the middle of an epoch.

    A sampler with ``state_dict`` and ``load_state_dict`` resumes from its own state. Any other sampler runs again from the start of the
    epoch, with the random generators in their states from that time. The indices that it had already yielded are skipped.

    Args:
        sampler: An iterable that yields the indices of a batch as a list, or single indices if the loader has no batch size.
        inner: The sampler inside a batch sampler, or ``None``.
        generator: The loader's generator, or ``None``.
    """

    def __init__(self, sampler: Any, inner: Any, generator: torch.Generator | None) -> None:
        self._sampler = sampler
        self._parts = list({id(part): part for part in (sampler, inner) if part is not None}.values())
        self._own = generators_in([generator, *self._parts])
        self._iterator: Any = None
        self._saved: dict[str, Any] | None = None
        self._begun: list[Any] = []  # states of the generators when the epoch began, and when its first index was requested
        self.sampled = 0
        self.is_exhausted = False

    def __len__(self) -> int:
        return len(self._sampler)

    def set_epoch(self, epoch: int) -> None:
        """Call ``set_epoch`` of the samplers that have this method."""
        for part in self._parts:
            if callable(tell := getattr(part, "set_epoch", None)):
                tell(epoch)

    def __iter__(self) -> Iterator[Any]:
        if self._saved is not None:
            return self._continued(self._saved)
        self._begun, self.sampled, self.is_exhausted = [self._snapshot()], 0, False
        self._iterator = iter(self._sampler)
        return self._from_start(self._iterator)

    def _from_start(self, indices: Iterator[Any]) -> Iterator[Any]:
        self._begun = [self._begun[0], self._snapshot()]
        yield from self._counted(indices)

    def _counted(self, indices: Iterable[Any]) -> Iterator[Any]:
        try:
            for index in indices:
                self.sampled += 1
                yield index
        except KeyboardInterrupt:  # the exception ends this generator function, so the next iteration must resume
            self.resume(self.state(), [])
            raise
        self.is_exhausted = True

    @property
    def is_interrupted(self) -> bool:
        """Whether a KeyboardInterrupt has ended the iteration. The next iteration then continues it."""
        return self._saved is not None

    def _snapshot(self) -> dict[str, Any]:
        return {
            "generators": states_of((*GLOBAL, *self._own)),
            "epochs": [getattr(part, "epoch", None) for part in self._parts],
        }

    def state(self) -> dict[str, Any]:
        """Return the state for :meth:`resume`."""
        begun = [*self._begun, self._snapshot()][:2]
        return {
            "begun": begun,
            "sampled": self.sampled,
            "is_exhausted": self.is_exhausted,
            "own": states_of(self._own),
            "samplers": self.sampler_states(),
            "iterator": state_of_user(self._iterator),
        }

    def at_start(self) -> dict[str, Any]:
        """Return the state before an epoch: the states of the samplers and their generators."""
        return {"samplers": self.sampler_states(), "own": self.own_states()}

    def sampler_states(self) -> list[Any]:
        """Return the states of the samplers. The state is ``None`` for a sampler that does not support states."""
        return [state_of_user(part) for part in self._parts]

    def load_samplers(self, states: list[Any]) -> None:
        """Load the result of :meth:`sampler_states`."""
        for part, state in zip(self._parts, states, strict=False):
            restore_user(part, state)

    def own_states(self) -> list[Any]:
        """Return the states of the generators of the loader and its samplers."""
        return states_of(self._own)

    def load_own(self, states: list[Any]) -> None:
        """Load the result of :meth:`own_states`."""
        set_states(self._own, states)

    def resume(self, state: dict[str, Any], pending: list[Any]) -> None:
        """Resume in the next iteration: yield the pending indices first, then the remaining indices.

        Args:
            state: The result of :meth:`state`.
            pending: Indices that the sampler has yielded, but whose batches were not delivered.
        """
        self._saved = {**state, "pending": pending}
        self._begun, self.sampled, self.is_exhausted = state["begun"], state["sampled"], state["is_exhausted"]

    def _continued(self, saved: dict[str, Any]) -> Iterator[Any]:
        self._saved = None
        given = saved["samplers"]
        if any(state is not None for state in given) or saved["iterator"] is not None:
            self.load_samplers(given)
            self._iterator = iter(self._sampler)
            restore_user(self._iterator, saved["iterator"])
        else:
            self._iterator = self._run_again(saved)
        self.load_own(saved["own"])
        yield from saved["pending"]
        if not saved["is_exhausted"]:
            yield from self._counted(self._iterator)

    def _run_again(self, saved: dict[str, Any]) -> Iterator[Any]:
        now = states_of(GLOBAL)
        try:
            at_begin, at_first = saved["begun"]
            set_states((*GLOBAL, *self._own), at_begin["generators"])
            for part, epoch in zip(self._parts, at_begin["epochs"], strict=False):
                if epoch is not None and callable(tell := getattr(part, "set_epoch", None)):
                    tell(epoch)
            indices: Iterator[Any] = iter(self._sampler)
            set_states((*GLOBAL, *self._own), at_first["generators"])
            for _ in range(saved["sampled"]):
                next(indices, None)
        finally:
            set_states(GLOBAL, now)
        return indices

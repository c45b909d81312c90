"""States of torch's generators of random numbers, as texts that JSON can hold."""

from __future__ import annotations

import base64
import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

import torch

from highway.adapters.torch.samplers import Samplers


def generators_of(samplers: Samplers, own: torch.Generator | None) -> list[torch.Generator]:
    """Return the generators that the order of an epoch hangs on, besides torch's global one."""
    found = [own, *(getattr(part, "generator", None) for part in samplers.parts)]
    return list({id(one): one for one in found if isinstance(one, torch.Generator)}.values())


def states_of(generators: Sequence[torch.Generator]) -> list[str]:
    """Return the states of the global generator, and of these."""
    return [_text(torch.get_rng_state()), *(_text(one.get_state()) for one in generators)]


@contextlib.contextmanager
def gone_back(generators: Sequence[torch.Generator], states: Sequence[str]) -> Iterator[None]:
    """Set generators to states; the global one, which is the training's too, for as long as the block runs."""
    now = torch.get_rng_state()
    try:
        torch.set_rng_state(_state(states[0]))
        for one, state in zip(generators, states[1:], strict=True):
            one.set_state(_state(state))
        yield
    finally:
        torch.set_rng_state(now)


def _text(state: torch.Tensor) -> str:
    return base64.b64encode(state.numpy().tobytes()).decode()


def _state(text: str) -> Any:
    return torch.frombuffer(bytearray(base64.b64decode(text)), dtype=torch.uint8)

"""Save and restore the random number generators (here called generators) of the process and of samplers."""

from __future__ import annotations

import base64
import gc
import random
from array import array
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import torch

from highway.process.torch_generators import torch_generators

Generator = torch.Generator | np.random.Generator | np.random.RandomState | random.Random

_METHODS: tuple[Any, ...] = (np.random.get_state, random.getstate)  # bound methods of the process's generators

GLOBAL: tuple[Any, ...] = (torch.default_generator, *(method.__self__ for method in _METHODS))
"""The global generators of the process: torch's CPU generator, NumPy's generator and Python's generator."""


def generators_in(objects: Iterable[Any]) -> list[Any]:
    """Return the generators among ``objects`` and their attributes, without duplicates and without :data:`GLOBAL`."""
    found = {}
    for one in objects:
        for value in (one, *getattr(one, "__dict__", {}).values()):
            if isinstance(value, Generator) and not isinstance(value, random.SystemRandom) and not any(value is own for own in GLOBAL):
                found[id(value)] = value
    return list(found.values())


def state_of(generator: Any) -> Any:
    """Return the state of a generator. The state can be pickled and compared."""
    if isinstance(generator, torch.Generator):
        return _state_of_torch(generator)
    if isinstance(generator, random.Random):
        version, numbers, gauss = generator.getstate()
        return [version, array("I", numbers).tobytes(), gauss]
    return _without_arrays(
        generator.bit_generator.state if isinstance(generator, np.random.Generator) else generator.get_state(legacy=False)
    )


def _state_of_torch(generator: torch.Generator) -> bytes:
    with torch_generators:
        collects = gc.isenabled()
        gc.disable()  # the garbage collector could run a finalizer of the user that uses the generator
        try:
            state: bytes = generator.get_state().numpy().tobytes()
            return state
        finally:
            if collects:
                gc.enable()


def states_of(generators: Iterable[Any]) -> list[Any]:
    """Return the state of each generator."""
    return [state_of(generator) for generator in generators]


def set_state(generator: Any, state: Any) -> None:
    """Set a generator to a state that :func:`state_of` has returned."""
    if isinstance(generator, torch.Generator):
        with torch_generators:
            generator.set_state(torch.frombuffer(bytearray(state), dtype=torch.uint8))
    elif isinstance(generator, random.Random):
        version, numbers, gauss = state
        generator.setstate((version, tuple(array("I", numbers)), gauss))
    elif isinstance(generator, np.random.Generator):
        generator.bit_generator.state = _with_arrays(state)
    else:
        generator.set_state(_with_arrays(state))


def set_states(generators: Sequence[Any], states: Sequence[Any]) -> None:
    """Set each generator to its saved state. Do nothing if there are no saved states."""
    for generator, state in zip(generators, states, strict=False):
        set_state(generator, state)


def as_text(value: Any) -> Any:
    """Return a nested value with texts instead of bytes, so that JSON can hold the value."""
    if isinstance(value, bytes):
        return {"base64": base64.b64encode(value).decode()}
    if isinstance(value, dict):
        return {name: as_text(part) for name, part in value.items()}
    return [as_text(part) for part in value] if isinstance(value, (list, tuple)) else value


def from_text(value: Any) -> Any:
    """Return the value that was passed to :func:`as_text`, with lists instead of tuples."""
    if isinstance(value, dict):
        return base64.b64decode(value["base64"]) if value.keys() == {"base64"} else {name: from_text(part) for name, part in value.items()}
    return [from_text(part) for part in value] if isinstance(value, (list, tuple)) else value


def _without_arrays(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _without_arrays(part) for name, part in value.items()}
    return {"dtype": value.dtype.str, "values": value.tobytes()} if isinstance(value, np.ndarray) else value


def _with_arrays(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    if value.keys() == {"dtype", "values"}:
        return np.frombuffer(value["values"], value["dtype"]).copy()
    return {name: _with_arrays(part) for name, part in value.items()}

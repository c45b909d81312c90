"""Mistakes that raise no error by themselves: the first items are checked for them, with one warning for each.

``logging.getLogger("highway.mistakes").disabled = True`` switches these warnings off.
"""

from __future__ import annotations

import logging
import random
from collections import deque
from collections.abc import Iterator
from typing import Any

import numpy as np
import xxhash

log = logging.getLogger("highway.mistakes")

FIRST_ITEMS = 4  # that are checked
_MOST_BYTES = 1 << 26  # maximum bytes of the arrays of a checked item
_SWITCH = "logging.getLogger('highway.mistakes').disabled = True switches this warning off"


class WrittenInput:
    """Detects whether a map writes into an item of the list that the pipeline reads.

    Args:
        item: The item, as in the list.
    """

    def __init__(self, item: Any) -> None:
        parts = list(_parts(item))
        small = sum(part.nbytes for part in parts if isinstance(part, np.ndarray)) <= _MOST_BYTES
        self._before = [(part, _content(part)) for part in parts] if small else []

    def warn(self, stage: str, source: str) -> bool:
        """Warn if the item has changed; return whether it has. ``source`` is the first stage in the message."""
        changed = any(_content(part) != before for part, before in self._before)
        if changed:
            log.warning(
                "highway: the map %s writes into its input, an item of the list that the pipeline reads, and the next epoch reads what was "
                "written; return a new array, such as image * 2 for image *= 2, or copy the items first: "
                "Pipeline([%s, copy.deepcopy, ...]); %s",
                stage,
                source,
                _SWITCH,
            )
        return changed


def state_of(op: Any) -> dict[str, Any]:
    """Return the state of a map in its attributes: its counters, collections and random generators."""
    attributes = getattr(getattr(op, "__self__", op), "__dict__", {})
    found = {name: _state(value) for name, value in attributes.items() if not name.startswith("opened ")}
    return {name: state for name, state in found.items() if state is not None}


def _state(value: Any) -> Any:
    if isinstance(value, (int, float, np.number)):
        return repr(value)  # NaN does not equal itself
    if isinstance(value, dict):
        return len(value), repr([one for one in value.values() if isinstance(one, (int, float))])
    if isinstance(value, (list, set)):
        return len(value)
    if isinstance(value, deque):
        return list(map(id, value))
    if isinstance(value, np.random.Generator):
        return _Draws(str(value.bit_generator.state))
    if isinstance(value, (np.random.RandomState, random.Random)):
        return _Draws(str(value.get_state() if isinstance(value, np.random.RandomState) else value.getstate()))
    return None


class _Draws(str):
    """The state of a random generator."""


def warn_of_state(before: dict[str, Any], op: Any, name: str) -> bool:
    """Warn if an item changes the state of a map that runs in several processes; return whether it does."""
    after = state_of(op)
    changed = [key for key, value in before.items() if key in after and after[key] != value]
    if draws := [key for key in changed if isinstance(after[key], _Draws)]:
        log.warning(
            "highway: Processes: %s draws from its own generator %s, and each process has a copy of it in the same state, so that all draw "
            "the same numbers; take the generator as an argument, rng: highway passes one for each item; %s",
            name,
            ", ".join(draws),
            _SWITCH,
        )
    if counts := [key for key in changed if key not in draws]:
        log.warning(
            "highway: Processes: %s changes its attribute %s with an item, and each process has an object of its own, which sees no "
            "items of the others; count in a stage before or after Processes, or return the value with the item; %s",
            name,
            ", ".join(counts),
            _SWITCH,
        )
    return bool(changed)


def _parts(item: Any) -> Iterator[Any]:
    """Yield the writable arrays, the lists and the dicts in an item. A tensor becomes an array that shares its memory."""
    if not isinstance(item, np.ndarray) and hasattr(item, "__dlpack__"):
        try:
            yield np.from_dlpack(item)
        except Exception:  # it is on a device, or has a dtype that NumPy lacks
            return
    if isinstance(item, np.ndarray):
        if item.flags.writeable and not item.dtype.hasobject:
            yield item
    elif isinstance(item, (list, tuple, dict)):
        if not isinstance(item, tuple):
            yield item
        for value in item.values() if isinstance(item, dict) else item:
            yield from _parts(value)


def _content(part: Any) -> Any:
    """Return a value that can be compared with the content of a part later."""
    if isinstance(part, np.ndarray):
        return xxhash.xxh3_128_digest(np.ascontiguousarray(part).reshape(-1).view(np.uint8).data)
    return [(key, id(value)) for key, value in (part.items() if isinstance(part, dict) else enumerate(part))]

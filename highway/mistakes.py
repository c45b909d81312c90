"""Warn about mistakes that do not raise an error, such as a map that writes into its input. Only the first items are checked.

``logging.getLogger("highway.mistakes").disabled = True`` switches these warnings off.
"""

from __future__ import annotations

import gc
import inspect
import logging
import random
from collections import deque
from collections.abc import Iterator, Sequence
from functools import partial
from types import CodeType, FrameType, FunctionType, ModuleType
from typing import Any, NamedTuple

import numpy as np
import xxhash

log = logging.getLogger("highway.mistakes")

FIRST_ITEMS = 4  # number of items that are checked
_MOST_BYTES = 1 << 26  # items whose arrays have more bytes are not checked
_ENOUGH_BYTES = 1 << 24  # after arrays with this number of bytes in total, no more items are checked
_MOST_ENTRIES = 1000  # lists and dicts with more entries are not compared
_MOST_OBJECTS = 5_000  # maximum number of objects to search for references to an item
_SWITCH = "logging.getLogger('highway.mistakes').disabled = True switches this warning off"


class _Part(NamedTuple):
    """A mutable part of an item: an array, a list or a dict."""

    value: Any
    ids: frozenset[int]  # the ids of the part and of the containers that contain it
    before: Any  # the content before the map was called


class InputWatch:
    """Detects whether a map writes into an item to which an earlier stage still refers, such as an element of the user's list.

    Args:
        earlier: The components before the map, with the names of their stages. They must not have started, because a started iterator
            refers to other objects than before.
    """

    def __init__(self, earlier: Sequence[tuple[Any, str]]) -> None:
        self._roots = [(_roots(component), stage) for component, stage in earlier]
        self._left, self._bytes = FIRST_ITEMS, _ENOUGH_BYTES

    def parts(self, item: Any) -> list[_Part]:
        """Return the mutable parts of an item, with their content."""
        found = list(_parts(item, frozenset()))
        size = sum(part.nbytes for part, _ in found if isinstance(part, np.ndarray))
        self._left, self._bytes = self._left - 1, self._bytes - size
        return [_Part(part, ids, _content(part)) for part, ids in found] if size <= _MOST_BYTES else []

    def warn(self, parts: list[_Part], name: str) -> bool:
        """Warn if the map has changed a part of an item to which an earlier stage refers. Return whether to stop checking."""
        written = [part for part in parts if _content(part.value) != part.before]
        seen = set[int]()
        holder = next((stage for roots, stage in self._roots if written and _holds(roots, written, seen)), None)
        if holder is not None:
            log.warning(
                "highway: the map %s writes into its input, which the stage %s still holds: this changes the data of the source, and "
                "the next epoch reads the changed data; return a new array, such as image * 2 for image *= 2, or copy the items first: "
                "Pipeline([..., copy.deepcopy, %s, ...]); %s",
                name,
                holder,
                name,
                _SWITCH,
            )
        return holder is not None or self._left <= 0 or self._bytes <= 0


def _roots(component: Any) -> list[Any]:
    """Return the objects from which to search: the component and, if it is an iterator such as ``zip``, the objects to which it refers."""
    found = [component]
    if hasattr(type(component), "__next__"):
        for one in found:  # the list grows during the loop
            if len(found) >= _MOST_ENTRIES:
                break
            if hasattr(type(one), "__next__") or isinstance(one, tuple):  # map() and zip() have a tuple of iterators
                found += gc.get_referents(one)
    return found


def _holds(roots: list[Any], written: list[_Part], seen: set[int]) -> bool:
    """Return whether the roots refer, directly or indirectly, to a changed part or its container. ``seen``: the visited objects."""
    ids = frozenset[int]().union(*(part.ids for part in written))
    arrays = [part.value for part in written if isinstance(part.value, np.ndarray)]
    waiting = deque(roots)
    while waiting and len(seen) < _MOST_OBJECTS:
        one = waiting.popleft()
        if id(one) in seen:
            continue
        seen.add(id(one))
        if (array := _as_array(one)) is not None and any(np.may_share_memory(array, part) for part in arrays):
            return True
        if isinstance(one, _CLOSED) or hasattr(type(one), "__next__"):  # an iterator refers to an item only while it yields the item
            continue
        inner = _inner(one)
        if not ids.isdisjoint(map(id, inner)):
            return True
        waiting.extend(inner[:_MOST_OBJECTS])
    return False


_CLOSED = (str, bytes, int, float, type, ModuleType, CodeType, FrameType, logging.Logger, logging.Handler)
"""Types of objects that do not refer to items."""


def _inner(one: Any) -> list[Any]:
    if isinstance(one, np.ndarray):
        return list(one.flat) if one.dtype.hasobject else []
    if isinstance(one, FunctionType):  # only the globals that it uses
        used = [one.__globals__[name] for name in one.__code__.co_names if name in one.__globals__]
        return [*used, *(one.__closure__ or ()), *(one.__defaults__ or ())]
    return gc.get_referents(one)


def state_of(op: Any) -> dict[str, Any]:
    """Return the state of a map: the counters, collections and random generators in its attributes and in the variables that it uses."""
    attributes = getattr(getattr(op, "__self__", op), "__dict__", {})
    found = {f"its attribute {name}": _state(value) for name, value in attributes.items() if not name.startswith("opened ")}
    function = op.func if isinstance(op, partial) else getattr(op, "__func__", op)
    if not isinstance(function, FunctionType):
        function = vars(type(function)).get("__call__")
    if isinstance(function, FunctionType):
        outside = inspect.getclosurevars(function)
        for kind, variables in (("global", outside.globals), ("outer", outside.nonlocals)):
            found |= {f"the {kind} variable {name}": _state_outside(value) for name, value in variables.items()}
    return {name: state for name, state in found.items() if state is not None}


def _state_outside(value: Any) -> Any:
    """Return the state of a variable, without flags and non-numeric entries of dicts, because each process sets them once."""
    if isinstance(value, dict):
        return repr([one for one in value.values() if isinstance(one, (int, float))])
    return None if isinstance(value, bool) else _state(value)


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
    """Warn if a call has changed the state of a map that runs in several processes. Return whether it has changed."""
    after = state_of(op)
    changed = [key for key, value in before.items() if key in after and after[key] != value]
    if draws := [key for key in changed if isinstance(after[key], _Draws)]:
        log.warning(
            "highway: Processes: %s draws from its own generator, %s. Each process has a copy of this generator in the same state, so "
            "all processes draw the same numbers; take the generator as an argument, rng: highway passes a generator for each item; %s",
            name,
            ", ".join(draws),
            _SWITCH,
        )
    if counts := [key for key in changed if key not in draws]:
        log.warning(
            "highway: Processes: %s changes %s with an item, but each process has its own copy, which does not change for items of "
            "other processes; count in a stage before or after Processes, or return the value with the item; %s",
            name,
            ", ".join(counts),
            _SWITCH,
        )
    return bool(changed)


def _as_array(value: Any) -> np.ndarray | None:
    """Return an array, or an array that shares the memory of a tensor. Return ``None`` for other values."""
    if isinstance(value, np.ndarray):
        return value
    if hasattr(type(value), "__dlpack__"):
        try:
            return np.from_dlpack(value)
        except Exception:  # the tensor is on a device, or NumPy does not have its dtype
            return None
    return None


def _parts(item: Any, outer: frozenset[int]) -> Iterator[tuple[Any, frozenset[int]]]:
    """Yield the writable arrays, the lists and the dicts in an item, each with the ids of itself and of its containers."""
    ids = outer | {id(item)}
    if (array := _as_array(item)) is not None:
        if array.flags.writeable and not array.dtype.hasobject:
            yield array, ids
    elif isinstance(item, (list, tuple, dict)) and len(item) <= _MOST_ENTRIES and id(item) not in outer:
        if not isinstance(item, tuple):
            yield item, ids
        for value in item.values() if isinstance(item, dict) else item:
            yield from _parts(value, ids)


def _content(part: Any) -> Any:
    """Return a hash or a copy of the content of a part, to detect changes."""
    if isinstance(part, np.ndarray):
        return xxhash.xxh3_128_digest(np.ascontiguousarray(part).reshape(-1).view(np.uint8).data)
    return [(key, id(value)) for key, value in (part.items() if isinstance(part, dict) else enumerate(part))]

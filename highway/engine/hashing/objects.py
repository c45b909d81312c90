"""Read the contents of an object: its constructor parameters, its pickled form, and its memory as an array."""

from __future__ import annotations

import contextlib
import copyreg
import dataclasses
import enum
import functools
import inspect
import sys
import types
import typing
from collections import deque
from collections.abc import Iterator
from pathlib import PurePath
from typing import Any, NamedTuple

import numpy as np

from highway.engine.hashing.code import Names, changed_while_running, is_users
from highway.parameters.hints import NAMED, parameters_of
from highway.parameters.ranges import Unhashed

FLAT = {type(None), bool, int, float, complex, str, bytes}  # simple types: equal values have equal marshalled bytes
LEAVES = (type, types.ModuleType, types.BuiltinFunctionType, np.generic, np.ndarray, np.dtype, np.ufunc, enum.Enum, PurePath)
_INERT = {"_thread", "threading", "logging", "concurrent", "queue", "_queue", "weakref", "_weakref", "_weakrefset"}
_RESOURCES = {"io", "_io", "tempfile", "sqlite3", "socket", "ssl", "subprocess", "multiprocessing", "asyncio", "_contextvars", "random"}


@functools.cache
def left_out(cls: type, whole: bool) -> frozenset[str]:
    """Return the parameters of a class that its constructor's annotations exclude from the hash.

    Args:
        cls: The class.
        whole: Whether the instance is a stage of a pipeline, not part of a component.
    """
    try:
        hints = {name: parameter.annotation for name, parameter in parameters_of(cls).items()}
    except (NameError, TypeError, ValueError, AttributeError):  # a hint cannot be evaluated: evaluate the hints one by one
        hints = {name: hint for base in cls.__mro__ for name, hint in _evaluated(base)}
    return frozenset(name for name, hint in hints.items() if any(whole or not note.of_stage for note in _notes(hint)))


def _evaluated(cls: type) -> Iterator[tuple[str, Any]]:
    """Yield the type hints of a class, except hints that cannot be evaluated, such as names imported only for type checkers."""
    for name, hint in vars(cls).get("__annotations__", {}).items():
        with contextlib.suppress(Exception):
            yield name, eval(hint, dict(vars(sys.modules[cls.__module__]))) if isinstance(hint, str) else hint


def _notes(hint: Any) -> Iterator[Unhashed]:
    yield from (note for note in getattr(hint, "__metadata__", ()) if isinstance(note, Unhashed))
    if typing.get_origin(hint) is typing.Annotated:
        yield from _notes(typing.get_args(hint)[0])


def attributes_held(value: Any) -> Iterator[tuple[str, Any]]:
    """Yield the names and values of the attributes that hold an object's parameters.

    The fields of a dataclass come first, in their order. All other attributes are sorted by name.

    Attributes that change while the object runs are skipped: cached properties, fields of a dataclass that are not parameters, and
    attributes that the methods of the object assign or fill. If the class belongs to an installed package, and its public attributes hold
    all required parameters, private attributes are also skipped.
    """
    cls = type(value)
    held = _held(value)
    names = sorted(held)
    if dataclasses.is_dataclass(cls):
        fields = dataclasses.fields(cls)
        yield from ((field.name, getattr(value, field.name, None)) for field in fields if field.init)
        if not is_users(cls):  # all other attributes follow from the fields
            return
        taken = {field.name for field in fields}
        has_more = any(getattr(field, "_field_type", None) is dataclasses._FIELD_INITVAR for field in cls.__dataclass_fields__.values())  # type: ignore[attr-defined]
        names = [name for name in names if name not in taken and (has_more or not name.startswith("_"))]
    kept = _kept(cls)  # type: ignore[arg-type]  # mypy: a class is not hashable
    if not is_users(cls):
        names = [name for name in names if _plain(name) in kept.given or not is_hidden(held[name])]
        own = [name for name in names if _plain(name) in kept.given or not name.startswith("_")]
        names = own if kept.needed <= {*map(_plain, own)} and own else names
    yield from ((name, held[name]) for name in names if not _is_changed_attribute(kept, name, held[name]))


def attributes_changed(value: Any) -> Iterator[tuple[str, Any]]:
    """Yield the attributes that the methods of an object assign or fill while it runs, sorted by name. Only for users' classes.

    Cached properties are skipped, because they follow from the other attributes.
    """
    cls = type(value)
    if is_users(cls):
        kept = _kept(cls)  # type: ignore[arg-type]  # mypy: a class is not hashable
        if kept.assigned or kept.filled:
            own = {*names_of_module(cls), *kept.cached}  # type: ignore[arg-type]
            names = sorted(_held(value).items(), key=lambda pair: pair[0])
            yield from ((name, part) for name, part in names if name not in own and _is_changed_attribute(kept, name, part))


def _is_changed_attribute(kept: _Kept, name: str, value: Any) -> bool:
    return name in kept.assigned or name in kept.cached or (name in kept.filled and is_container(value))


def _held(value: Any) -> dict[str, Any]:
    held = {**getattr(value, "__dict__", {}), **{name: getattr(value, name) for name in slots_of(type(value)) if hasattr(value, name)}}
    return {name: part for name, part in held.items() if isinstance(name, str) and name.isidentifier()}  # without names of @opened


def _plain(name: str) -> str:
    """Return the name of an attribute without its private prefix."""
    return name.split("__")[-1].lstrip("_")


class _Kept(NamedTuple):
    given: set[str]
    needed: set[str]
    cached: set[str]
    assigned: set[str]
    filled: set[str]


@functools.cache
def _kept(cls: type) -> _Kept:
    """Return the parameters of a constructor, and the attributes that the methods of the class assign later."""
    changed = changed_while_running(cls)
    cached = {name for base in cls.__mro__ for name, value in vars(base).items() if _is_kept_property(value)}
    try:
        parameters = {name: one for name, one in inspect.signature(cls).parameters.items() if one.kind in NAMED}
    except (TypeError, ValueError):
        parameters = {}
    needed = {name for name, one in parameters.items() if one.default is one.empty}
    assigned, filled = ({chain[0] for chain in chains if len(chain) == 1} for chains in (changed.assigned, changed.filled))
    return _Kept(
        {*parameters}, needed, *({name for name in found if _plain(name) not in parameters} for found in (cached, assigned, filled))
    )


def _is_kept_property(value: Any) -> bool:
    """Return whether a class attribute is a property that stores its value in the object, like :class:`functools.cached_property`."""
    kind = type(value)
    return hasattr(kind, "__get__") and not hasattr(kind, "__set__") and not isinstance(value, types.FunctionType)


def is_container(value: Any) -> bool:
    """Return whether a value is a container that can be filled in place, such as a list or dict."""
    return isinstance(value, (list, dict, set, bytearray, deque, np.ndarray))


def is_blank(value: Any) -> bool:
    """Return whether a value can be the initial value of a counter or cache: zero, ``None``, an empty container or an array of zeros."""
    if isinstance(value, np.ndarray):
        return value.dtype.kind in "biufc" and not value.any()
    return (type(value) in FLAT and not value) or (is_container(value) and not len(value))


def is_changed(names: Names, chain: tuple[str, ...], value: Any) -> bool:
    """Return whether a function assigns or fills the value at a chain of names."""
    return chain in names.assigned or (chain in names.filled and is_container(value))


def slots_of(cls: type) -> list[str]:
    found = (base.__dict__.get("__slots__", ()) for base in cls.__mro__)
    names = [name for slots in found for name in ([slots] if isinstance(slots, str) else slots)]
    return sorted(set(names) - {"__dict__", "__weakref__"})


def is_module(value: Any) -> bool:
    """Return whether a value is a module of torch."""
    return all(callable(getattr(type(value), name, None)) for name in ("parameters", "buffers", "children", "state_dict"))


@functools.cache
def names_of_module(cls: type) -> frozenset[str]:
    """Return the names of the attributes that every torch module has, such as those for parameters, buffers and hooks."""
    base = next((base for base in cls.__mro__ if base.__module__ == "torch.nn.modules.module"), None)
    return frozenset() if base is None else frozenset(vars(base()))


def is_trained(value: Any) -> bool:
    """Return whether a torch module has trainable parameters."""
    return any(getattr(parameter, "requires_grad", False) for parameter in value.parameters())


def seed_of(value: Any) -> Any:
    """Return the initial seed of a NumPy or torch generator, or ``None`` if it was not seeded."""
    if isinstance(value, (np.random.Generator, np.random.BitGenerator)):
        own: Any = getattr(value, "bit_generator", value)
        seeds = own.seed_seq
        entropy = getattr(seeds, "entropy", None)  # 128 random bits if no seed was given
        return None if entropy is None or (isinstance(entropy, int) and entropy >> 96) else (entropy, seeds.spawn_key)
    return value.initial_seed() if hasattr(type(value), "initial_seed") else None


def is_generator(value: Any) -> bool:
    """Return whether a value is a random number generator."""
    return isinstance(value, (np.random.Generator, np.random.BitGenerator, np.random.RandomState)) or hasattr(type(value), "initial_seed")


def pickled(value: Any) -> tuple[bool, tuple[Any, ...] | None]:
    """Return whether the class of an object defines how to pickle the object, and the result of ``__reduce_ex__``.

    The second value is ``None`` if the class does not define how to pickle the object, or if pickling fails.
    """
    cls = type(value)
    own = copyreg.dispatch_table.get(cls)
    changed = [name for name in ("__reduce_ex__", "__reduce__", "__getstate__") if getattr(cls, name) is not getattr(object, name)]
    if own is None and changed in ([], ["__getstate__"]):
        needed = set() if is_users(cls) or hasattr(cls, "__array_interface__") else _kept(cls).needed  # type: ignore[arg-type]
        if not changed or (needed and needed <= {*map(_plain, _held(value))}):
            return False, None
    try:
        found: Any = own(value) if own is not None else value.__reduce_ex__(5)
    except Exception:  # pickling can raise any error
        return True, None
    return True, found if isinstance(found, tuple) else (found,)


def is_tensor(value: Any) -> bool:
    return hasattr(type(value), "__dlpack__") and hasattr(value, "requires_grad")


def as_array(value: Any) -> np.ndarray | None:
    """Convert an array, a tensor in CPU memory or a buffer to an array. Return ``None`` for other values."""
    try:
        if is_tensor(value):
            return np.asarray(value.detach())
        return np.asarray(value) if isinstance(value, (np.ndarray, np.generic)) else np.frombuffer(value, np.uint8)
    except Exception:  # code of other packages can raise any error
        return None


def is_inert(value: Any) -> bool:
    """Return whether a value has no effect on items, such as a lock or a logger."""
    return type(value).__module__.partition(".")[0] in _INERT


def is_hidden(value: Any) -> bool:
    """Return whether each use of a value changes it. Examples are files, iterators and random number generators without a seed."""
    cls = type(value)
    if is_users(cls):
        return False
    is_used_up = hasattr(cls, "__next__") or cls.__module__.partition(".")[0] in _RESOURCES
    return is_used_up or (is_generator(value) and seed_of(value) is None)


def is_unknown(value: Any) -> bool:
    """Return whether only the type of a value can be hashed."""
    if isinstance(value, (*FLAT, *LEAVES, list, tuple, dict, set, frozenset, types.FunctionType, types.MethodType)) or is_inert(value):
        return False
    if is_hidden(value):
        return True
    if is_generator(value) or is_tensor(value) or as_array(value) is not None:
        return False
    is_own, state = pickled(value)
    if is_own:
        return state is None
    if hasattr(value, "__dict__") or slots_of(type(value)):
        return False
    try:
        value.__reduce_ex__(5)
    except Exception:
        return True
    return False

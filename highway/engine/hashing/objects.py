"""What an object holds: the attributes that it was made with, what it is pickled as, and its memory as an array."""

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

from highway.engine.hashing.code import changed_while_running
from highway.parameters.hints import parameters_of
from highway.parameters.ranges import Unhashed

FLAT = {type(None), bool, int, float, complex, str, bytes}  # whose marshalled bytes are always the same
LEAVES = (type, types.ModuleType, types.BuiltinFunctionType, np.generic, np.ndarray, np.dtype, np.ufunc, enum.Enum, PurePath)
INERT = ("_thread", "threading", "logging", "concurrent.futures.thread", "concurrent.futures.process")  # they change no item


@functools.cache
def left_out(cls: type, whole: bool) -> frozenset[str]:
    """Return the parameters of a class that its constructor's annotations exclude from the hash.

    Args:
        cls: The class.
        whole: Whether an instance is a whole stage of a pipeline, and no part of a component.
    """
    try:
        hints = {name: parameter.annotation for name, parameter in parameters_of(cls).items()}
    except (NameError, TypeError, ValueError, AttributeError):  # one of them cannot be evaluated
        hints = {name: hint for base in cls.__mro__ for name, hint in _evaluated(base)}
    return frozenset(name for name, hint in hints.items() if any(whole or not note.of_stage for note in _notes(hint)))


def _evaluated(cls: type) -> Iterator[tuple[str, Any]]:
    """Yield the hints in a class's body that can be evaluated one by one; imports may be there for type checkers alone."""
    for name, hint in vars(cls).get("__annotations__", {}).items():
        with contextlib.suppress(Exception):
            yield name, eval(hint, dict(vars(sys.modules[cls.__module__]))) if isinstance(hint, str) else hint


def _notes(hint: Any) -> Iterator[Unhashed]:
    yield from (note for note in getattr(hint, "__metadata__", ()) if isinstance(note, Unhashed))
    if typing.get_origin(hint) is typing.Annotated:
        yield from _notes(typing.get_args(hint)[0])


def attributes_held(value: Any) -> Iterator[tuple[str, Any]]:
    """Yield the attributes that an object was made with, by name, in the order of a dataclass's fields or else of the names.

    Not what it opens, caches or counts while it runs: properties that are kept, the fields of a dataclass that are no parameters, and
    attributes that its methods assign or fill.
    """
    cls = type(value)
    own = getattr(value, "__dict__", {})
    held = {**own, **{name: getattr(value, name) for name in slots_of(cls) if hasattr(value, name)}}
    names = sorted(name for name in held if isinstance(name, str) and name.isidentifier())  # not what @opened has kept
    if dataclasses.is_dataclass(cls):
        fields = dataclasses.fields(cls)
        yield from ((field.name, getattr(value, field.name, None)) for field in fields if field.init)
        taken = {field.name for field in fields}
        has_more = any(getattr(field, "_field_type", None) is dataclasses._FIELD_INITVAR for field in cls.__dataclass_fields__.values())  # type: ignore[attr-defined]
        names = [name for name in names if name not in taken and (has_more or not name.startswith("_"))]
        if cls.__module__.partition(".")[0] == "highway":  # whose other attributes follow from the fields
            return
    kept = _kept(cls)  # type: ignore[arg-type]  # mypy takes a class for not hashable
    yield from ((name, held[name]) for name in names if not (name in kept.assigned or (name in kept.filled and is_container(held[name]))))


class _Kept(NamedTuple):
    assigned: set[str]
    filled: set[str]


@functools.cache
def _kept(cls: type) -> _Kept:
    """Return the attributes that objects of a class get while they are used, and that are no parameters of the constructor."""
    changed = changed_while_running(cls)
    names = {name for base in cls.__mro__ for name, value in vars(base).items() if _is_kept_property(value)}
    names |= {chain[0] for chain in changed.assigned if len(chain) == 1}
    try:
        parameters = {*inspect.signature(cls).parameters}
    except (TypeError, ValueError):
        parameters = set()
    given = {name for name in names if name.lstrip("_") in parameters}
    return _Kept(names - given, {chain[0] for chain in changed.filled if len(chain) == 1 and chain[0].lstrip("_") not in parameters})


def _is_kept_property(value: Any) -> bool:
    """Return whether a class attribute is a property like :class:`functools.cached_property`, whose value is kept in the object."""
    kind = type(value)
    return hasattr(kind, "__get__") and not hasattr(kind, "__set__") and not isinstance(value, types.FunctionType)


def is_container(value: Any) -> bool:
    """Return whether a value is a list, a dict or the like, which may be filled in place."""
    return isinstance(value, (list, dict, set, bytearray, deque, np.ndarray))


def slots_of(cls: type) -> list[str]:
    found = (base.__dict__.get("__slots__", ()) for base in cls.__mro__)
    names = [name for slots in found for name in ([slots] if isinstance(slots, str) else slots)]
    return sorted(set(names) - {"__dict__", "__weakref__"})


def is_trained(value: Any) -> bool:
    """Return whether a value is a torch module with parameters that are trained."""
    parameters = getattr(type(value), "parameters", None)
    if not callable(parameters) or not callable(getattr(type(value), "state_dict", None)):
        return False
    try:
        return any(getattr(parameter, "requires_grad", False) for parameter in value.parameters())
    except Exception:  # it is something else
        return False


def pickled(value: Any) -> tuple[bool, tuple[Any, ...] | None]:
    """Return whether an object's class says how it is pickled, and as what; ``None`` if it cannot be."""
    cls = type(value)
    own = copyreg.dispatch_table.get(cls)
    if own is None and all(getattr(cls, name, None) is getattr(object, name) for name in ("__reduce_ex__", "__reduce__", "__getstate__")):
        return False, None
    try:
        found: Any = own(value) if own is not None else value.__reduce_ex__(5)
    except Exception:  # it raises what it likes
        return True, None
    return True, found if isinstance(found, tuple) else (found,)


def is_tensor(value: Any) -> bool:
    return hasattr(type(value), "__dlpack__") and hasattr(value, "requires_grad")


def as_array(value: Any) -> np.ndarray | None:
    """Return an array, a tensor in the memory of this machine, or a buffer as an array; ``None`` for anything else."""
    try:
        if is_tensor(value):
            return np.asarray(value.detach())
        return np.asarray(value) if isinstance(value, (np.ndarray, np.generic)) else np.frombuffer(value, np.uint8)
    except Exception:  # of other packages, which raise what they like
        return None


def is_unknown(value: Any) -> bool:
    """Return whether only the type of a value can be hashed."""
    if isinstance(value, (*FLAT, *LEAVES, list, tuple, dict, set, frozenset, types.FunctionType, types.MethodType)):
        return False
    if type(value).__module__ in INERT or is_tensor(value) or as_array(value) is not None:
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

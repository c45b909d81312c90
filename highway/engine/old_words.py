"""Read traits in the form of version 0.1.0: class attributes such as ``numbers_epochs = True``.

Until version 0.3, highway reads such attributes from classes that do not define ``__highway__``, and warns. An attribute counts only if
version 0.1.0 accepted its value for components with the shape of the class. A property never counts, because reading a property would run
the component's code.
"""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable
from typing import Any
from weakref import WeakSet

from highway.parameters.hints import takes_arguments

_ANY = "source map stream sink composite"


def _one_of(*values: Any) -> Callable[[Any], bool]:
    return lambda value: any(value is one or (isinstance(one, str) and value == one) for one in values)


def _method(count: int) -> Callable[[Any], bool]:
    return lambda value: inspect.isfunction(value) and takes_arguments(value, count + 1)


def _takes_stages(value: Any) -> bool:
    return inspect.isfunction(value) and list(inspect.signature(value).parameters)[1:] == ["stages"]


_BATCHES, _KINDS = _one_of("batches", "samples"), _one_of("in order", "reordered")
_OLD_WORDS: dict[str, list[tuple[str, Callable[[Any], bool]]]] = {  # by name: the shapes that could declare it, and a check of its value
    "makes": [(_ANY, _BATCHES)],
    "drops": [("map", _one_of(True))],
    "parallel": [("map", _one_of(True))],
    "draws": [(_ANY, _one_of(False))],
    "numbers_epochs": [(_ANY, _one_of(True))],
    "per_epoch": [("stream", _one_of(True))],
    "epochs": [("source", lambda value: type(value) is int)],
    "one_to_one": [("map stream", _KINDS)],
    "finishes": [("source", _one_of(True))],
    "skips_epochs": [("source", _one_of(False))],
    "whole_epochs": [("stream", _one_of(True))],
    "repeats": [("stream", _one_of(True))],
    "on_demand": [("source", _one_of(True))],
    "adds_a_stage": [(_ANY, _one_of(False))],
    "workers_parameter": [("map composite", lambda value: isinstance(value, str))],
    "length": [("source", _method(0)), ("stream", _method(1))],
    "remake": [("source", _method(3)), ("stream map", _method(2))],
    "identity": [("source", _method(0))],
    "ranks": [("source", _method(0))],
    "deal_anew": [("source", _method(3))],
    "stamped": [("source", _method(0))],
    "ahead": [("map", _method(0))],
    "start_threads": [(_ANY, _method(0))],
    "after": [(_ANY, _takes_stages)],
}
_warned: WeakSet[type] = WeakSet()


def old_words(op: Any) -> dict[str, Any]:
    """Return the traits that a user's component declares by attributes. Warn about such attributes, once for each class."""
    cls = type(op)
    if cls.__module__.partition(".")[0] in ("highway", "builtins"):
        return {}
    held: dict[str, Any] = {}
    for base in cls.__mro__:
        if "__highway__" in vars(base):  # ``__highway__`` replaces the attributes of this class and its bases
            held = {name: value for name, value in held.items() if not hasattr(base, name)}
            break
        held = {**vars(base), **held}
    else:
        held |= {name: value for name, value in getattr(op, "__dict__", {}).items() if not inspect.isfunction(value)}
    shape = _shape(cls)
    found = [
        name for name, rules in _OLD_WORDS.items() if name in held and any(shape in of.split() and fits(held[name]) for of, fits in rules)
    ]
    if found and cls not in _warned:
        _warned.add(cls)
        warnings.warn(
            f"{cls.__qualname__} declares {', '.join(found)} by an attribute, which highway reads until version 0.3; return "
            f"{', '.join(f'Traits({name}=...)' for name in found)} from its method __highway__(self)",
            FutureWarning,
            stacklevel=2,
        )
    declared = {name: getattr(op, name) for name in found}
    return declared | ({"ahead": lambda context: declared["ahead"]()} if "ahead" in declared else {})


def _shape(cls: type) -> str:
    """Return the shape of a component according to the methods of its class; empty if it has none of them."""
    methods = {"stages": "composite", "stream": "stream", "consume": "sink", "__iter__": "source", "__call__": "map"}
    return next((shape for method, shape in methods.items() if callable(getattr(cls, method, None))), "")

"""Read type hints, and describe them as text."""

from __future__ import annotations

import contextlib
import dataclasses
import enum
import functools
import inspect
import re
import sys
import types
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Annotated, Any, Literal

from highway.parameters.ranges import UNIONS, Range
from highway.renamed import applied_by

_PLAIN = (str, int, float, bool, bytes, list, dict, tuple, set, frozenset, object, type(None), Sequence, Mapping)
Parameters = Mapping[str, inspect.Parameter]
NAMED = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


@functools.cache
def parameters_of(found: Callable[..., Any]) -> Parameters:
    """Return a dict from names to parameters of a class or function. The type hints are evaluated.

    Raises:
        NameError: a hint uses a name that is not defined at run time.
    """
    try:
        hints = typing.get_type_hints(inspect.getattr_static(found, "__init__") if inspect.isclass(found) else found, include_extras=True)
    except NameError:
        if not dataclasses.is_dataclass(found):
            raise
        hints = typing.get_type_hints(found, include_extras=True)  # evaluates the hints of a base class in the module of the base class
    parameters = inspect.signature(found).parameters
    if inspect.isclass(found) and (texts := {name: one.annotation for name, one in parameters.items() if name not in hints}):
        hints |= _evaluated(found, texts)
    return {name: one.replace(annotation=hints.get(name, one.annotation)) for name, one in parameters.items()}


def readable_parameters(found: Callable[..., Any]) -> Parameters:
    """Return a dict from names to parameters of a class or function. A hint that cannot be evaluated is a text."""
    with contextlib.suppress(NameError, TypeError, ValueError):  # a hint cannot be evaluated, or there is no signature
        return parameters_of(found)
    with contextlib.suppress(TypeError, ValueError):
        return inspect.signature(found).parameters
    return {}


def _evaluated(found: type, annotations: dict[str, Any]) -> dict[str, Any]:
    """Return the type hints of a constructor that wraps another constructor with another signature, as in Albumentations."""
    module = next(kind.__module__ for kind in found.__mro__ if "__init__" in vars(kind))
    texts = {name: annotation for name, annotation in annotations.items() if isinstance(annotation, str)}
    return typing.get_type_hints(types.SimpleNamespace(__annotations__=texts), vars(sys.modules[module]), include_extras=True)


def takes_rng(function: Callable[..., Any]) -> bool:
    """Return whether a function has a parameter named ``rng``."""
    try:
        return "rng" in inspect.signature(function).parameters
    except (TypeError, ValueError):  # a built-in function without a signature
        return False


def takes_context(function: Callable[..., Any]) -> bool:
    """Return whether a function has a parameter named ``context`` without a default, or with the default ``None``."""
    try:
        parameter = inspect.signature(function).parameters.get("context")
    except (TypeError, ValueError):  # a built-in function without a signature
        return False
    return parameter is not None and parameter.default in (parameter.empty, None)


def takes_arguments(function: Callable[..., Any], count: int) -> bool:
    """Return whether a function accepts ``count`` positional arguments. Return ``False`` for a built-in function without a signature."""
    try:
        inspect.signature(function).bind(*range(count))
    except (TypeError, ValueError):
        return False
    return True


def describe_parameter(parameter: inspect.Parameter) -> str:
    """Return a parameter as it is written in source code: name, type, range and default."""
    stars = "*" * (parameter.kind is parameter.VAR_POSITIONAL) + "**" * (parameter.kind is parameter.VAR_KEYWORD)
    shown = "" if parameter.annotation is parameter.empty else f": {written(parameter.annotation)}"
    equals = " = " if shown else "="
    return f"{stars}{parameter.name}{shown}" + ("" if parameter.default is parameter.empty else f"{equals}{parameter.default!r}")


def written(hint: Any) -> str:
    """Return a type hint as it is written in source code, with the range.

    >>> written(Annotated[int | None, Range(ge=1)])
    'int (at least 1) | None'
    """
    origin, inner = typing.get_origin(hint), typing.get_args(hint)
    if origin is Annotated:
        parts = map(written, typing.get_args(inner[0]) if typing.get_origin(inner[0]) in UNIONS else inner[:1])
        ranges = [note for note in inner[1:] if isinstance(note, Range)]
        return " | ".join(part if part == "None" or not ranges else f"{part} ({ranges[0]})" for part in parts)
    if origin in UNIONS:
        return " | ".join(map(written, inner))
    if origin in (None, Literal, Callable):
        if origin is None and inspect.isclass(hint):
            return "None" if hint is type(None) else hint.__name__
        return str(hint).replace("collections.abc.", "").replace("typing.", "")
    return f"{origin.__name__}[{', '.join('...' if part is Ellipsis else written(part) for part in inner)}]"


def in_words(expected: str, words: Mapping[str, str]) -> str:
    """Replace the type names of msgspec, which are in backticks, by other words, such as the names of types in YAML."""
    return re.sub(r"`([^`]*)`", lambda quoted: " or ".join(words.get(word, word) for word in quoted[1].split(" | ")), expected)


def describe(hint: Any) -> str:
    """Return a text that describes the allowed values of a type hint.

    >>> describe(tuple[int, int] | None)
    '(int, int) or None'
    """
    origin, inner = typing.get_origin(hint), typing.get_args(hint)
    if hint is type(None):
        return "None"
    if origin is Literal:
        return one_of(inner)
    if origin is Annotated:
        return of_tuple(hint) or describe(inner[0])
    if origin in UNIONS:
        return " or ".join(map(describe, inner))
    if origin is tuple and inner[-1] is Ellipsis and inner[0] not in _PLAIN:
        return f"a list of {getattr(inner[0], '__name__', 'such')}"
    if origin is tuple:
        return f"({', '.join('...' if part is Ellipsis else describe(part) for part in inner)})"
    if Callable in (origin, hint):
        return "a function"
    if origin is not None and issubclass(origin, Mapping):
        return f"a dict of {describe(inner[0])} to {describe(inner[1])}"
    if origin is not None and inner:
        return f"a list of {describe(inner[0]).removeprefix('a ')}"
    name = getattr(hint, "__name__", str(hint))
    if hint in _PLAIN:
        return name
    members = vars(hint) if getattr(hint, "_is_protocol", False) else {}
    own = [name for name, member in members.items() if getattr(member, "__module__", "") == hint.__module__]
    methods = [name for name in members if not name.startswith("_")] or own
    return f"a {name}{', an object with ' if methods else ''}{', '.join(methods)}"


def of_tuple(hint: Any) -> str:
    """Return the description of a tuple in the conditions of its hint, or an empty text for any other hint.

    >>> of_tuple(Annotated[tuple[int, int], Range(ge=1, words="(height, width), at least 1")])
    '(height, width), at least 1'
    """
    inner = typing.get_args(hint)
    if typing.get_origin(hint) is not Annotated or typing.get_origin(inner[0]) is not tuple:
        return ""
    return next(filter(None, (note.words if isinstance(note, Range) else getattr(note, "expected", "") for note in inner[1:])), "")


def why_not(value: object, hint: Any) -> str:
    """Return why an object does not fit a hint: its attribute ``why_no_NAME``, or advice on how to use the object.

    The result is empty, or starts with a semicolon.
    """
    names = [getattr(one, "__name__", "") for one in alternatives(hint)]
    said = next((f"; {why}" for name in names if (why := getattr(value, f"why_no_{name}", ""))), "")
    return applied_by(value) if not said and "TransformLike" in names else said


def one_of(choices: Sequence[Any]) -> str:
    return " or ".join(map(repr, choices)) if len(choices) < 3 else f"one of {', '.join(map(str, choices))}"


def literals(hint: Any) -> list[Any]:
    """Return the values of all ``Literal`` types in a type hint."""
    inner = typing.get_args(hint)
    return list(inner) if typing.get_origin(hint) is Literal else [choice for part in inner for choice in literals(part)]


def alternatives(hint: Any) -> tuple[Any, ...]:
    """Return the parts of a union, or the hint itself."""
    return typing.get_args(hint) if typing.get_origin(hint) in UNIONS else (hint,)


@functools.cache
def is_nested(hint: Any) -> bool:
    """Return whether a type hint contains a component, a struct or a mapping. Parts of such values are converted separately."""
    origin = typing.get_origin(hint)
    if origin is Literal or hint in (Any, Ellipsis, inspect.Parameter.empty):
        return False
    if origin is not None:
        return origin in (dict, Callable, Mapping) or any(is_nested(part) for part in typing.get_args(hint))
    return inspect.isclass(hint) and hint not in _PLAIN and not issubclass(hint, enum.Enum)


def form(hint: Any) -> type | None:
    """Return ``list`` or ``dict`` if values that fit a hint have this form, otherwise ``None``."""
    origin = typing.get_origin(hint) or hint
    if origin is Annotated:
        return form(typing.get_args(hint)[0])
    if not inspect.isclass(origin):
        return None
    if issubclass(origin, Mapping) or hasattr(origin, "__struct_fields__"):
        return dict
    return list if issubclass(origin, Iterable) and not issubclass(origin, (str, bytes)) else None

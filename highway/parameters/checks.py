"""What is given for the parameters of a component, held against the type hints of its constructor: in Python and in YAML the same.

:func:`checked` decorates a class whose constructor is to be held to its hints. :class:`Converter` walks a value along a hint: the one of
the registry makes components of names on the way, the one here takes those that are made already.
"""

from __future__ import annotations

import collections.abc
import contextlib
import enum
import functools
import inspect
import itertools
import os
import re
import types
import typing
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from typing import Any, Literal, TypeVar

import numpy as np

from highway.errors import ConfigError, ParameterError
from highway.parameters.location import Key, Location, did_you_mean
from highway.renamed import current, new_name

UNIONS = (typing.Union, types.UnionType)
_PLAIN = (
    str,
    int,
    float,
    bool,
    bytes,
    list,
    dict,
    tuple,
    set,
    frozenset,
    object,
    type(None),
    collections.abc.Sequence,
    collections.abc.Mapping,
)


_T = TypeVar("_T")


def checked(cls: type[_T]) -> type[_T]:
    """Have a class check what its constructor is given: names and types, by its signature, before anything else runs.

    What stands for the same becomes what the hint says: numpy's numbers Python's, a path text, a list a tuple, a whole number a float.

    Raises (the constructor, from then on):
        ParameterError: names the class, the parameter, the value and what was expected.
    """
    construct = cls.__init__

    @functools.wraps(construct)
    def __init__(self: _T, *args: Any, **kwargs: Any) -> None:
        construct(self, **_arguments(type(self).__name__, construct, args, kwargs))

    setattr(cls, "__init__", __init__)  # noqa: B010  # mypy forbids the assignment
    return cls


def _arguments(name: str, construct: Callable[..., None], args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    parameters, hints = _schema(construct)
    if len(args) > len(parameters):
        raise ParameterError(f"{name} takes {len(parameters)} parameters at most, got {len(args)}: {', '.join(map(_short, args))}")
    given = dict(zip(parameters, args, strict=False))
    if strange := [key for key in kwargs if current(name, key, None)[0] not in parameters]:
        raise ParameterError("\n".join(unknown(name, key, parameters) for key in strange))
    for key, value in itertools.starmap(functools.partial(current, name), kwargs.items()):
        if key in given:
            raise ParameterError(f"{name}: {key} is given twice, as {_short(given[key])} by position and as {_short(value)} by name")
        given[key] = value
    if missing := needed(given, parameters):
        raise ParameterError(f"{name} needs {missing}")
    return {key: _IN_PYTHON.convert(value, hints.get(key, Any), Location((name, key))) for key, value in given.items()}


@functools.cache
def _schema(construct: Callable[..., None]) -> tuple[dict[str, inspect.Parameter], dict[str, Any]]:
    _, *parameters = inspect.signature(construct).parameters.values()  # all but self
    return {parameter.name: parameter for parameter in parameters}, typing.get_type_hints(construct)


def unknown(component: str, key: str, known: Iterable[str]) -> str:
    """Return what to say of a parameter that a component does not have: what it is called now, or which ones there are."""
    return f"unknown parameter {key!r} of {component}{new_name(component, key) or did_you_mean(key, known)}"


def needed(given: Container[str], parameters: Mapping[str, inspect.Parameter]) -> str:
    """Return which parameters without a default are not given, as one writes them; empty if none is missing."""
    missing = [one for name, one in parameters.items() if name not in given and one.default is one.empty and one.kind in NAMED]
    return " and ".join(map(describe_parameter, missing))


NAMED = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


def describe_parameter(parameter: inspect.Parameter) -> str:
    """Return a parameter as one writes it: its name, type and default."""
    stars = "*" * (parameter.kind is parameter.VAR_POSITIONAL) + "**" * (parameter.kind is parameter.VAR_KEYWORD)
    hint = parameter.annotation
    shown = "" if hint is parameter.empty else f": {hint if isinstance(hint, str) else inspect.formatannotation(hint)}"
    equals = " = " if shown else "="
    return f"{stars}{parameter.name}{shown}" + ("" if parameter.default is parameter.empty else f"{equals}{parameter.default!r}")


class Converter:
    """Makes of a value what a type hint says: lists tuples, whole numbers floats."""

    def component(self, value: Any, hint: Any, location: Location) -> Any:
        """Return the object that ``value`` stands for where the hint is a class (or ``Callable``)."""
        raise NotImplementedError

    def misfit(self, value: Any, expected: str, location: Location, hint: Any = None, choices: Sequence[Any] = ()) -> ConfigError:
        """Return the error for a value that is not what msgspec ``expected``: what the ``hint`` says, or one of the ``choices``."""
        raise NotImplementedError

    def convert(self, value: Any, hint: Any, location: Location) -> Any:
        """Return a ``value`` as its type ``hint`` says.

        Raises:
            ConfigError: the value does not fit; the message names the location.
        """
        if not is_nested(hint):
            return self.plain(value, hint, location)
        origin, inner = typing.get_origin(hint), typing.get_args(hint)
        if origin is typing.Annotated:
            return self.convert(value, inner[0], location)
        if origin in UNIONS:
            return self.union(value, inner, location)
        if origin is None or origin is collections.abc.Callable:
            return self.component(value, hint, location)
        if issubclass(origin, collections.abc.Mapping):
            if not isinstance(value, collections.abc.Mapping):
                raise self.misfit(value, "`object`", location, hint)
            mapping = self.plain(value, types.GenericAlias(dict, (inner[0], Any)), location)
            return {key: self.convert(part, inner[1], location / key) for key, part in mapping.items()}
        if not isinstance(value, (list, tuple)):
            raise self.misfit(value, "`array`", location, hint)
        converted = [self.convert(part, inner[0], location / index) for index, part in enumerate(value)]
        return tuple(converted) if origin is tuple else converted

    def union(self, value: Any, alternatives: tuple[Any, ...], location: Location) -> Any:
        """What the first alternative that fits makes of it; the error is that of the last one that has the value's form."""
        if value is None and type(None) in alternatives:
            return None
        form = list if isinstance(value, tuple) else type(value)
        some = [alternative for alternative in alternatives if alternative is not type(None)]
        some = [alternative for alternative in some if _form(alternative) in (form, None)] or some
        some.sort(key=lambda alternative: _form(alternative) is form)
        for alternative in some[:-1]:
            with contextlib.suppress(ConfigError):
                return self.convert(value, alternative, location)
        return self.convert(value, some[-1], location)

    def plain(self, value: Any, hint: Any, location: Location) -> Any:
        """Return a value that holds no components as its hint says."""
        import msgspec  # takes 10 ms, which who constructs nothing need not spend

        try:
            return msgspec.convert(value, hint, strict=True)
        except msgspec.ValidationError:
            try:
                return msgspec.convert(_simple(value), hint, strict=True)
            except msgspec.ValidationError as error:
                message, _, path = str(error).partition(" - at `$")
        whole = hint
        for key in _keys(path):
            if not isinstance(value, (dict, list, tuple)):
                break
            value, location, hint = value[key], location / key, None  # type: ignore[index]
        choices = _literals(whole) if message.startswith("Invalid enum value") else []
        raise self.misfit(value, message.partition(", got ")[0].removeprefix("Expected "), location, hint, choices)


class _InPython(Converter):
    def union(self, value: Any, alternatives: tuple[Any, ...], location: Location) -> Any:
        try:
            return super().union(value, alternatives, location)
        except ParameterError:
            if isinstance(value, (list, tuple, collections.abc.Mapping)):
                raise
            raise self.misfit(value, "`object`", location, typing.Union[alternatives]) from None  # noqa: UP007

    def component(self, value: Any, hint: Any, location: Location) -> Any:
        if typing.get_origin(hint) is collections.abc.Callable or hint is collections.abc.Callable:
            fits = callable(value)
        else:
            fits = isinstance(value, hint) and (not inspect.isclass(value) or isinstance(_ANYTHING, hint))
        if not fits:
            raise self.misfit(value, "`object`", location, hint)
        return value

    def misfit(self, value: Any, expected: str, location: Location, hint: Any = None, choices: Sequence[Any] = ()) -> ConfigError:
        name, parameter, *rest = location.path
        where = f"{parameter}{''.join(f'[{key!r}]' for key in rest)}={_short(value)}"
        if choices:
            expected = _one_of(choices)
        elif hint is not None and any(word in expected for word in ("array", "object")):
            expected = describe(hint)
        advice = f"; {value.__name__} is a class, an instance is meant: {value.__name__}(...)" if inspect.isclass(value) else ""
        return ParameterError(f"{name}: {where}; expected {in_words(expected, _WORDS)}{advice}")


_ANYTHING = object()
_IN_PYTHON = _InPython()
_WORDS = {"array": "list", "object": "dict", "null": "None"}


def in_words(expected: str, words: Mapping[str, str]) -> str:
    """Return what msgspec expected in other words, such as YAML's; its own stand in backticks."""
    return re.sub(r"`([^`]*)`", lambda quoted: " or ".join(words.get(word, word) for word in quoted[1].split(" | ")), expected)


def describe(hint: Any) -> str:
    """Return what a type hint allows, as one says it.

    >>> describe(tuple[int, int] | None)
    '(int, int) or None'
    """
    origin, inner = typing.get_origin(hint), typing.get_args(hint)
    if hint is type(None):
        return "None"
    if origin is Literal:
        return _one_of(inner)
    if origin is typing.Annotated:
        return describe(inner[0])
    if origin in UNIONS:
        return " or ".join(map(describe, inner))
    if origin is tuple:
        return f"({', '.join('...' if part is Ellipsis else describe(part) for part in inner)})"
    if origin is collections.abc.Callable or hint is collections.abc.Callable:
        return "a function"
    if origin is not None and issubclass(origin, collections.abc.Mapping):
        return f"a dict of {describe(inner[0])} to {describe(inner[1])}"
    if origin is not None and inner:
        return f"a list of {describe(inner[0]).removeprefix('a ')}"
    name = getattr(hint, "__name__", str(hint))
    if hint in _PLAIN:
        return name
    methods = [method for method in vars(hint) if not method.startswith("_")] if getattr(hint, "_is_protocol", False) else []
    return f"a {name}{', an object with ' if methods else ''}{', '.join(methods)}"


def _one_of(choices: Sequence[Any]) -> str:
    return " or ".join(map(repr, choices)) if len(choices) < 3 else f"one of {', '.join(map(str, choices))}"


def _literals(hint: Any) -> list[Any]:
    inner = typing.get_args(hint)
    return list(inner) if typing.get_origin(hint) is Literal else [choice for part in inner for choice in _literals(part)]


@functools.cache
def is_nested(hint: Any) -> bool:
    """Say whether a type hint has a component, a struct or a mapping in it, so that its parts are converted one by one."""
    origin = typing.get_origin(hint)
    if origin is Literal or hint in (Any, Ellipsis, inspect.Parameter.empty):
        return False
    if origin is not None:
        own = origin in (dict, collections.abc.Callable, collections.abc.Mapping)
        return own or any(is_nested(part) for part in typing.get_args(hint))
    return inspect.isclass(hint) and hint not in _PLAIN and not issubclass(hint, enum.Enum)


def _form(hint: Any) -> type | None:
    """What a value has to be so that it can be meant: a list, a mapping, or ``None`` for what may be one or the other."""
    origin = typing.get_origin(hint) or hint
    if origin is typing.Annotated:
        return _form(typing.get_args(hint)[0])
    if not inspect.isclass(origin):
        return None
    if issubclass(origin, collections.abc.Mapping) or hasattr(origin, "__struct_fields__"):
        return dict
    return list if issubclass(origin, collections.abc.Iterable) and not issubclass(origin, (str, bytes)) else None


def _simple(value: Any) -> Any:
    """Return a value with Python's own numbers, texts and lists in place of what stands for the same."""
    if isinstance(value, (np.generic, np.ndarray)):
        return value.tolist()
    if isinstance(value, np.dtype) or (inspect.isclass(value) and issubclass(value, np.generic)):
        return np.dtype(value).name
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if isinstance(value, Mapping):
        return {_simple(key): _simple(part) for key, part in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, (str, bytes)):
        return [_simple(part) for part in value]
    return value


def _keys(path: str) -> list[Key]:
    """The keys in msgspec's ``.name[0][...]``, as far as it tells them."""
    known, _, _ = path.rstrip("`").partition("[...]")
    return [int(index) if index else name for name, index in re.findall(r"\.(\w+)|\[(\d+)\]", known)]


def _short(value: object) -> str:
    shown = repr(value)
    return shown if len(shown) <= 80 else f"{shown[:77]}..."

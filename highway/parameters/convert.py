"""Convert values to the types of hints, such as lists to tuples, or integers to floats. Errors contain the location of the value."""

from __future__ import annotations

import inspect
import os
import re
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Protocol

import numpy as np

from highway.errors import ConfigError
from highway.parameters.hints import form, is_nested, literals
from highway.parameters.location import Key, Location
from highway.parameters.ranges import UNIONS, unmet


class Notation(Protocol):
    """How values are written: in Python or in YAML."""

    names_unions: bool
    """Whether an error lists all alternatives of a union. If false, it shows only the last alternative that has the form of the value."""

    def component(self, value: Any, hint: Any, location: Location) -> Any:
        """Return the component for ``value``. The hint is a class or ``Callable``."""

    def misfit(self, value: Any, expected: str, location: Location, hint: Any = None, choices: Sequence[Any] = ()) -> ConfigError:
        """Return the error for a value that does not fit. The message gives ``expected`` (a type of msgspec), ``hint`` or ``choices``."""


def argument(value: Any, parameter: inspect.Parameter, location: Location, notation: Notation) -> Any:
    """Convert a ``value`` to the type hint of a parameter, and check its range.

    Raises:
        ConfigError: the value does not fit. The message names the location.
    """
    hint = Any if parameter.annotation is parameter.empty else parameter.annotation
    converted = convert(value, hint, location, notation)
    if expected := unmet(converted, hint):
        raise notation.misfit(converted, expected, location)
    return converted


def convert(value: Any, hint: Any, location: Location, notation: Notation) -> Any:
    """Convert a ``value`` to a type ``hint``.

    Raises:
        ConfigError: the value does not fit. The message names the location.
    """
    if not is_nested(hint):
        return plain(value, hint, location, notation)
    origin, inner = typing.get_origin(hint), typing.get_args(hint)
    if origin is typing.Annotated:
        return convert(value, inner[0], location, notation)
    if origin in UNIONS:
        return _union(value, inner, location, notation)
    if origin in (None, Callable):
        return notation.component(value, hint, location)
    if issubclass(origin, Mapping):
        if not isinstance(value, Mapping):
            raise notation.misfit(value, "`object`", location, hint)
        mapping = plain(value, types.GenericAlias(dict, (inner[0], Any)), location, notation)
        return {key: convert(part, inner[1], location / key, notation) for key, part in mapping.items()}
    if not isinstance(value, (list, tuple)):
        raise notation.misfit(value, "`array`", location, hint)
    converted = [convert(part, inner[0], location / index, notation) for index, part in enumerate(value)]
    return tuple(converted) if origin is tuple else converted


def plain(value: Any, hint: Any, location: Location, notation: Notation) -> Any:
    """Convert a value to a type hint that contains no components. Raises the errors of :func:`convert`."""
    import msgspec  # imported here, because this import takes 10 ms

    try:
        return msgspec.convert(value, hint, strict=True, str_keys=True)  # str_keys, because keys in YAML are texts
    except TypeError:
        if typing.get_origin(hint) not in UNIONS:
            raise
        return _union(value, typing.get_args(hint), location, notation)  # msgspec cannot distinguish, for example, two list types
    except msgspec.ValidationError:
        try:
            return msgspec.convert(_simple(value), hint, strict=True, str_keys=True)
        except msgspec.ValidationError as error:
            message, _, path = str(error).partition(" - at `$")
    whole = hint
    for key in _keys(path):
        if not isinstance(value, (dict, list, tuple)):
            break
        value, location, hint = value[key], location / key, None  # type: ignore[index]
    choices = literals(whole) if message.startswith("Invalid enum value") else []
    raise notation.misfit(value, message.partition(", got ")[0].removeprefix("Expected "), location, hint, choices)


def _union(value: Any, alternatives: tuple[Any, ...], location: Location, notation: Notation) -> Any:
    """Convert a value to the first type of a union to which it fits."""
    if value is None and type(None) in alternatives:
        return None
    kind = list if isinstance(value, tuple) else type(value)
    some = [alternative for alternative in alternatives if alternative is not type(None)]
    some = [alternative for alternative in some if form(alternative) in (kind, None)] or some
    some.sort(key=lambda alternative: form(alternative) is kind)
    for alternative in some[:-1]:
        with suppress(ConfigError):
            return convert(value, alternative, location, notation)
    try:
        return convert(value, some[-1], location, notation)
    except ConfigError:
        if not notation.names_unions or isinstance(value, (list, tuple, Mapping)):
            raise
        raise notation.misfit(value, "`object`", location, typing.Union[alternatives]) from None  # noqa: UP007


def _simple(value: Any) -> Any:
    """Convert NumPy values, dtypes, paths and sequences, also in dicts and lists, to plain Python values."""
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
    """Return the keys in a path of msgspec, such as ``.name[0][...]``, before the first unknown key."""
    known, _, _ = path.rstrip("`").partition("[...]")
    return [int(index) if index else name for name, index in re.findall(r"\.(\w+)|\[(\d+)\]", known)]

"""Values as type hints say: lists become tuples, whole numbers floats; what does not fit is an error that names its location."""

from __future__ import annotations

import collections.abc
import contextlib
import inspect
import os
import re
import types
import typing
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from highway.errors import ConfigError
from highway.parameters.hints import form, is_nested, literals
from highway.parameters.location import Key, Location
from highway.parameters.ranges import UNIONS, unmet


class Converter:
    """Makes of a value what a type hint says: lists tuples, whole numbers floats."""

    def component(self, value: Any, hint: Any, location: Location) -> Any:
        """Return the object that ``value`` stands for where the hint is a class (or ``Callable``)."""
        raise NotImplementedError

    def misfit(self, value: Any, expected: str, location: Location, hint: Any = None, choices: Sequence[Any] = ()) -> ConfigError:
        """Return the error for a value that is not what msgspec ``expected``: what the ``hint`` says, or one of the ``choices``."""
        raise NotImplementedError

    def argument(self, value: Any, parameter: inspect.Parameter, location: Location) -> Any:
        """Return a ``value`` as the type hint of a parameter says, and within the range beside it.

        Raises:
            ConfigError: the value does not fit; the message names the location.
        """
        hint = Any if parameter.annotation is parameter.empty else parameter.annotation
        converted = self.convert(value, hint, location)
        if expected := unmet(converted, hint):
            raise self.misfit(converted, expected, location)
        return converted

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
        kind = list if isinstance(value, tuple) else type(value)
        some = [alternative for alternative in alternatives if alternative is not type(None)]
        some = [alternative for alternative in some if form(alternative) in (kind, None)] or some
        some.sort(key=lambda alternative: form(alternative) is kind)
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
        choices = literals(whole) if message.startswith("Invalid enum value") else []
        raise self.misfit(value, message.partition(", got ")[0].removeprefix("Expected "), location, hint, choices)


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

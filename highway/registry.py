"""From names and plain values to components: the constructor's signature, with its type hints, is the schema.

There is no second list of parameters anywhere. A hint that is itself a class of components (``Transform``, ``BoxCrop``) means a component
by name, written in the same way as a stage; ``Callable`` means one that can be called, or a function, as ``package.module:name``.
"""

from __future__ import annotations

import collections.abc
import contextlib
import enum
import inspect
import re
import types
import typing
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import msgspec

from highway.components import Components, built_in, describe_parameter
from highway.errors import ConfigError, HighwayError
from highway.place import Key, Place, did_you_mean, show
from highway.stage import Stage, shape_of

STAGE_SETTINGS: Mapping[str, Any] = {name: hint for name, hint in typing.get_type_hints(Stage).items() if name != "op"}

_UNIONS = (typing.Union, types.UnionType)
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
_WORDS = {"array": "list", "object": "mapping", "null": "null"}  # msgspec's words for what YAML calls otherwise


@dataclass(frozen=True)
class Registry:
    """Builds components from plain values as a YAML file holds them.

    Args:
        components: What may be named.
    """

    components: Components = field(default_factory=Components)

    def build_stage(self, spec: Any, place: Place) -> Stage:
        """Return the stage that ``spec`` describes: a component as for :meth:`build`, with the settings of ``Stage`` beside its name.

        Raises:
            ConfigError: anything about it is wrong; the message begins with the place.
        """
        settings: dict[str, Any] = {}
        if isinstance(spec, dict):
            settings = {key: self.convert(value, STAGE_SETTINGS[key], place / key) for key, value in spec.items() if key in STAGE_SETTINGS}
            spec = {key: value for key, value in spec.items() if key not in settings}
            if settings and not spec:
                raise place.error(f"settings of a stage ({', '.join(settings)}), but no component that they are for")
            if len(spec) > 1:
                raise self._crowded(spec, place)
        op = self.build(spec, place)
        name = type(op).__name__
        if type(op) is built_in("highway.transforms").get(name):
            raise place.error(f"{name} transforms one image and is no stage of its own; write  Augmentations: [{name}]")
        try:
            stage = Stage(op, **settings)
            shape_of(op, first=True)
        except HighwayError as error:
            raise place.error(str(error)) from None
        return stage

    def build(self, spec: Any, place: Place) -> Any:
        """Return the component that ``spec`` describes: ``Name``, ``{Name: first_parameter}`` or ``{Name: {parameter: value, ...}}``.

        Raises:
            ConfigError: anything about it is wrong; the message begins with the place.
        """
        if isinstance(spec, str):
            name, given = spec, None
        elif isinstance(spec, dict) and len(spec) == 1:
            ((name, given),) = spec.items()
            place = place / name
        else:
            raise place.error(f"expected a component, as  Name  or  Name: value  or  Name: {{parameter: value}}; got {show(spec)}")
        found = self.components.find(str(name), place)
        if not inspect.isclass(found):
            if given is not None:
                raise place.error(f"{name} is a function, which is a stage as it is; it takes no parameters here")
            return found
        arguments = self._arguments(found, given, place)
        try:
            return found(**arguments)
        except HighwayError as error:
            raise place.error(str(error)) from None
        except Exception as error:
            raise place.error(f"{found.__name__}: {type(error).__name__}: {error}") from error

    def _arguments(self, cls: type, given: Any, place: Place) -> dict[str, Any]:
        """What was given, checked against the signature of ``cls``, by the names of its parameters."""
        parameters = inspect.signature(cls).parameters
        names = [
            name for name, parameter in parameters.items() if parameter.kind in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY)
        ]
        hints = _hints(cls, place)
        rest = next((name for name, parameter in parameters.items() if parameter.kind is parameter.VAR_KEYWORD), None)
        if given is None or isinstance(given, dict):
            places = {key: (value, place / key) for key, value in (given or {}).items()}
        elif names:
            places = {names[0]: (given, place)}
        else:
            raise place.error(f"{cls.__name__} takes no parameters; got {show(given)}")
        for key, (_, where) in places.items():
            if key not in names and rest is None:
                raise where.error(f"unknown parameter {key!r} of {cls.__name__}{did_you_mean(key, names)}")
        missing = [name for name in names if name not in places and parameters[name].default is inspect.Parameter.empty]
        if missing:
            needed = " and ".join(describe_parameter(parameters[name]) for name in missing)
            raise place.error(f"{cls.__name__} needs {needed}; `highway list {cls.__name__}` shows all it takes")
        return {
            key: self.convert(value, hints.get(key if key in names else rest or key, Any), where) for key, (value, where) in places.items()
        }

    def convert(self, value: Any, hint: Any, place: Place) -> Any:
        """Return a plain ``value`` as its type ``hint`` says: lists as tuples, whole numbers as floats, names as components.

        Raises:
            ConfigError: the value does not fit; the message begins with the place.
        """
        if not is_nested(hint):
            return _convert_plain(value, hint, place)
        origin, inner = typing.get_origin(hint), typing.get_args(hint)
        if origin is typing.Annotated:
            return self.convert(value, inner[0], place)
        if origin in _UNIONS:
            return self._convert_union(value, inner, place)
        if origin is collections.abc.Callable:
            return self._convert_component(value, typing.cast(type, origin), place)
        if hint is Stage:
            return self.build_stage(value, place)
        if origin is None:
            convert = self._convert_struct if issubclass(hint, msgspec.Struct) else self._convert_component
            return convert(value, hint, place)
        if issubclass(origin, collections.abc.Mapping):
            mapping = _convert_plain(value, types.GenericAlias(dict, (inner[0], Any)), place)
            return {key: self.convert(part, inner[1], place / key) for key, part in mapping.items()}
        parts = _convert_plain(value, list, place)
        converted = [self.convert(part, inner[0], place / index) for index, part in enumerate(parts)]
        return tuple(converted) if origin is tuple else converted

    def _convert_union(self, value: Any, alternatives: tuple[Any, ...], place: Place) -> Any:
        """What the first alternative that fits makes of it; the error is that of the last one that has the value's form."""
        if value is None and type(None) in alternatives:
            return None
        some = [alternative for alternative in alternatives if alternative is not type(None)]
        some = [alternative for alternative in some if _form(alternative) in (type(value), None)] or some
        some.sort(key=lambda alternative: _form(alternative) is type(value))
        for alternative in some[:-1]:
            with contextlib.suppress(ConfigError):
                return self.convert(value, alternative, place)
        return self.convert(value, some[-1], place)

    def _convert_struct(self, value: Any, hint: type[msgspec.Struct], place: Place) -> Any:
        mapping = _convert_plain(value, dict[str, Any], place)
        known = {one.encode_name: one for one in msgspec.structs.fields(hint)}
        for key in mapping:
            if key not in known:
                raise (place / key).error(f"unknown key {key!r}{did_you_mean(key, known)}")
        for key, one in known.items():
            if one.required and key not in mapping:
                raise place.error(f"the key {key!r} is missing")
        return hint(**{known[key].name: self.convert(part, known[key].type, place / key) for key, part in mapping.items()})

    def _convert_component(self, value: Any, hint: type, place: Place) -> Any:
        component = self.build(value, place)
        if not isinstance(component, hint):
            names = self.components.names(hint)
            raise place.error(f"{type(component).__name__} is no {hint.__name__}; expected one of {', '.join(names)}")
        return component

    def _crowded(self, spec: Mapping[Any, Any], place: Place) -> ConfigError:
        known = self.components.names()
        named = [str(key) for key in spec if key in known or ":" in str(key)]
        if len(named) > 1:
            return place.error(f"{' and '.join(named)} in one item of the list; begin each stage with '- '")
        unknown: Key = next(key for key in spec if key not in named)
        message = f"unknown setting {unknown!r} of a stage{did_you_mean(unknown, STAGE_SETTINGS)}"
        if named and not message.endswith("?"):
            message += f"; a parameter of {named[0]} stands below it, indented further"
        return (place / unknown).error(message)


def _hints(cls: type, place: Place) -> dict[str, Any]:
    try:
        return typing.get_type_hints(inspect.getattr_static(cls, "__init__"))
    except NameError as error:
        raise place.error(f"the type hints of {cls.__name__} cannot be read: {error}; import what they name at run time too") from None


def _convert_plain(value: Any, hint: Any, place: Place) -> Any:
    """Check a value that holds no components, and say what is wrong in the words of YAML."""
    try:
        return msgspec.convert(value, hint, strict=True)
    except msgspec.ValidationError as error:
        message, _, path = str(error).partition(" - at `$")
        for key in _keys(path):
            if not isinstance(value, (dict, list)):
                break
            value, place = value[key], place / key  # type: ignore[index]
        raise place.error(_reword(message, value, hint)) from None


def _keys(path: str) -> list[Key]:
    """The keys in msgspec's ``.name[0][...]``, as far as it tells them."""
    known, _, _ = path.rstrip("`").partition("[...]")
    return [int(index) if index else name for name, index in re.findall(r"\.(\w+)|\[(\d+)\]", known)]


def _reword(message: str, value: Any, hint: Any) -> str:
    if message.startswith("Invalid enum value"):
        choices = [str(choice) for choice in _literals(hint)]
        return f"got {show(value)}{did_you_mean(value, choices)}"
    expected, _, _ = message.partition(", got ")
    words = re.sub(r"`([^`]*)`", lambda quoted: " or ".join(_WORDS.get(word, word) for word in quoted[1].split(" | ")), expected)
    advice = ""
    if isinstance(value, str) and value.lower() in ("yes", "no", "on", "off") and "bool" in words:
        advice = "; write true or false"
    elif isinstance(value, (int, float)) and "str" in words:
        advice = "; put it in quotes to make it text"
    return f"{words[:1].lower()}{words[1:]}, got {show(value)}{advice}"


def _literals(hint: Any) -> list[Any]:
    inner = typing.get_args(hint)
    return list(inner) if typing.get_origin(hint) is Literal else [choice for part in inner for choice in _literals(part)]


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
    if issubclass(origin, (collections.abc.Mapping, msgspec.Struct)):
        return dict
    return list if issubclass(origin, collections.abc.Iterable) and not issubclass(origin, (str, bytes)) else None

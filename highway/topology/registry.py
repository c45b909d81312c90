"""Build components from names and plain values. The signature and the type hints of the constructor are the schema.

If a hint is a class of components (``TransformLike``, ``Dataset``), the value describes a component as in a list of stages, such as
``{Name: parameter}``. If a hint is ``Callable``, the value describes a callable component, or names a function as ``package.module:name``.
"""

from __future__ import annotations

import functools
import inspect
import typing
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from highway.datasets.dataset import Dataset
from highway.engine.component import Component, shape_of
from highway.engine.stage import Stage
from highway.errors import ConfigError, HighwayError
from highway.parameters.checks import needed, unknown
from highway.parameters.convert import argument, convert, plain
from highway.parameters.hints import NAMED, Parameters, alternatives, in_words, of_tuple, parameters_of, why_not
from highway.parameters.location import Key, Location, did_you_mean, show
from highway.renamed import current
from highway.topology.components import Components, NotImported, built_in_class, is_path

STAGE_SETTINGS = {name: parameter for name, parameter in parameters_of(Stage).items() if name != "op"}

_NO_STAGES = {  # by package: the error message if one of its components is used as a stage
    "highway.transforms": "is not a stage, because it transforms one image; write  Augmentations: [{}]",
    "highway.datasets": "is a dataset, not a stage; write  Reader: {{dataset: {{{}: ...}}}}",
}
_WORDS = {"array": "list", "object": "mapping", "null": "null"}  # maps msgspec's word for a type to YAML's word


@dataclass(frozen=True)
class Registry:
    """Builds components from the plain values of a YAML file. ``components`` finds the components by name."""

    components: Components = field(default_factory=Components)
    names_unions = False

    def build_stage(self, spec: Any, location: Location) -> Stage:
        """Return the stage that ``spec`` describes: a component as for :meth:`build`, and settings of ``Stage`` as further keys.

        Raises:
            ConfigError: ``spec`` has an error. The message begins with the location.
        """
        settings: dict[str, Any] = {}
        if isinstance(spec, dict):
            settings = {
                key: argument(value, STAGE_SETTINGS[key], location / key, self) for key, value in spec.items() if key in STAGE_SETTINGS
            }
            spec = {key: value for key, value in spec.items() if key not in settings}
            if not settings.get("name", "").isprintable():
                raise (location / "name").error("a name must not contain a line break or another unprintable character")
            if settings and not spec:
                raise location.error(f"the item has settings of a stage ({', '.join(settings)}), but no component; add the component")
            if len(spec) > 1:
                raise self._crowded(spec, location)
        name = str(next(iter(spec), "") if isinstance(spec, dict) else spec)
        for package, way_out in _NO_STAGES.items():
            if built_in_class(package, name):
                raise location.error(f"{name} {way_out.format(name)}")
        op = self.build(spec, location)
        if isinstance(op, NotImported):
            return Stage(op, **{"name": op.name, **settings})
        try:
            stage = Stage(op, **settings)
            shape_of(op, first=True)
        except HighwayError as error:
            raise location.error(str(error)) from None
        return stage

    def build(self, spec: Any, location: Location, hint: type = object) -> Any:
        """Return the component that ``spec`` describes: ``Name``, ``{Name: first_parameter}`` or ``{Name: {parameter: value, ...}}``.

        Error messages name the subclasses of ``hint`` as choices.

        If the module of the component, or of a component in the parameters, was not imported, return a
        :class:`highway.topology.components.NotImported`.

        Raises:
            ConfigError: ``spec`` has an error. The message begins with the location.
        """
        if isinstance(spec, str):
            name, given = spec, None
        elif isinstance(spec, dict) and len(spec) == 1:
            ((name, given),) = spec.items()
            location = location / name
        else:
            kind = "dataset" if hint is Dataset else "component"
            advice = "; put a path in quotes" if hint is Dataset and isinstance(spec, (int, float)) else ""
            raise location.error(f"expected a {kind}, as  Name  or  Name: value  or  Name: {{parameter: value}}; got {show(spec)}{advice}")
        found = self.components.find(str(name), location, hint)
        if isinstance(found, NotImported):
            return found
        if not inspect.isclass(found):
            if given is not None:
                raise location.error(f"{name} is a function, so it accepts no parameters here; write only its name")
            return found
        arguments = self._arguments(found, given, location)
        if missing := tuple(one for part in _not_imported(list(arguments.values())) for one in part.found):
            return NotImported(found.__name__, missing)
        try:
            return found(**arguments)
        except HighwayError as error:
            raise location.error(str(error)) from None
        except Exception as error:
            raise location.error(f"{found.__name__}: {type(error).__name__}: {error}") from error

    def _arguments(self, cls: type, given: Any, location: Location) -> dict[str, Any]:
        """Check the given parameters against the signature of ``cls``, and return them by name."""
        parameters = _parameters(cls, location)
        names = [name for name, parameter in parameters.items() if parameter.kind in NAMED]
        rest = next((name for name, parameter in parameters.items() if parameter.kind is parameter.VAR_KEYWORD), "")
        if given is None or isinstance(given, dict):
            locations = {}
            for old, value in (given or {}).items():
                key, value = current(cls.__name__, old, value)
                if key in locations:
                    raise (location / old).error(f"{key} of {cls.__name__} is given twice")
                locations[key] = value, location / old
        elif names:
            locations = {names[0]: (given, location)}
        else:
            raise location.error(f"{cls.__name__} has no parameters; got {show(given)}")
        for key, (_, where) in locations.items():
            if key not in names and not rest:
                takes = next((name for name in names if Dataset in alternatives(parameters[name].annotation)), "")
                if takes and built_in_class("highway.datasets", key):
                    raise where.error(f"{key} is a dataset, not a parameter of {cls.__name__}; write  {takes}: {{{key}: ...}}")
                raise where.error(unknown(cls.__name__, key, names))
        if missing := needed(locations, parameters):
            raise location.error(f"{cls.__name__} needs {missing}; `highway list {cls.__name__}` shows all its parameters")
        return {key: argument(value, parameters[key if key in names else rest], at, self) for key, (value, at) in locations.items()}

    def convert(self, value: Any, hint: Any, location: Location) -> Any:
        """Convert a plain ``value`` to the type ``hint``. Raises the errors of :func:`highway.parameters.convert.convert`."""
        return convert(value, hint, location, self)

    def component(self, value: Any, hint: Any, location: Location) -> Any:
        """Return the component, stage or struct that a plain ``value`` describes."""
        if hint in (Stage, Component):
            return self.build_stage(value, location)
        if inspect.isclass(hint) and issubclass(hint, msgspec.Struct):
            return self._convert_struct(value, hint, location)
        kind = typing.cast(type, typing.get_origin(hint) or hint)
        if kind is Dataset and isinstance(value, str) and is_path(value):
            return value
        component = self.build(value, location, kind)
        if not isinstance(component, (kind, NotImported)):
            names = self.components.names(kind) + ["or an object with __len__ and __getitem__"] * (kind is Dataset)
            raise location.error(
                f"{type(component).__name__} is not a {kind.__name__}; expected one of {', '.join(names)}{why_not(component, kind)}"
            )
        return component

    def misfit(self, value: Any, expected: str, location: Location, hint: Any = None, choices: Sequence[Any] = ()) -> ConfigError:
        """Return the error for a value of the wrong type, in YAML's terms."""
        if choices:
            return location.error(f"got {show(value)}{did_you_mean(value, map(str, choices))}")
        advice, words = "", in_words(expected, _WORDS).replace("None", "null")
        if expected.startswith("`array`"):
            words = next(filter(None, map(of_tuple, alternatives(hint))), words)
        if isinstance(value, str) and value.lower() in ("yes", "no", "on", "off") and "bool" in words:
            advice = "; write true or false"
        elif isinstance(value, (int, float)) and "str" in words:
            advice = "; put it in quotes to make it text"
        return location.error(f"expected {words}, got {show(value)}{advice}")

    def _convert_struct(self, value: Any, hint: type[msgspec.Struct], location: Location) -> Any:
        mapping = plain(value, dict[str, Any], location, self)
        known = _fields(hint)
        for key in mapping:
            if key not in known:
                raise (location / key).error(f"unknown key {key!r}{did_you_mean(key, known)}")
        for key, one in known.items():
            if one.required and key not in mapping:
                raise location.error(f"the key {key!r} is missing")
        return hint(**{known[key].name: self.convert(part, known[key].type, location / key) for key, part in mapping.items()})

    def _crowded(self, spec: Mapping[Any, Any], location: Location) -> ConfigError:
        known = self.components.names()
        named = [str(key) for key in spec if key in known or ":" in str(key)]
        if len(named) > 1:
            return location.error(f"{' and '.join(named)} are in one item of the list; begin each stage with '- '")
        unknown: Key = next(key for key in spec if key not in named)
        message = f"unknown setting {unknown!r} of a stage{did_you_mean(unknown, STAGE_SETTINGS)}"
        if named and not message.endswith("?"):
            message += f"; if it is a parameter of {named[0]}, indent it further"
        return (location / unknown).error(message)


def _not_imported(value: Any) -> Iterator[NotImported]:
    """Yield the placeholders in converted parameters."""
    if isinstance(value, NotImported):
        yield value
    elif isinstance(value, Stage):
        yield from _not_imported(value.op)
    elif isinstance(value, (list, tuple, dict)):
        for part in value.values() if isinstance(value, dict) else value:
            yield from _not_imported(part)


def _parameters(cls: type, location: Location) -> Parameters:
    try:
        return parameters_of(cls)
    except NameError as error:
        raise location.error(
            f"the type hints of {cls.__name__} cannot be read: {error}; import the names in the type hints outside of `if TYPE_CHECKING`"
        ) from None


@functools.cache
def _fields(hint: type[msgspec.Struct]) -> Mapping[str, msgspec.structs.FieldInfo]:
    return {one.encode_name: one for one in msgspec.structs.fields(hint)}

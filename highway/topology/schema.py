"""Generate the JSON schema of topology files for editors, from the structs of the file's keys and the signatures of components."""

from __future__ import annotations

import collections.abc
import functools
import inspect
import typing
from collections.abc import Sequence
from typing import Any

import msgspec

from highway.datasets.dataset import Dataset
from highway.engine.component import Component
from highway.engine.stage import Stage
from highway.parameters.docstrings import plain
from highway.parameters.hints import is_nested, parameters_of
from highway.parameters.ranges import UNIONS, Range
from highway.renamed import accepted
from highway.topology.components import PACKAGES, PATH, Components, built_in
from highway.topology.plan import COMPONENTS
from highway.topology.registry import STAGE_SETTINGS
from highway.topology.spec import FileSpec, RoleSpec

Schema = dict[str, Any]

VARIABLE: Schema = {"type": "string", "pattern": r"\$\{", "description": "A variable: ${name}, ${name:default} or ${env:NAME}."}
REFERENCE: Schema = {"$ref": "#/$defs/Variable"}
PLUGIN = r"^[\w.]+:\w+$"


def schema() -> Schema:
    """Return the JSON schema (draft 2020-12) of topology files.

    The schema accepts every file that ``highway check`` accepts. It also accepts some files with errors, because a schema cannot check
    variables and links.
    """
    _, defs = msgspec.json.schema_components([FileSpec, RoleSpec], ref_template="#/$defs/{name}")
    for spec in defs.values():
        spec["properties"] = {name: _open(_lifted(part)) for name, part in spec["properties"].items()}
    stages = {"type": "array", "items": {"$ref": "#/$defs/Stage"}}
    role = {"anyOf": [stages, {"$ref": "#/$defs/RoleSpec"}]}
    file = defs.pop("FileSpec")
    _become(defs["RoleSpec"]["properties"]["stages"], stages)
    _become(file["properties"]["roles"], {"type": "object", "additionalProperties": role})
    _become(file["properties"]["vars"], {"type": "object"})
    defs["Variable"] = VARIABLE
    for package in PACKAGES:
        defs |= {name: _component(name, cls) for name, cls in built_in(package).items()}
    defs["Stage"] = _by_name(list(built_in("highway.modules")), {name: _open(_of(one.annotation)) for name, one in STAGE_SETTINGS.items()})
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **file, "$defs": defs}


def _lifted(schema: Schema) -> Schema:
    """Move the description of a schema from one of its alternatives to the schema itself, so that editors show the description."""
    parts = [dict(part) for part in schema.get("anyOf", [])]
    found = [part.pop("description") for part in parts if "description" in part]
    return {**schema, "anyOf": parts, "description": found[0]} if len(found) == 1 else schema


def _become(schema: Schema, other: Schema) -> None:
    """Replace the content of a schema by ``other``, but keep the description."""
    description = schema["description"]
    schema.clear()
    schema.update(other, description=description)


def _component(name: str, cls: type) -> Schema:
    """Return the schema of the value after a component's name: a mapping of parameters, the value of the first parameter, or nothing."""
    parameters = parameters_of(cls).values()
    properties = {parameter.name: _open(_of(parameter.annotation)) for parameter in parameters}
    required = [parameter.name for parameter in parameters if parameter.default is parameter.empty]
    renamed = accepted(name)
    properties |= {old: {"deprecated": True, "description": f"It is called {new} now."} for old, new in renamed.items()}
    given: Schema = {
        "type": "object",
        "properties": properties,
        "additionalProperties": False,
        "required": [one for one in required if one not in renamed.values()],
    }
    if name in COMPONENTS:
        properties["link"] = {"type": "string", "description": "A link of the file, in place of a URL."}
        given["required"] = []
        given["anyOf"] = [{"required": ["url"]}, {"required": ["link"]}]
    forms = [given]
    if properties and len(required) <= 1:
        first = next(iter(properties))
        forms.append({"not": {"type": "object"}, **properties[first]})
    if not required:
        forms.append({"type": "null"})
    return {"description": plain(inspect.getdoc(cls) or "").partition("\n")[0], "anyOf": forms}


def _of(hint: Any) -> Schema:
    """Return the schema of a type hint, with the range of the hint."""
    if hint in (Any, inspect.Parameter.empty):
        return {}
    origin, inner = typing.get_origin(hint), typing.get_args(hint)
    if origin is typing.Annotated:
        return functools.reduce(_within, (note for note in inner[1:] if isinstance(note, Range)), _of(inner[0]))
    if origin in UNIONS:
        return {"anyOf": [_of(part) for part in inner]}
    if not is_nested(hint):
        return msgspec.json.schema(hint)
    if hint in (Stage, Component):
        return {"$ref": "#/$defs/Stage"}
    if origin is None or origin is collections.abc.Callable:
        named = _by_name(Components().names(typing.cast(type, collections.abc.Callable) if origin else hint))
        return {"anyOf": [*named["anyOf"], {"type": "string", "pattern": PATH}]} if hint is Dataset else named
    if issubclass(origin, collections.abc.Mapping):
        return {"type": "object", "additionalProperties": _open(_of(inner[1]))}
    return {"type": "array", "items": _open(_of(inner[0]))}


def _within(schema: Schema, bounds: Range) -> Schema:
    """Return a schema whose numbers have these bounds."""
    if schema.get("type") in ("integer", "number"):
        return {**schema, **bounds.keywords}
    for key in ("anyOf", "prefixItems"):
        if key in schema:
            return {**schema, key: [_within(part, bounds) for part in schema[key]]}
    return {**schema, "items": _within(schema["items"], bounds)} if isinstance(schema.get("items"), dict) else schema


def _by_name(names: Sequence[str], settings: Schema | None = None) -> Schema:
    """Return the schema of a component: its name is one of ``names`` or a name in a plug-in. ``settings`` are further keys."""
    components = {name: {"$ref": f"#/$defs/{name}"} for name in names}
    form: Schema = {"type": "object", "properties": {**components, **(settings or {})}, "patternProperties": {PLUGIN: {}}}
    form |= {"additionalProperties": False, "minProperties": 1}
    if settings is None:
        form["maxProperties"] = 1
    return {"anyOf": [{"enum": list(names)}, {"type": "string", "pattern": PLUGIN}, REFERENCE, form]}


def _open(schema: Schema) -> Schema:
    """Return a schema that also accepts a variable in place of the value, or of a part of the value."""
    about: Schema = {key: schema[key] for key in ("description", "default") if key in schema}
    schema = {key: part for key, part in schema.items() if key not in about}
    if not schema or schema == {"type": "string"}:
        return {**about, **schema}
    return {**about, "anyOf": [*map(_open_parts, schema.get("anyOf", [schema])), REFERENCE]}


def _open_parts(schema: Schema) -> Schema:
    opened = dict(schema)
    for key in ("items", "additionalProperties"):
        if isinstance(schema.get(key), dict):
            opened[key] = _open(schema[key])
    if "prefixItems" in schema:
        opened["prefixItems"] = [_open(item) for item in schema["prefixItems"]]
    return opened

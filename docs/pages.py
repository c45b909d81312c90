"""The pages of the site that come from the code, written to docs/generated: the public names, the commands, the file's keys, the files.

The Markdown pages of this folder are also read on code hosts. What only the site needs, such as the tables of contents, is added here.
"""

from __future__ import annotations

import argparse
import ast
import builtins
import doctest
import functools
import importlib
import inspect
import json
import os
import re
import shutil
import typing
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import yaml

import highway
from highway.cli.command import GROUPS
from highway.parameters.hints import parameters_of, written
from highway.topology.components import PACKAGES, built_in
from highway.topology.spec import FileSpec

TOP = Path(__file__).parents[1]
FOLDERS = ("examples", "pipelines")  # their files are shown on a page; links to other files outside of docs/ download these
PUBLIC = {  # pages of public names; a module without ``__all__`` shows what it defines
    "highway": ["highway"],
    "modules": ["highway.modules"],
    "datasets": ["highway.datasets"],
    "transforms": ["highway.transforms"],
    "functional": ["highway.functional"],
    "adapters": [
        *("highway.adapters.torch", "highway.adapters.lightning", "highway.adapters.transformers", "highway.adapters.tensorflow"),
        *("highway.adapters.keras", "highway.adapters.jax", "highway.adapters.ray", "highway.adapters.tensorpack"),
        "highway.adapters.arrays",
    ],
    "stores": ["highway.stores.file", "highway.stores.url"],
    "topology": ["highway.topology"],
    "tenbin": ["highway.tenbin"],
}
SHAPES = {"source": "Sources", "map": "Maps", "stream": "Streams", "sink": "Sinks", "composite": "Composites"}
_LINK = re.compile(r"(?<=\]\()(?!\w+:|#)([^)#\s]+)(#[^)\s]+)?(?=\))")
_FENCE = re.compile(r"^```.*?^```", re.M | re.S)


def generate(docs: Path) -> None:
    """Write the generated pages."""
    folder = docs / "generated"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    for name, modules in PUBLIC.items():
        (folder / f"{name}.rst").write_text(_lines(_of_modules(modules)))
    (folder / "commands.rst").write_text(_lines(_commands()))
    (folder / "file.rst").write_text(_lines(_keys()))
    for name in FOLDERS:
        (folder / f"{name}.rst").write_text(_lines(_files(TOP / name)))
    (folder / "notebooks.markdown").write_text("\n".join(["# Notebooks", "", *_notebooks()]))
    for source, copy in COPIES.items():
        (docs / copy).write_text((TOP / source).read_text())


COPIES = {  # .md are the sources alone
    "benchmarks/README.md": "generated/benchmarks.markdown",
    "CONTRIBUTING.md": "generated/contributing.markdown",
    "CHANGELOG.md": "generated/changelog.markdown",
}
ELSEWHERE = COPIES | {name: f"generated/{name}.rst" for name in FOLDERS} | {"notebooks": "generated/notebooks.markdown"}


def adapt(docs: Path, page: str, text: str) -> str:
    """Return the text of a page for the site: links lead to pages of the site, and the start page has the tables of contents."""
    copied = {copy.removesuffix(".markdown"): f"../{Path(source).parent}" for source, copy in COPIES.items()}
    copied["generated/notebooks"] = "../notebooks"
    here = copied.get(page, str(Path(page).parent))
    if page == "README":
        return _LINK.sub(lambda link: _target(docs, here, page, link), text) + _contents(text)
    parts: list[str] = []
    end = 0
    for block in _FENCE.finditer(text):  # code has no links
        parts += [_LINK.sub(lambda link: _target(docs, here, page, link), text[end : block.start()]), block[0]]
        end = block.end()
    return "".join([*parts, _LINK.sub(lambda link: _target(docs, here, page, link), text[end:])])


def _target(docs: Path, here: str, page: str, link: re.Match[str]) -> str:
    file = Path(os.path.normpath(docs / here / link[1]))
    inside = file.relative_to(TOP).as_posix()
    if inside in ELSEWHERE:
        file = docs / ELSEWHERE[inside]
    elif file.is_dir() and file.parent.name in FOLDERS:
        file = docs / ELSEWHERE[file.parent.name]
    elif file.parent.name in FOLDERS and file.parent.parent == TOP:
        return f"#{_label(file)}"
    return os.path.relpath(file, docs / Path(page).parent) + (link[2] or "")


def _contents(text: str) -> str:
    """Return hidden tables of contents, one for each section of the start page, of the pages that it lists."""
    blocks = []
    for section in text.split("\n## ")[1:]:
        title, _, body = section.partition("\n")
        pages = [link[1] for link in _LINK.finditer(body) if link[1].endswith(".md") and not link[1].startswith("..")]
        if title == "Reference":
            generated = (*PUBLIC, "commands", "file", "benchmarks", *FOLDERS, "notebooks", "contributing", "changelog")
            pages += ["glossary", *(f"generated/{name}" for name in generated)]
        unique = list(dict.fromkeys(pages))
        if unique:
            blocks.append("\n".join(["", "```{toctree}", ":hidden:", f":caption: {title}", "", *unique, "```", ""]))
    return "\n".join(blocks)


def _lines(lines: Iterable[str]) -> str:
    return "\n".join([*lines, ""])


def _heading(text: str, line: str = "=") -> list[str]:
    return ["", text, line * len(text), ""]


@functools.cache
def names_of(module: str) -> list[str]:
    """Return the public names of a module, in the order of its source if it has no ``__all__``; without importing an adapter."""
    file = TOP / Path(*module.split("."))
    file = file / "__init__.py" if file.is_dir() else file.with_suffix(".py")
    body = ast.parse(file.read_text()).body
    if "adapters" in module or "stores" in module:
        listed = [one.value for one in body if isinstance(one, ast.Assign) and getattr(one.targets[0], "id", "") == "__all__"]
        if listed:
            return list(ast.literal_eval(listed[0]))
        public = [one.name for one in body if isinstance(one, (ast.ClassDef, ast.FunctionDef)) and not one.name.startswith("_")]
        return [name for name in public if name not in _INNER]
    return [*importlib.import_module(module).__all__, *["open"] * (module == "highway")]  # "open" is public, but not in __all__


_INNER = {"PipelineAdapter", "dataset_of", "Loops", "PipelineDataset", "Ranks", "named", "states_of", "state_of", "fingerprint_of"}


def _of_modules(modules: list[str]) -> Iterator[str]:
    title = modules[0] if len(modules) == 1 else modules[0].rpartition(".")[0]
    yield from _heading(f"``{title}``"[2:-2])
    for module in modules:
        if len(modules) > 1:
            yield from _heading(module, "-")
        yield from [f".. automodule:: {module}", "   :no-members:", "   :no-index:", "", f".. py:currentmodule:: {module}", ""]
        if module == "highway.modules":
            yield from _by_shape(names_of(module))
        else:
            for name in names_of(module):
                yield from _entry(module, name)


def _by_shape(names: list[str]) -> Iterator[str]:
    """Yield the components by their shape."""
    module = importlib.import_module("highway.modules")
    shapes = {name: _shape(getattr(module, name)) for name in names}
    for shape, title in SHAPES.items():
        yield from _heading(title, "-")
        for name in [name for name in names if shapes[name] == shape]:
            yield from _entry("highway.modules", name)


def _shape(cls: type) -> str:
    members = {"source": "__iter__", "stream": "stream", "sink": "consume", "composite": "stages"}
    return next((shape for shape, member in members.items() if hasattr(cls, member)), "map")


def _entry(module: str, name: str) -> Iterator[str]:
    with_members = module in ("highway", "highway.adapters.torch", "highway.stores.url", "highway.topology")
    found = None if "adapters" in module else getattr(importlib.import_module(module), name)
    if is_value(found):
        value = "A map returns this to drop its item." if found is highway.DROP else f"``{' '.join(str(found).split())}``"
        yield from [f".. py:data:: {name}", "", f"   {value}", ""]
    elif inspect.isclass(found) or (found is None and name[0].isupper()):
        kind = "exception" if inspect.isclass(found) and issubclass(found, BaseException) else "class"
        yield from [f".. auto{kind}:: {name}", *["   :members:"] * with_members, ""]
    else:
        yield from [f".. autofunction:: {name}", ""]


def is_value(found: Any) -> bool:
    """Return whether a public name is a constant or a type hint, without a docstring of its own."""
    return found is not None and (typing.get_origin(found) is not None or not (inspect.isclass(found) or inspect.isroutine(found)))


_IMPORTED = tuple(f"highway{room}" for room in ("", ".modules", ".datasets", ".transforms", ".functional"))  # besides the own module


def runnable(text: str, module: str) -> str:
    """Return the docstring of a name of ``module`` with the imports that its examples need, before the first of them."""
    examples = doctest.DocTestParser().get_examples(text)
    if not examples:
        return text
    nodes = list(ast.walk(ast.parse("".join(example.source for example in examples))))
    names = [node for node in nodes if isinstance(node, ast.Name)]
    own = {node.id for node in names if not isinstance(node.ctx, ast.Load)} | {node.arg for node in nodes if isinstance(node, ast.arg)}
    own |= {one.asname or one.name for node in nodes if isinstance(node, (ast.Import, ast.ImportFrom)) for one in node.names}
    own |= {node.name for node in nodes if isinstance(node, (ast.ClassDef, ast.FunctionDef))}
    needed = {node.id for node in names} - own - vars(builtins).keys()
    lines = ["import numpy as np"] * ("np" in needed)
    for home in dict.fromkeys([module, *_IMPORTED]):
        found = needed & set(names_of(home))
        lines += [f"from {home} import {', '.join(sorted(found))}"] * bool(found)
        needed -= found
    before = text.splitlines()
    before[examples[0].lineno : examples[0].lineno] = [" " * examples[0].indent + f">>> {line}" for line in lines]
    return "\n".join(before)


def in_a_file(name: str) -> list[str]:
    """Return how a topology file names a component, by the full name of its class, as lines of a docstring."""
    package, _, short = name.rpartition(".")
    if package not in PACKAGES or short not in built_in(package):
        return []
    text = form(package, short)
    return ["In a topology file:", "", ".. code-block:: yaml", "", *(f"   {line}" for line in text.splitlines()), ""]


_AROUND = {"highway.transforms": "- Augmentations:\n    - ", "highway.datasets": "- Reader:\n    dataset:\n      "}


def form(package: str, name: str) -> str:
    """Return a component as YAML, with every parameter: its default value, or its type if a value is required."""
    around = _AROUND.get(package, "- ")
    inner = " " * (len(around.rpartition("\n")[2]) + 2)
    lines = [f"{around}{name}:"]
    for parameter in parameters_of(built_in(package)[name]).values():
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            continue
        if parameter.default is parameter.empty:
            lines.append(f"{inner}{parameter.name}: ...  # {written(parameter.annotation)}, required")
        else:
            lines.append(f"{inner}{parameter.name}: {_value(parameter.default)}")
    return "\n".join(lines) if len(lines) > 1 else lines[0].rstrip(":")


def _value(value: Any) -> str:
    """Return a default value in YAML's flow style, on one line."""
    try:
        plain = msgspec.to_builtins(value)
        return yaml.safe_dump(plain, default_flow_style=True, width=10**6).removesuffix("\n...\n").strip()
    except (TypeError, yaml.YAMLError):
        return f"...  # {value!r}"


def _commands() -> Iterator[str]:
    yield from _heading("Options of the commands")
    yield "The `commands <../reference/commands.html>`_ are described by what they do. This page has the options of each, from ``--help``."
    for group, commands in GROUPS.items():
        yield from _heading(group.capitalize(), "-")
        for command in commands:
            parser = argparse.ArgumentParser(f"highway {command.name}", description=command.summary, formatter_class=_wide)
            command.add_arguments(parser)
            yield from _heading(f"highway {command.name}", "~")
            text = parser.format_help().replace(f"{TOP}/", "")
            yield from [".. code-block:: text", "", *(f"   {line}".rstrip() for line in text.splitlines()), ""]


def _wide(prog: str) -> argparse.HelpFormatter:
    return argparse.HelpFormatter(prog, max_help_position=26, width=92)


def _keys() -> Iterator[str]:
    """Yield the keys of a topology file, from the same schema that ``highway schema`` prints."""
    yield from _heading("Keys of a topology file")
    yield "`The topology file <../reference/topology.html>`_ explains the keys with examples. This page lists all of them, from the schema"
    yield "that ``highway schema`` prints. Every value may be a variable, as ``${name}``."
    _, defs = msgspec.json.schema_components([FileSpec, *_structs()], ref_template="{name}")
    for title, spec in defs.items():
        yield from [f".. _key-{title}:", *_heading(_TITLES[title], "-"), *[spec.get("description", "")], ""]
        for key, value in spec["properties"].items():
            about = _type(value)
            default = "required" if key in spec.get("required", []) else _default(value)
            yield from [f"``{key}``: {about}; {default}", f"   {_code(_description(value))}", ""]


def _structs() -> list[type]:
    from highway.topology import spec

    return [one for one in vars(spec).values() if inspect.isclass(one) and issubclass(one, msgspec.Struct) and one is not msgspec.Struct]


_TITLES = {
    "FileSpec": "The file",
    "RoleSpec": "A role",
    "LinkSpec": "A link",
    "HostSpec": "A host",
    "RestartSpec": "restart, of a role",
    "ResourcesSpec": "resources, of a role",
    "AutoscaleSpec": "autoscale, of a role",
    "MetricsSpec": "metrics",
}


def _description(schema: dict[str, Any]) -> str:
    found = [part["description"] for part in (schema, *schema.get("anyOf", [])) if "description" in part]
    return found[0] if found else ""


def _default(schema: dict[str, Any]) -> str:
    value = schema.get("default")
    return f"by default {_shown(value)}" if value not in (None, {}, [], "") else "optional"


def _shown(value: Any) -> str:
    return f"``{yaml.safe_dump(value, default_flow_style=True).removesuffix('...' + chr(10)).strip()}``"


def _code(text: str) -> str:
    return re.sub(r"(?<!`)`([^`]+)`(?!`)", r"``\1``", text).replace("${", r"\${")


def _type(schema: dict[str, Any]) -> str:
    if "anyOf" in schema:
        return " or ".join(_type(part) for part in schema["anyOf"] if part.get("type") != "null")
    if "$ref" in schema:
        return f":ref:`{_TITLES[schema['$ref']]} <key-{schema['$ref']}>`"
    if "enum" in schema:
        return " or ".join(f"``{value}``" for value in schema["enum"])
    if "pattern" in schema and "$" in schema["pattern"]:
        return "range of ports" if r"\d" in schema["pattern"] else "text"
    bounds = [f"{word} {schema[key]}" for key, word in _BOUNDS.items() if key in schema]
    kind = _KINDS[schema["type"]] if "type" in schema else "anything"
    if schema.get("type") == "array" and schema.get("items"):
        kind += f" of {_type(schema['items'])}"
    if isinstance(schema.get("additionalProperties"), dict) and schema["additionalProperties"]:
        kind += f" of names to {_type(schema['additionalProperties'])}"
    return " ".join([kind, *bounds])


_BOUNDS = {"minimum": "from", "exclusiveMinimum": "above", "maximum": "to"}
_KINDS = {"string": "text", "integer": "integer", "number": "number", "boolean": "true or false", "array": "list", "object": "mapping"}


def _label(file: Path) -> str:
    return f"file-{file.parent.name}-{file.name}".replace(".", "-").replace("_", "-").lower()


def _files(folder: Path) -> Iterator[str]:
    """Yield a page with the text files of a folder."""
    yield from _heading(f"Files of {folder.name}/")
    for file in sorted(folder.iterdir()):
        if file.suffix in (".py", ".yaml"):
            yield from [f".. _{_label(file)}:", *_heading(file.name, "-")]
            yield from [f".. literalinclude:: ../../{folder.name}/{file.name}", f"   :language: {file.suffix[1:]}", ""]


def _notebooks() -> Iterator[str]:
    """Yield the cells of all notebooks as Markdown, with the titles of the notebooks as headings of the page."""
    for path in sorted((TOP / "notebooks").glob("*.ipynb")):
        for cell in json.loads(path.read_text())["cells"]:
            text = "".join(cell["source"])
            yield re.sub(r"^#", "##", text, flags=re.M) if cell["cell_type"] == "markdown" else f"```python\n{text}\n```"
            yield ""

"""Read YAML texts as plain values, with the line of each value. The size of the input is limited, and no code is executed.

Plain scalars follow the core schema of YAML 1.2: ``yes`` and ``12:30`` are text, ``1e-3`` is a number, ``true`` is a boolean.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from highway.errors import ConfigError
from highway.parameters.location import Key, Location

MAX_BYTES = 1_000_000
MAX_VALUES = 100_000  # maximum number of values after aliases are expanded; nine lines of aliases can expand to a billion values
MAX_DEPTH = 50

_TAG = "tag:yaml.org,2002:"


class _Loader(yaml.SafeLoader):
    yaml_implicit_resolvers: dict[str, list[tuple[str, re.Pattern[str]]]] = {}  # noqa: RUF012 (PyYAML's own name; YAML 1.1's are left out)


for _tag, _pattern, _first in (
    ("null", r"~|null|Null|NULL|", ["~", "n", "N", ""]),
    ("bool", r"true|True|TRUE|false|False|FALSE", list("tTfF")),
    ("int", r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+", list("-+0123456789")),
    ("float", r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)", list("-+.0123456789")),
    ("merge", r"<<", ["<"]),
):
    _Loader.add_implicit_resolver(_TAG + _tag, re.compile(f"(?:{_pattern})$"), _first)


def read(path: str | Path) -> tuple[Any, Location]:
    """Return the values in a YAML file, and the location of the root. The location stores the line of each value, for error messages.

    Raises:
        ConfigError: the file does not exist, or is not YAML within the limits.
    """
    file = Path(path)
    try:
        with file.open("rb") as opened:
            data = opened.read(MAX_BYTES + 1)
    except FileNotFoundError:
        raise ConfigError(f"{path}: there is no such file{_similar(file)}") from None
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}") from None
    if len(data) > MAX_BYTES:
        raise ConfigError(f"{path}: the file is larger than {MAX_BYTES:,} bytes; is it a topology?")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: the file is not UTF-8 text (byte {error.start})") from None
    return parse(text, str(path))


def read_all(paths: Sequence[str | Path]) -> tuple[Any, Location]:
    """Return the values of several files, merged by key, and the location of the root. Later files take precedence.

    Raises:
        ConfigError: as for :func:`read`.
    """
    value, root = read(paths[0])
    for path in paths[1:]:
        later, location = read(path)
        marks: dict[tuple[Key, ...], str] = {**root.marks}
        value = _merge(value, later, (), marks)
        root = Location((), {**marks, **location.marks})
    return value, root


def parse(text: str, name: str) -> tuple[Any, Location]:
    """Return the values in a YAML text, and the location of the root. Error messages call the text ``name``.

    Raises:
        ConfigError: as for :func:`read`.
    """
    try:
        root = _Loader(text).get_single_node()
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line, column = (mark.line + 1, mark.column + 1) if mark else (1, 1)
        raise ConfigError(f"{name}:{line}: not YAML: {', '.join(filter(None, (error.context, error.problem)))} (column {column})") from None
    except yaml.YAMLError as error:
        raise ConfigError(f"{name}: not YAML: {str(error).splitlines()[0]}") from None
    except RecursionError:
        raise ConfigError(f"{name}: nested deeper than {MAX_DEPTH} levels") from None
    reader = _Reader(name)
    value = None if root is None else reader.value(root, ())
    return value, Location((), {(): name, **reader.marks})


class _Dumper(yaml.SafeDumper):
    def ignore_aliases(self, data: object) -> bool:
        return True

    def text(self, text: str) -> yaml.Node:
        style = '"' if set(text) & _BREAKS else "|" if "\n" in text else None
        return self.represent_scalar(_TAG + "str", text, style)


_BREAKS = set("\r\x85\u2028\u2029")  # line breaks in YAML 1.1 and PyYAML, in addition to "\n"
_Dumper.add_representer(str, _Dumper.text)
_NUMBER = re.compile(r"(?:[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?|0o[0-7]+)$")
_Dumper.add_implicit_resolver(_TAG + "float", _NUMBER, list("-+.0123456789"))  # so that texts get quotes if they are numbers in YAML 1.2


def write(documents: Sequence[Any]) -> str:
    """Return plain values as YAML text that means the same in YAML 1.1 and 1.2. Each value in ``documents`` becomes one document."""
    return yaml.dump_all(documents, Dumper=_Dumper, sort_keys=False, width=140, allow_unicode=True)


class _Reader:
    """Converts nodes of YAML to plain values, and counts the values."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.marks: dict[tuple[Key, ...], str] = {}
        self.count = 0

    def value(self, node: yaml.Node, path: tuple[Key, ...]) -> Any:
        self.count += 1
        if self.count > MAX_VALUES:
            raise self.error(node, f"more than {MAX_VALUES:,} values; do aliases (*name) repeat other aliases?")
        if len(path) > MAX_DEPTH:
            raise self.error(node, f"nested deeper than {MAX_DEPTH} levels; does an alias (*name) contain itself?")
        self.marks.setdefault(path, self.mark(node))
        if isinstance(node, yaml.MappingNode) and node.tag == _TAG + "map":
            return self.mapping(node, path)
        if isinstance(node, yaml.SequenceNode) and node.tag == _TAG + "seq":
            return [self.value(item, (*path, index)) for index, item in enumerate(node.value)]
        if isinstance(node, yaml.ScalarNode):
            return self.scalar(node)
        raise self.bad_tag(node)

    def mapping(self, node: yaml.MappingNode, path: tuple[Key, ...]) -> dict[Any, Any]:
        own: dict[Any, Any] = {}
        merged: dict[Any, Any] = {}
        for key_node, value_node in node.value:
            if key_node.tag == _TAG + "merge":
                merged |= self.merged(value_node, path)
                continue
            if not isinstance(key_node, yaml.ScalarNode):
                raise self.error(key_node, "a list or mapping cannot be a key; write a name")
            key = self.scalar(key_node)
            if key in own:
                raise self.error(
                    key_node, f"{key!r} is written twice in one mapping, first on line {self.marks[*path, key].rsplit(':', 1)[1]}"
                )
            self.marks[*path, key] = self.mark(key_node)
            own[key] = self.value(value_node, (*path, key))
        return {**merged, **own}

    def merged(self, node: yaml.Node, path: tuple[Key, ...]) -> dict[Any, Any]:
        """Return the mapping of ``<<: *name`` or ``<<: [*first, *second]``. The first mapping takes precedence."""
        parts = self.value(node, (*path, "<<"))
        result: dict[Any, Any] = {}
        for part in reversed(parts if isinstance(parts, list) else [parts]):
            if not isinstance(part, dict):
                raise self.error(node, "<< merges mappings, but this value is not a mapping")
            result |= part
        return result

    def scalar(self, node: yaml.ScalarNode) -> Any:
        text: str = node.value
        if any("\ud800" <= character <= "\udfff" for character in text):
            raise self.error(node, "this text contains one half of a surrogate pair (\\uD800 to \\uDFFF), which is not a character")
        try:
            match node.tag.removeprefix(_TAG):
                case "str" | "merge":
                    return text
                case "null":
                    return None
                case "bool":
                    return {"true": True, "false": False}[text.lower()]
                case "int":
                    return int(text, 0 if text.startswith(("0o", "0x")) else 10)
                case "float":
                    return float(re.sub(r"\.(inf|nan)$", r"\1", text.lower()))
        except (ValueError, KeyError):
            shown = text if len(text) <= 60 else f"{text[:57]}..."
            raise self.error(node, f"{shown!r} is not a valid {node.tag.removeprefix(_TAG)}") from None
        raise self.bad_tag(node)

    def mark(self, node: yaml.Node) -> str:
        return f"{self.name}:{node.start_mark.line + 1}"

    def error(self, node: yaml.Node, message: str) -> ConfigError:
        return ConfigError(f"{self.mark(node)}: {message}")

    def bad_tag(self, node: yaml.Node) -> ConfigError:
        return self.error(node, f"the tag {node.tag.replace(_TAG, '!!')} is not supported; a topology contains only plain YAML")


def _merge(first: Any, later: Any, path: tuple[Key, ...], marks: dict[tuple[Key, ...], str]) -> Any:
    """Merge two mappings. Keys of ``later`` take precedence. For other values, return ``later``. Remove the marks of replaced values."""
    if isinstance(first, dict) and isinstance(later, dict):
        return {**first, **{key: _merge(first[key], part, (*path, key), marks) if key in first else part for key, part in later.items()}}
    for replaced in [mark for mark in marks if mark[: len(path)] == path]:
        del marks[replaced]
    return later


def _similar(file: Path) -> str:
    if not file.parent.is_dir():
        return ""
    close = difflib.get_close_matches(file.name, [other.name for other in file.parent.iterdir()], n=1)
    return f"; did you mean {file.with_name(close[0])}?" if close else ""

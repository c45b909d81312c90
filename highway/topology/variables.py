"""Replace ``${name}`` in a topology file. Values come from the file's ``vars``, from ``--set``, and from the environment."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from highway.parameters.location import Location, did_you_mean, show
from highway.topology import document

MAX_SIZE = 1_000_000  # maximum values and characters after replacement; nested variables can grow exponentially

RESERVED = {
    "env": "the environment, ${env:NAME}",
    "role": "the name of the role",
    "replica": "the number of the role's process, from 0",
}

_REFERENCE = re.compile(r"\$(?P<escaped>\$)?\{(?:(?P<env>env):)?(?P<name>[A-Za-z_]\w*)(?P<default>:[^{}]*)?\}|\$\{")


@dataclass
class Variables:
    """The variables of a file, and their values.

    ``${name}`` refers to a variable, and ``${name:default}`` to an optional variable. ``${env:NAME}`` and ``${env:NAME:default}`` refer to
    environment variables. ``$${`` is a plain ``${``. If a value is a single reference, the result has the type of the variable. In a longer
    text, the variable is inserted as text.

    Args:
        values: The variables. Values can refer to other variables.
        location: The location of the file's ``vars``.
        own: Variables that highway sets (:data:`RESERVED`).
        environ: The environment variables."""

    values: Mapping[str, Any]
    location: Location
    own: Mapping[str, Any] = field(default_factory=dict)
    environ: Mapping[str, str] = field(default_factory=lambda: os.environ)
    _size: int = field(default=0, init=False, repr=False)

    def __post_init__(self) -> None:
        for name in self.values:
            if name in RESERVED:
                raise (self.location / name).error(f"a variable cannot be named {name}: that is {RESERVED[name]}")

    def of_process(self, role: str, replica: int | str, env: Mapping[str, str] | None = None) -> Variables:
        """Return these variables together with the variables of a process. ``env`` is added to the environment."""
        return Variables(self.values, self.location, {"role": role, "replica": replica}, {**self.environ, **env} if env else self.environ)

    def mentions(self, name: str, value: Any, within: tuple[str, ...] = ()) -> bool:
        """Return whether a value refers to a variable, directly or through other variables."""
        if isinstance(value, (dict, list)):
            return any(self.mentions(name, part, within) for part in (value.values() if isinstance(value, dict) else value))
        if not isinstance(value, str) or "${" not in value:
            return False
        others = {found["name"] for found in _REFERENCE.finditer(value) if not (found["escaped"] or found["env"])}
        return name in others or any(
            self.mentions(name, self.values[other], (*within, other)) for other in others if other in self.values and other not in within
        )

    def fill(self, value: Any, location: Location, within: tuple[str, ...] = ()) -> Any:
        """Return a copy of ``value`` in which every reference is replaced. ``value`` consists of dicts, lists and scalars.

        ``within`` names the variables whose values contain ``value``. It serves to detect cycles.

        Raises:
            ConfigError: a variable is unknown or refers to itself, a reference is malformed, a list or mapping is part of a text, or the
                file is too large after the replacement.
        """
        self._size += 1 + (len(value) if isinstance(value, str) else 0)
        if self._size > MAX_SIZE:
            raise location.error(f"the file has more than {MAX_SIZE:,} values and characters after its variables are replaced")
        if isinstance(value, dict):
            return {key: self.fill(part, location / key, within) for key, part in value.items()}
        if isinstance(value, list):
            return [self.fill(part, location / index, within) for index, part in enumerate(value)]
        if not isinstance(value, str) or "${" not in value:
            return value
        whole = _REFERENCE.fullmatch(value)
        if whole and not whole["escaped"]:
            return self._value(whole, location, within)
        return _REFERENCE.sub(lambda found: self._text(found, location, within), value)

    def _value(self, found: re.Match[str], location: Location, within: tuple[str, ...]) -> Any:
        name, default = found["name"], found["default"]
        if name is None:
            raise location.error("'${' does not begin a reference; expected ${name}, ${name:default}, ${env:NAME} or ${env:NAME:default}")
        if found["env"]:
            if name in self.environ:
                return _scalar(self.environ[name])
            if default is None:
                raise location.error(f"the environment has no {name}; set it, or write a default: ${{env:{name}:default}}")
            return _scalar(default[1:])
        if name in within:
            raise location.error(
                f"the definition of the variable {name} contains this variable itself: {' -> '.join((*within[within.index(name) :], name))}"
            )
        if name in self.own:
            return self.own[name]
        if name in self.values:
            return self.fill(self.values[name], self.location / name, (*within, name))
        if default is None:
            way_out = did_you_mean(name, {**self.values, **self.own})
            if not way_out.endswith("?"):
                way_out = f"; define it under vars, as  vars: {{{name}: ...}},  or write a default: ${{{name}:default}}"
            raise location.error(f"unknown variable {name!r}{way_out}")
        return _scalar(default[1:])

    def _text(self, found: re.Match[str], location: Location, within: tuple[str, ...]) -> str:
        if found["escaped"]:
            return found[0][1:]
        value = self._value(found, location, within)
        if value is None or isinstance(value, (list, dict)):
            raise location.error(f"{found[0]} is {show(value)}, which cannot be part of a text")
        text = str(value).lower() if isinstance(value, bool) else str(value)
        self._size += len(text)
        return text


def _scalar(text: str) -> Any:
    """Return the value of a default or an environment variable. If the text is not a YAML scalar, return the text."""
    value, _ = document.parse(text, "value") if re.fullmatch(r"[-+.\w~]*", text) else (text, None)
    return value

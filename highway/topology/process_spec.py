"""What one process of a role needs to know to run: its part of the file, with variables filled in and links as URLs.

Whoever starts processes reads and checks the file once, and hands each process its specification: in JSON, so that it can be handed to
another machine too.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from highway.engine import Pipeline
from highway.engine.stage import Origin, Stage
from highway.errors import PipelineError
from highway.parameters.location import Location
from highway.topology.registry import Registry


class RoleKey(NamedTuple):
    """What the processes of a role are known by on a machine: its file, from the root, its name, and how many of them there may be."""

    path: str
    role: str
    replicas: int


@dataclass(frozen=True)
class ProcessSpec:
    """A process of a role.

    Args:
        replica: Its number, from 0.
        host: The host that the file gives it, or ``""``.
        address: Where others reach that host.
        stages: Its stages, in plain values; ``location`` is where the file has them.
        env: Environment variables that it gets.
    """

    key: RoleKey
    replica: int
    host: str
    address: str
    stages: list[Any]
    location: Location = field(default_factory=Location)
    seed: int = 0
    env: Mapping[str, str] = field(default_factory=dict)

    def build(self, registry: Registry) -> list[Stage]:
        """Return its stages.

        Raises:
            ConfigError: one of them cannot be built; the message says where.
        """
        return [registry.build_stage(stage, self.location / index) for index, stage in enumerate(self.stages)]

    def pipeline(self, registry: Registry, host: str = "", isolated: bool = False) -> Pipeline:
        """Return its pipeline.

        Args:
            registry: Builds the components.
            host: The name of this machine in the passports of what is made here; by default the one that the file gives the process, or
                that of the operating system.
            isolated: Whether it runs in a process of its own.

        Raises:
            ConfigError: as for :meth:`build`, or the stages do not fit together.
        """
        stages = self.build(registry)
        origin = Origin(host or self.host or os.uname().nodename, self.key.role, self.replica)
        try:
            return Pipeline(stages, seed=self.seed, origin=origin, isolated=isolated)
        except PipelineError as error:
            raise self.location.error(str(error)) from None

    def to_json(self) -> str:
        """Return it as text."""
        path, length = self.location.path, len(self.location.path)
        marks = {path: self.location.mark, **{at: mark for at, mark in self.location.marks.items() if at[:length] == path}}
        return json.dumps({**vars(self), "stages": _pack(self.stages), "location": [path, list(marks.items())]})

    @classmethod
    def from_json(cls, text: str) -> ProcessSpec:
        """Read it back."""
        given = json.loads(text)
        path, marks = given["location"]
        location = Location(tuple(path), {tuple(at): mark for at, mark in marks})
        return cls(**{**given, "key": RoleKey(*given["key"]), "stages": _unpack(given["stages"]), "location": location})


def _pack(value: Any) -> Any:
    """Return a plain value as one for JSON: a mapping as ``{"": pairs}``, since its keys need not be text."""
    if isinstance(value, dict):
        return {"": [[key, _pack(part)] for key, part in value.items()]}
    return [_pack(part) for part in value] if isinstance(value, list) else value


def _unpack(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _unpack(part) for key, part in value[""]}
    return [_unpack(part) for part in value] if isinstance(value, list) else value

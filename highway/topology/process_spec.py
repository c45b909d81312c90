"""The specification of one process: a role of the topology file, in which values replace variables, and URLs replace links.

A launcher, such as ``highway run``, reads and checks the file once. It sends each process the specification as JSON, also to other
machines.
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
    """Identifies the processes of a role on a machine.

    Args:
        path: Absolute path of the file.
        role: Name of the role.
        replicas: Maximum number of processes.
    """

    path: str
    role: str
    replicas: int


@dataclass(frozen=True)
class ProcessSpec:
    """The specification of a process of a role.

    Args:
        replica: The index of the process, from 0.
        host: The host in the file, or ``""`` if the file names no host.
        address: Address at which other hosts reach the host of the process.
        stages: The stages, as plain values.
        location: The location of the stages in the file.
        env: The environment variables that the file sets.
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
        """Build and return the stages.

        Raises:
            ConfigError: a stage cannot be built. The message names the stage.
        """
        return [registry.build_stage(stage, self.location / index) for index, stage in enumerate(self.stages)]

    def pipeline(self, registry: Registry, host: str = "", isolated: bool = False) -> Pipeline:
        """Return the pipeline of the process.

        Args:
            registry: Builds the components.
            host: The name of this machine in the passports (metadata) of the pipeline's items. Default: the host in the file, or the
                hostname of this machine.
            isolated: Whether the pipeline runs in a separate process.

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
        """Return the specification as JSON."""
        path, length = self.location.path, len(self.location.path)
        marks = {path: self.location.mark, **{at: mark for at, mark in self.location.marks.items() if at[:length] == path}}
        return json.dumps({**vars(self), "stages": _pack(self.stages), "location": [path, list(marks.items())]})

    @classmethod
    def from_json(cls, text: str) -> ProcessSpec:
        """Return the specification from the result of :meth:`to_json`."""
        given = json.loads(text)
        path, marks = given["location"]
        location = Location(tuple(path), {tuple(at): mark for at, mark in marks})
        return cls(**{**given, "key": RoleKey(*given["key"]), "stages": _unpack(given["stages"]), "location": location})


def _pack(value: Any) -> Any:
    """Return a plain value for JSON. A mapping becomes ``{"": pairs}``, because its keys can be other values than text."""
    if isinstance(value, dict):
        return {"": [[key, _pack(part)] for key, part in value.items()]}
    return [_pack(part) for part in value] if isinstance(value, list) else value


def _unpack(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _unpack(part) for key, part in value[""]}
    return [_unpack(part) for part in value] if isinstance(value, list) else value

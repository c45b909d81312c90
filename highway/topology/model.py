"""A topology: the roles of a file, as far as they can be known before anything runs."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import msgspec

from highway.components import Components
from highway.engine import Pipeline
from highway.errors import ConfigError, PipelineError
from highway.place import Place, did_you_mean, show
from highway.registry import Registry
from highway.stage import Origin, Stage, expand
from highway.topology import document
from highway.topology.variables import Variables


class RoleSpec(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """A role as the file has it.

    Args:
        stages: Its stages, source first.
        replicas: How many processes run it.
    """

    stages: list[Any]
    replicas: Annotated[int, msgspec.Meta(ge=1)] = 1


class FileSpec(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """The keys of a topology file.

    Args:
        roles: The pipelines, by name: :class:`RoleSpec`, or only a list, which are its stages.
        vars: Variables and their values, for ``${name}``.
        seed: What all randomness derives from.
    """

    roles: dict[str, Any]
    vars: dict[str, Any] = {}
    seed: int = 0


@dataclass(frozen=True)
class Role:
    """A role of a topology.

    Args:
        name: Its name.
        stages: Its stages as the file has them, with their variables.
        place: Where the file has them.
        replicas: How many processes run it.
    """

    name: str
    stages: list[Any]
    place: Place
    replicas: int = 1


@dataclass(frozen=True)
class Topology:
    """What a file says; :func:`load` makes it. Components are only built when one asks for a role's stages.

    Args:
        path: The file.
        roles: Its roles by name.
        seed: The seed of all pipelines.
        variables: The values of ``${name}``.
        registry: Builds the components.
    """

    path: str
    roles: Mapping[str, Role]
    seed: int
    variables: Variables
    registry: Registry

    def role(self, name: str) -> Role:
        """Return one role.

        Raises:
            ConfigError: there is none of that name.
        """
        if name not in self.roles:
            raise ConfigError(f"{self.path}: no role {name!r}{did_you_mean(name, self.roles)}")
        return self.roles[name]

    def stages(self, name: str, replica: int = 0) -> list[Stage]:
        """Return the stages of a role.

        Args:
            name: The role.
            replica: Which one of its processes, from 0: the value of ``${replica}``.

        Raises:
            ConfigError: the role does not exist, or one of its stages cannot be built; the message says where.
        """
        stages, errors = self._build(name, replica)
        if errors:
            raise errors[0]
        return stages

    def pipeline(self, name: str, replica: int = 0, host: str = "") -> Pipeline:
        """Return the pipeline of a role.

        Args:
            name: The role.
            replica: Which one of its processes, from 0.
            host: The name of this machine in the passports of what is made here; by default that of the operating system.

        Raises:
            ConfigError: as for :meth:`stages`, or the stages do not fit together.
        """
        stages = self.stages(name, replica)
        try:
            return Pipeline(stages, seed=self.seed, origin=Origin(host or os.uname().nodename, name, replica))
        except PipelineError as error:
            raise self.roles[name].place.error(str(error)) from None

    def check(self) -> list[ConfigError]:
        """Build every stage of every role, without data or network, and return all that is wrong."""
        found = []
        for role in self.roles.values():
            stages, errors = self._build(role.name, 0)
            found += errors
            if errors:
                continue
            try:
                expand(stages)
            except (PipelineError, ConfigError) as error:
                found.append(role.place.error(str(error)))
        return found

    def _build(self, name: str, replica: int) -> tuple[list[Stage], list[ConfigError]]:
        role = self.role(name)
        variables = self.variables.having(role=name, replica=replica)
        stages, errors = [], []
        for index, spec in enumerate(role.stages):
            place = role.place / index
            try:
                stages.append(self.registry.build_stage(variables.fill(spec, place), place))
            except ConfigError as error:
                errors.append(error)
        return stages, errors


def load(path: str | Path, variables: Mapping[str, Any] | None = None, plugins: Collection[str] = ()) -> Topology:
    """Read a topology file.

    Args:
        path: The YAML file.
        variables: Values that take the place of those in the file's ``vars``.
        plugins: Modules whose classes the file may name as ``package.module:Class``.

    Raises:
        ConfigError: the file cannot be used as written, has no such variable, or a plug-in cannot be imported. Mistakes inside the stages
            of a role are found by :meth:`Topology.check`, and when the role is built.
    """
    components = Components(plugins)
    components.import_plugins()
    registry = Registry(components)
    raw, root = document.read(path)
    if not isinstance(raw, dict):
        raise root.error(f"expected a mapping with the key roles, got {show(raw)}")
    given = registry.convert(raw.get("vars", {}), dict[str, Any], root / "vars")
    for name in variables or {}:
        if name not in given:
            raise ConfigError(f"{path}: no variable {name!r} in vars to set{did_you_mean(name, given)}")
    values = Variables({**given, **(variables or {})}, root / "vars")
    filled = {key: value if key in ("vars", "roles") else values.fill(value, root / key) for key, value in raw.items()}
    spec: FileSpec = registry.convert(filled, FileSpec, root)
    if not spec.roles:
        raise (root / "roles").error("there are no roles")
    roles = {name: _role(name, role, values, registry, root / "roles" / name) for name, role in spec.roles.items()}
    return Topology(str(path), roles, spec.seed, values, registry)


def _role(name: str, raw: Any, values: Variables, registry: Registry, place: Place) -> Role:
    """A role whose own keys are filled in, but not its stages: there, variables may differ from process to process."""
    if isinstance(raw, list):
        return Role(name, raw, place)
    if not isinstance(raw, dict):
        raise place.error(f"expected a list of stages, or a mapping with the key stages; got {show(raw)}")
    filled = {key: value if key == "stages" else values.fill(value, place / key) for key, value in raw.items()}
    spec: RoleSpec = registry.convert(filled, RoleSpec, place)
    return Role(name, spec.stages, place / "stages", spec.replicas)

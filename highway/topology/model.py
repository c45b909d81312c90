"""A topology: a plan of roles, hosts and links, and the pipelines of its roles."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from highway.engine import Pipeline
from highway.engine.stage import Stage
from highway.errors import ConfigError
from highway.parameters.location import Location, did_you_mean, show
from highway.topology.plan import COMPONENTS, Plan, Process, Role
from highway.topology.process_spec import ProcessSpec, RoleKey
from highway.topology.registry import Registry
from highway.topology.variables import Variables
from highway.wire.url import Direction

LINK_SAYS = ("url", "bind", "codec", "senders", "receivers", "budget_mb", "tap", "extra", "peers", "topology")
"""The parameters that a link gives to the component of a stage with ``link: NAME``."""

LinkParameters = Callable[[str, Direction], dict[str, Any]]  # (name of a link, direction) -> parameters of the component


@dataclass(frozen=True)
class Topology:
    """The content of a topology file. :func:`highway.topology.load` returns a topology.

    The methods :meth:`stages` and :meth:`pipeline` build the components of a role.

    Args:
        path: The path of the file, or of the last file if several files were merged.
        plan: The roles, hosts and links.
        seed: The seed of all pipelines.
        variables: The variables and their values.
        registry: The registry that builds the components.

    >>> from highway.topology import load
    >>> with open("noise.yaml", "w") as file:
    ...     text = file.write("roles: {source: [{Noise: {shape: [2], count: 3}}], other: [[1, 2], Identity]}")
    >>> topology: Topology = load("noise.yaml")
    >>> list(topology.roles)
    ['source', 'other']
    """

    path: str
    plan: Plan
    seed: int
    variables: Variables
    registry: Registry

    @cached_property
    def looked_at(self) -> dict[str, Any]:
        """The checked stages of each role, by name. Only :mod:`highway.topology.checking` uses this dict."""
        return {}

    @property
    def roles(self) -> Mapping[str, Role]:
        """The roles by name."""
        return self.plan.roles

    def on_this_machine(self) -> Topology:
        """Return this topology, but run all hosts on this machine."""
        return replace(self, plan=replace(self.plan, local=True))

    def at_rendezvous(self) -> Topology:
        """Return this topology with names instead of addresses for links, because the hosts are known only after the roles start."""
        return replace(self, plan=replace(self.plan, named=True))

    def joined(self, on: str, isolated: bool = False) -> Topology:
        """Return this topology with names instead of addresses for links, and join the rendezvous, which stores the address of each name.

        Args:
            on: The rendezvous, as for ``Pipeline.from_yaml``. Empty: return the topology unchanged.
            isolated: Whether the pipeline is isolated. An isolated pipeline cannot use a rendezvous.

        Raises:
            ConfigError: the pipeline or the links cannot use this rendezvous.
        """
        if not on:
            return self
        if isolated:
            raise ConfigError(f"on={on!r}: an isolated pipeline only connects to the hosts of the file; remove on= or isolated=True")
        from highway.wire import rendezvous  # imported here, because most topologies need no rendezvous

        rendezvous.join(on, run=self.plan.name)
        return self.at_rendezvous()

    def anywhere(self) -> Topology:
        """Return this topology for an engine that chooses the hosts: without hosts, and with names instead of addresses for links."""
        roles = {name: replace(role, hosts=()) for name, role in self.roles.items()}
        return replace(self, plan=replace(self.plan, roles=roles)).at_rendezvous()

    def role(self, name: str) -> Role:
        """Return the role ``name``.

        Raises:
            ConfigError: the role does not exist.
        """
        if name not in self.roles:
            raise ConfigError(f"{self.path}: no role {name!r}{did_you_mean(name, self.roles)}")
        return self.roles[name]

    def check_host(self, host: str | None) -> None:
        """Check that ``host`` is ``None`` or a host of the file.

        Raises:
            ConfigError: the host is not in the file.
        """
        if host is not None and host not in self.plan.hosts:
            raise ConfigError(f"{self.path}: no host {host!r}{did_you_mean(host, self.plan.hosts)}")

    def processes(self, host: str | None = None) -> list[Process]:
        """Return the processes that highway starts, on all hosts or only on ``host``.

        Raises:
            ConfigError: the host does not exist, or there is no process to start.
        """
        self.check_host(host)
        processes = self.plan.processes(host)
        if not processes and host is None:
            raise ConfigError(f"{self.path}: all roles are external, so there is nothing to start")
        if not processes:
            used = sorted({process.host for process in self.plan.processes() if process.host})
            raise ConfigError(f"{self.path}: nothing runs on {host}" + (f"; its roles are on {', '.join(used)}" if used else ""))
        return processes

    def stages(self, name: str, replica: int = 0) -> list[Stage]:
        """Build and return the stages of a role. ``replica`` is the index of the process, from 0. It replaces ``${replica}``.

        Raises:
            ConfigError: the role does not exist, or a stage cannot be built. The message names the stage.
        """
        return self.process_spec(name, replica).build(self.registry)

    def pipeline(self, name: str, replica: int = 0, host: str = "", isolated: bool = False) -> Pipeline:
        """Return the pipeline of a role, for a program that runs the role itself. The role does not have to be ``external``.

        Arguments and errors are as for :meth:`stages` and :meth:`ProcessSpec.pipeline`.
        """
        return self.process_spec(name, replica, is_known=False).pipeline(self.registry, host, isolated)

    def process_spec(self, name: str, replica: int = 0, is_known: bool = True) -> ProcessSpec:
        """Return the specification of a process of a role.

        Args:
            name: The role.
            replica: The index of the process, from 0.
            is_known: Whether the launcher of the file starts this process, or the file declares its role as ``external``.

        Raises:
            ConfigError: the role does not exist, or its variables or links have errors. The message names the place.
        """
        role, env = self.role(name), self.environment(name, replica)
        variables = self.variables.of_process(name, replica, env)
        stages = [
            self._resolve(role, index, variables, lambda *end: self.plan.link_parameters(end[0], name, replica, end[1], is_known=is_known))
            for index in range(len(role.stages))
        ]
        host = role.host(replica)
        return ProcessSpec(self.key(name), replica, host, self.plan.address(host), stages, role.location, self.seed, env)

    def key(self, name: str) -> RoleKey:
        """Return the key that identifies the processes of a role on a machine."""
        return RoleKey(self.plan.path, name, self.role(name).most)

    def environment(self, name: str, replica: int = 0) -> dict[str, str]:
        """Return the environment variables that the file sets for a process of a role."""
        variables = self.variables.of_process(name, str(replica))  # str(), because all values in an environment are text
        found: dict[str, str] = variables.fill(self.role(name).env, self.plan.location / "roles" / name / "env")
        return found

    def build(
        self, role: Role, replica: int, linked: LinkParameters, only: Sequence[int] | None = None
    ) -> Iterator[tuple[int, Stage | ConfigError]]:
        """Yield the stages of a role, or only the stages in ``only``, with their indices.

        If a stage cannot be built, yield the error instead of the stage.

        ``linked`` returns the parameters for ``{link: NAME}``. It is called once for each such reference.
        """
        variables = self.variables.of_process(role.name, replica, self.environment(role.name, replica))
        for index in range(len(role.stages)) if only is None else only:
            try:
                yield index, self.registry.build_stage(self._resolve(role, index, variables, linked), role.location / index)
            except ConfigError as error:
                yield index, error

    @staticmethod
    def _resolve(role: Role, index: int, variables: Variables, linked: LinkParameters) -> Any:
        """Return a stage of a role, in which values replace variables, and parameters replace links."""
        location = role.location / index
        return _with_links(variables.fill(role.stages[index], location), location, linked)


def _with_links(spec: Any, location: Location, linked: LinkParameters) -> Any:
    """Return a copy of a stage in which every ``link: NAME`` is replaced by the link's parameters."""
    if isinstance(spec, list):
        return [_with_links(part, location / index, linked) for index, part in enumerate(spec)]
    if not isinstance(spec, dict):
        return spec
    return {
        key: _linked(key, part, location / key, linked)
        if key in COMPONENTS and isinstance(part, dict) and "link" in part
        else _with_links(part, location / key, linked)
        for key, part in spec.items()
    }


def _linked(component: str, given: Mapping[str, Any], location: Location, linked: LinkParameters) -> dict[str, Any]:
    for key in LINK_SAYS:
        if key in given:
            raise (location / key).error(f"the link already defines {key}; remove one of the two")
    if not isinstance(given["link"], str):
        raise (location / "link").error(f"expected the name of a link, got {show(given['link'])}")
    try:
        found = linked(given["link"], COMPONENTS[component])
    except ConfigError as error:
        raise (location / "link").error(str(error)) from None
    return {**found, **{key: value for key, value in given.items() if key != "link"}}

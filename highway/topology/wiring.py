"""The links between some processes of a topology: which roles send to which, and which links are complete.

A *role* is a pipeline of a topology file. A *replica* is one of its processes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from highway.topology.checking import LinkEnd, link_ends
from highway.topology.model import Topology
from highway.topology.plan import Process, Side, names
from highway.wire.url import Direction


@dataclass(frozen=True)
class Wiring:
    """The processes of a topology that one launcher runs. The topology must have no errors. The stages are built once, on first use.

    Args:
        scales: Whether the number of processes of a role with ``autoscale`` can change during the run. ``processes`` then holds all
            possible processes.
    """

    topology: Topology
    processes: Sequence[Process]
    scales: bool = False

    @classmethod
    def scaling(cls, topology: Topology) -> Wiring:
        """Return all possible processes of a topology, for a launcher that can start more processes during the run.

        Raises:
            ConfigError: there is no process to start.
        """
        roles = dict.fromkeys(process.role for process in topology.processes())
        return cls(topology, [process for role in roles for process in topology.roles[role].processes], scales=True)

    @cached_property
    def first(self) -> Sequence[Process]:
        """The processes that are started at the beginning of the run."""
        roles = self.topology.roles
        return [process for process in self.processes if not self.scales or process.replica < roles[process.role].replicas]

    @cached_property
    def ends(self) -> Sequence[LinkEnd]:
        """The ends of links in these processes."""
        return link_ends(self.topology, self.processes)

    @cached_property
    def roles(self) -> set[str]:
        """The roles of the processes."""
        return {process.role for process in self.processes}

    @cached_property
    def feeders(self) -> Mapping[str, set[str]]:
        """For each role, the roles that send to it: over a link of the file, or because stages of both roles have the same URL."""
        found: dict[str, set[str]] = {role: set() for role in self.roles}
        for spec in self.topology.plan.links.values():
            for role in self.roles & set(names(spec, "to")):
                found[role] |= self.roles & set(names(spec, "from"))
        senders: dict[str, set[str]] = {}
        for end in self._unnamed("send"):
            for address in end.link.addresses:
                senders.setdefault(address, set()).add(end.process.role)
        for end in self._unnamed("receive"):
            found[end.process.role].update(*(senders.get(address, ()) for address in end.link.addresses))
        return found

    @cached_property
    def fed_here(self) -> set[str]:
        """The roles for which all senders that the file names are among these processes."""
        links = self.topology.plan.links
        return self.roles - {role for link, spec in links.items() if not self._has_all(link, "from") for role in names(spec, "to")}

    @cached_property
    def whole_links(self) -> set[str]:
        """Names of the links whose ends are all in these processes. If stages define a link by URLs, these processes have both ends."""
        named = {link for link in self.topology.plan.links if self._has_all(link, "from") and self._has_all(link, "to")}
        return named | ({end.label for end in self._unnamed("send")} & {end.label for end in self._unnamed("receive")})

    @cached_property
    def sinks(self) -> set[str]:
        """The roles that send nothing over a link. A run ends when these roles have ended."""
        return self.roles - {end.process.role for end in self.ends if end.direction == "send"}

    def _unnamed(self, direction: Direction) -> list[LinkEnd]:
        return [end for end in self.ends if end.direction == direction and not end.name]

    def _has_all(self, link: str, side: Side) -> bool:
        roles = self.topology.roles
        at_first = {process for process in self.topology.plan.processes_at(link, side) if process.replica < roles[process.role].replicas}
        return at_first <= set(self.processes)


def depths_of(feeders: Mapping[str, set[str]]) -> Mapping[str, int]:
    """Return the depth of each role: the maximum number of roles that an item passes before this role. A cycle counts each role once."""

    def depth(role: str, passed: frozenset[str]) -> int:
        return max((1 + depth(feeder, passed | {feeder}) for feeder in feeders[role] - passed), default=0)

    return {role: depth(role, frozenset([role])) for role in feeders}

"""Which roles of a topology feed which, as far as their processes run here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from highway.topology.check import link_ends
from highway.topology.components import built_in
from highway.topology.model import Topology
from highway.topology.plan import Process, names


def feeders(topology: Topology, processes: Sequence[Process]) -> Mapping[str, set[str]]:
    """Return the roles among some processes, each with those of them that send to it: over a link, or at an address in their stages."""
    found: dict[str, set[str]] = {process.role: set() for process in processes}
    for spec in topology.plan.links.values():
        for role in found.keys() & set(names(spec, "to")):
            found[role] |= found.keys() & set(names(spec, "from"))
    explicit = [end for end in link_ends(topology, processes) if not end.name]
    for receiver in explicit:
        for sender in explicit:
            if (sender.direction, receiver.direction) == ("send", "receive") and set(sender.link.addresses) & set(receiver.link.addresses):
                found[receiver.process.role].add(sender.process.role)
    return found


def fed_here(topology: Topology, processes: Sequence[Process]) -> set[str]:
    """Return the roles among some processes to which no process sends that is not among them, as far as the file knows."""
    plan = topology.plan
    outside = {
        role for link, spec in plan.links.items() if set(plan.processes_at(link, "from")) - set(processes) for role in names(spec, "to")
    }
    return {process.role for process in processes} - outside


def depths_of(feeders: Mapping[str, set[str]]) -> Mapping[str, int]:
    """Return for each role how many others an item passes before it, at most; in a circle of roles each counts once."""

    def depth(role: str, passed: frozenset[str]) -> int:
        return max((1 + depth(feeder, passed | {feeder}) for feeder in feeders[role] - passed), default=0)

    return {role: depth(role, frozenset([role])) for role in feeders}


def whole_links(topology: Topology, processes: Sequence[Process]) -> set[str]:
    """Return the links all of whose ends are among some processes, by name; one that is written as URLs, if both sides are."""
    plan = topology.plan
    named = {link for link in plan.links if {*plan.processes_at(link, "from"), *plan.processes_at(link, "to")} <= set(processes)}
    explicit = [end for end in link_ends(topology, processes) if not end.name]
    sides = [{end.label for end in explicit if end.direction == way} for way in ("send", "receive")]
    return named | (sides[0] & sides[1])


def sinks(topology: Topology, processes: Sequence[Process]) -> set[str]:
    """Return the roles that do not send on over a link, at whose end a run ends."""
    sends = built_in("highway.modules")["ZMQSink"]
    return {process.role for process in processes if not isinstance(topology.stages(process.role, process.replica)[-1].op, sends)}

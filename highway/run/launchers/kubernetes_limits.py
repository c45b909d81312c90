"""Features of topologies that Kubernetes does not support, and names in Kubernetes."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from highway.errors import ConfigError
from highway.topology import Topology
from highway.topology.checking import link_ends
from highway.topology.plan import Plan, Role, names
from highway.wire.address import is_loopback

LONGEST = 50  # characters of a name: Kubernetes appends to it, and the limit of host names and label values is 63

_VALUE = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?")
_KEY = re.compile(r"([a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")


def label(text: str) -> str:
    """Return a name in the form of Kubernetes: lower-case letters, digits and hyphens, starting with a letter."""
    found = re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")
    return found if found[:1].isalpha() else f"highway-{found}".rstrip("-")


def problems(topology: Topology) -> Iterator[ConfigError]:
    """Yield an error for each feature of a topology that Kubernetes does not support."""
    ours = [role for role in topology.roles.values() if not role.external]
    if not ours:
        yield ConfigError(f"{topology.path}: all roles are external, so there is nothing to start")
    yield from _unreachable(topology.plan)
    yield from _within_one_host(topology, ours)
    yield from _bad_names(topology.plan, ours)
    for role in ours:
        yield from _bad_labels(topology.plan, role)
        yield from _cannot_scale(topology, role)


def _unreachable(plan: Plan) -> Iterator[ConfigError]:
    for link, spec in plan.links.items():
        if all(plan.roles[name].external for side in ("from", "to") for name in names(spec, side)):
            continue
        if not spec.over.has_port:
            message = f"a link over {spec.transport} is within one host, but each process has a pod of its own; use tcp, with a port"
            yield (plan.location / "links" / link / "transport").error(message)
            continue
        for role in (plan.roles[name] for name in names(spec, spec.bind)):
            if role.external and (not role.hosts or any(is_loopback(plan.hosts[host].address) for host in role.hosts)):
                opens = f"it is started by others and opens the port of the link {link}, and pods do not know where"
                other = "to" if spec.bind == "from" else "from"
                message = f"{opens}; give it hosts with addresses that pods reach, or the link bind: {other}"
                yield (plan.location / "roles" / role.name).error(message)


def _within_one_host(topology: Topology, roles: Sequence[Role]) -> Iterator[ConfigError]:
    """Yield an error for each URL of a link in a stage that other pods cannot reach."""
    for end in link_ends(topology, [role.processes[0] for role in roles]):
        for transport, location in zip(end.link.transports, end.link.locations, strict=True):
            if not end.name and (not transport.has_port or is_loopback(location.rpartition(":")[0] or "localhost")):
                message = "is within one host, but each process has a pod of its own; have both ends name a link over tcp"
                yield end.location.error(f"{end.link} {message}")


def _bad_names(plan: Plan, roles: Sequence[Role]) -> Iterator[ConfigError]:
    called: dict[str, str] = {}
    for role in roles:
        location, name = plan.location / "roles" / role.name, f"{label(plan.name)}-{label(role.name)}"
        if len(name) > LONGEST:
            yield location.error(f"its pods would be called {name}-0, which is too long; give the role, or the file, a shorter name")
        if name in called:
            yield location.error(f"its pods would be called {name}-0, as those of {called[name]}; give one of the two another name")
        called[name] = role.name


def _bad_labels(plan: Plan, role: Role) -> Iterator[ConfigError]:
    for key, value in role.resources.labels.items():
        if not (_KEY.fullmatch(key) and _VALUE.fullmatch(value)):
            allowed = "up to 63 letters, digits, '-', '_' and '.', and before the key a domain and '/'"
            location = plan.location / "roles" / role.name / "resources" / "labels" / key
            yield location.error(f"{value!r} cannot be a label of a node; expected {allowed}")


def _cannot_scale(topology: Topology, role: Role) -> Iterator[ConfigError]:
    if role.autoscale is None:
        return
    location = topology.plan.location / "roles" / role.name / "autoscale"
    if role.restart.when == "never":
        yield location.error("the pods of a role that scales are started again whenever they fail; say so: restart: on-failure")
    if topology.variables.mentions("replica", [role.stages, role.env]):
        yield location.error("the pods of a role that scales have no numbers, but its stages or env use ${replica}; leave one out")

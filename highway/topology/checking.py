"""Checks of a topology (a YAML file of roles and links) before anything runs: stages, links, ports, addresses, memory."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from ipaddress import ip_address
from typing import Any

from highway.datasets.dataset import Dataset
from highway.engine.component import Shape
from highway.engine.remake import needs_of_other_ranks
from highway.engine.stage import Origin, Stage, expand
from highway.engine.threads import Run
from highway.errors import ConfigError, HighwayError
from highway.parameters.location import Location, did_you_mean
from highway.topology.components import NotImported, built_in_class
from highway.topology.limits import memory
from highway.topology.model import Topology
from highway.topology.plan import COMPONENTS, SIDES, Plan, Process, Role, names, port_range
from highway.topology.spec import LinkSpec
from highway.wire.address import is_loopback
from highway.wire.codec import named
from highway.wire.transports.table import TRANSPORTS
from highway.wire.url import Direction, Link

WRITES = {direction: component for component, direction in COMPONENTS.items()}


@dataclass(frozen=True)
class LinkEnd:
    """One end of a link, in a stage of a process.

    Args:
        location: The location of the stage.
        name: The name of the link in the file; empty if the stage has a URL.
    """

    process: Process
    direction: Direction
    link: Link
    location: Location
    name: str = ""

    @property
    def label(self) -> str:
        """The name of the link in statistics: the name in the file, or the addresses in the URL."""
        return self.name or ",".join(self.link.addresses)


def check_names(plan: Plan) -> None:
    """Check the ports and transports of links, and check that the file defines all hosts and roles that roles and links name.

    Raises:
        ConfigError: a name does not exist, or a port or transport is invalid.
    """
    for kind, known in (("hosts", plan.hosts), ("links", plan.links), ("roles", plan.roles)):
        for name in known:
            if not name.isprintable():
                raise (plan.location / kind / name).error("a name must not contain a line break or another unprintable character")
    if plan.metrics:
        _check_ports(plan.metrics.port, plan.location / "metrics", "9400-9409")
    for role in plan.roles.values():
        for host in role.hosts:
            if host not in plan.hosts:
                raise (plan.location / "roles" / role.name / "hosts").error(f"unknown host {host!r}{did_you_mean(host, plan.hosts)}")
    for name, spec in plan.links.items():
        location = plan.location / "links" / name
        for side in SIDES.values():
            for unknown in set(names(spec, side)) - set(plan.roles):
                raise (location / side).error(f"unknown role {unknown!r}{did_you_mean(unknown, plan.roles)}")
        if both := set(names(spec, "from")) & set(names(spec, "to")):
            raise (location / "to").error(f"{both.pop()} cannot be at both ends of a link")
        if spec.over.has_port and spec.port is None:
            raise location.error("a tcp link needs a port")
        _check_ports(spec.port, location / "port", "5555-5558")
        _check_ports(spec.tap, location / "tap", "7900-7903")
        if spec.fans_out and not spec.over.publishes:
            raise (location / "transport").error(f"{spec.transport} links can only push; to publish, set transport: ipc")


def _check_ports(given: int | str | None, location: Location, example: str) -> None:
    numbers = port_range(given)
    if given is not None and not (numbers and numbers[-1] <= 65535):
        raise location.error(f"expected a port, or a range such as {example}, within 1 to 65535; got {given!r}")


def check(topology: Topology) -> list[ConfigError]:
    """Return the errors of a topology.

    The check builds every stage. If no stage has an error, it also checks links, ports and memory. It needs no data and no network.

    Args:
        topology: The topology to check.

    >>> with open("noise.yaml", "w") as file:
    ...     text = file.write("roles: {source: [{Noise: {shape: [2]}}, FlipZ]}")
    >>> [error] = check(load("noise.yaml"))
    >>> print(error)
    noise.yaml:1: roles.source[1]: unknown component 'FlipZ'; did you mean FlipY?
    """
    errors: dict[str, ConfigError] = {}
    uses: dict[str, Collection[tuple[str, Direction]]] = {}
    found: list[LinkEnd] = []
    for role in topology.roles.values():
        if role.external and not role.stages:
            continue
        differ = [index for index, stage in enumerate(role.stages) if topology.variables.mentions("replica", stage)]
        for process in role.processes if differ else role.processes[:1]:  # without ${replica}, all processes have the same stages
            stages = _Stages(topology, process, 1, differ) if process.replica else _first(topology, role)
            errors |= {str(error): error for error in stages.errors}
            uses.setdefault(role.name, stages.uses)
            for end in stages.link_ends:
                if not end.name:
                    same = [process] if end.location.path[-1] in differ else role.processes
                    found += [replace(end, process=each) for each in same]
    return list(errors.values()) or list(_find_errors(topology.plan, uses, found))


def labels(topology: Topology, role: str) -> tuple[str, ...]:
    """Return the labels of a role's stages. The label of a reader includes the type of its dataset. The topology must have no errors."""
    return _first(topology, topology.roles[role]).labels


def other_ranks(topology: Topology, role: str) -> str:
    """Return a text that describes what is needed to resume a role on another number of ranks. The topology must have no errors."""
    return _first(topology, topology.roles[role]).needs_of_other_ranks()


def _dataset_of(op: Any) -> str:
    """Return the type of a reader's dataset in parentheses, or an empty text if ``op`` is not a reader or has no dataset object."""
    values = getattr(op, "__dict__", {}).values()
    datasets = [value for value in values if isinstance(value, Dataset) and not isinstance(value, (str, list, tuple, dict))]
    return "".join(f"({type(dataset).__name__})" for dataset in datasets)


def not_imported(topology: Topology) -> list[str]:
    """Return a message for each component that :func:`check` has skipped, because its module was not imported."""
    return [
        f"{location}: {name} was not checked, because this runs the code of {module}; to allow this, pass --plugin {module}"
        for role in topology.roles.values()
        for name, location in _first(topology, role).not_imported
        for module in [name.partition(":")[0]]
    ]


def explicit_ends(topology: Topology) -> list[LinkEnd]:
    """Return the ends of links that stages define by URLs, for the first process of each role. The topology must have no errors."""
    return [end for role in topology.roles.values() if role.stages for end in _first(topology, role).link_ends if not end.name]


def link_ends(topology: Topology, processes: Sequence[Process]) -> list[LinkEnd]:
    """Return the ends of links in the stages of the given processes. The topology must have no errors."""
    return [end for process in processes for end in _Stages(topology, process).link_ends]


class _Stages:
    """Builds all stages of a process, or the stages in ``only``. Keeps their errors, and the links and ends of links that they use.

    The stages are not kept, because stages can be large. Each end of a link has at most ``most`` URLs.
    """

    def __init__(self, topology: Topology, process: Process, most: int | None = None, only: Sequence[int] | None = None) -> None:
        self._topology, self._process, self._most = topology, process, most
        self.uses: list[tuple[str, Direction]] = []
        self.errors: list[ConfigError] = []
        self.link_ends: list[LinkEnd] = []
        stages: list[Stage] = []
        role, used = topology.roles[process.role], 0
        for index, built in topology.build(role, process.replica, self._parameters, only):
            name, used = self.uses[-1][0] if len(self.uses) > used else "", len(self.uses)
            if isinstance(built, ConfigError):
                self.errors.append(built)
            else:
                stages.append(built)
                self._note_end(built.op, role.location / index, name)
        self._expanded: list[tuple[Stage, Shape]] = []  # empty unless all stages were built
        self.labels = tuple(f"{stage.label}{_dataset_of(stage.op)}" for stage in stages)
        self.not_imported = [one for stage in stages if isinstance(stage.op, NotImported) for one in stage.op.found]
        if only is None and not self.errors and not self.not_imported:
            try:
                self._expanded = expand(stages)
            except HighwayError as error:
                self.errors.append(role.location.error(str(error)))

    def needs_of_other_ranks(self) -> str:
        """Return what is needed to resume on another number of ranks, as a text; empty if the state of one rank is enough."""
        if not self._expanded:
            return ""
        return needs_of_other_ranks(Run(self._expanded, None, Origin()).stages)

    def _parameters(self, link: str, direction: Direction) -> dict[str, Any]:
        found = self._topology.plan.link_parameters(link, self._process.role, self._process.replica, direction, self._most)
        self.uses.append((link, direction))
        return found

    def _note_end(self, op: Any, location: Location, name: str) -> None:
        for component, direction in COMPONENTS.items():
            is_end: bool = isinstance(op, built_in_class("highway.modules", component) or ())
            if is_end:
                self.link_ends.append(LinkEnd(self._process, direction, op.link, location, name))


def _first(topology: Topology, role: Role) -> _Stages:
    """Return the stages of a role's first process. The stages are built only once."""
    if role.name not in topology.looked_at:
        topology.looked_at[role.name] = _Stages(topology, role.processes[0], most=1)
    found: _Stages = topology.looked_at[role.name]
    return found


def _find_errors(plan: Plan, uses: Mapping[str, Collection[tuple[str, Direction]]], link_ends: list[LinkEnd]) -> Iterator[ConfigError]:
    """Yield errors between roles.

    Args:
        plan: The roles and links.
        uses: For each role, the links that its stages use by name.
        link_ends: The ends of links that stages define by URLs.
    """
    for name, spec in plan.links.items():
        yield from _missing_ends(plan, name, spec, uses)
        yield from _unreachable_ends(plan, name, spec)
    for role in plan.roles.values():
        yield from _cannot_scale(plan, role)
    yield from _port_clashes(plan, link_ends)
    yield from _unmatched(link_ends)
    for name, host in plan.hosts.items():
        needed = memory(plan, name)
        if host.memory_mb and sum(needed.values()) > host.memory_mb:
            parts = f"{sum(needed.values()):,g} MB ({', '.join(f'{link} {megabytes:,g}' for link, megabytes in needed.items())})"
            message = f"the buffers of the links can use {parts}, but memory_mb is {host.memory_mb:,g}; lower the budget_mb of these links"
            yield (plan.location / "hosts" / name).error(message)


def _missing_ends(plan: Plan, link: str, spec: LinkSpec, uses: Mapping[str, Collection[tuple[str, Direction]]]) -> Iterator[ConfigError]:
    for direction, side in SIDES.items():
        for role in names(spec, side):
            if role in uses and (link, direction) not in uses[role] and not (plan.roles[role].external and not plan.roles[role].stages):
                yield (plan.location / "links" / link / side).error(
                    f"the role {role} must {direction} on the link {link}, but has no stage {WRITES[direction]}: {{link: {link}}}; add "
                    f"this stage, or remove {role} here"
                )


def _unreachable_ends(plan: Plan, link: str, spec: LinkSpec) -> Iterator[ConfigError]:
    location = plan.location / "links" / link
    binders, others = ([plan.roles[name] for name in names(spec, side)] for side in (spec.bind, "to" if spec.bind == "from" else "from"))
    hosts = {host for role in (*binders, *others) for host in role.used_hosts}
    if not spec.over.has_port and len(hosts) > 1:
        yield (location / "transport").error(f"a link over {spec.transport} needs one host, but its roles are on {_and(sorted(hosts))}")
    if not spec.over.has_port or not plan.hosts:
        return
    for role in binders:
        if not role.hosts:
            message = f"{role.name} opens the port of the link {link}, so the other roles must know its address; set hosts for this role"
            yield (plan.location / "roles" / role.name).error(message)
    for host in {host: None for role in binders for host in role.used_hosts if host}:
        if hosts - {host} and is_loopback(plan.hosts[host].address):
            away = _and(sorted(hosts - {host}))
            message = (
                f"each machine reaches only itself at {plan.hosts[host].address}, but {away} must reach {host} over the link {link}; "
                f"set an address of {host} that they can reach. To test on one machine, keep this address and pass --local to `highway run`"
            )
            yield (plan.location / "hosts" / host).error(message)


def _cannot_scale(plan: Plan, role: Role) -> Iterator[ConfigError]:
    """Yield the errors of a role with autoscale. Such a role must both receive and send on links, and must not bind a link."""
    if role.autoscale is None:
        return
    location = plan.location / "roles" / role.name / "autoscale"
    for direction, side in SIDES.items():
        links = {name: spec for name, spec in plan.links.items() if role.name in names(spec, side)}
        if not links:
            yield location.error(
                f"only a role that receives and sends on links can have autoscale, but {role.name} does not {direction} on a link"
            )
        for name, spec in links.items():
            if spec.bind == side:
                yield location.error(
                    f"{role.name} binds the link {name}, so other roles need the address of each replica; bind the link on the other side"
                )
            elif not named(spec.codec).has_envelopes:
                yield location.error(
                    f"replicas of {role.name} can start and end during the run, but the codec {spec.codec} of the link {name} cannot "
                    f"announce this to the other end; use another codec"
                )
            elif side == "to" and spec.fans_out:
                yield location.error(
                    f"each replica of {role.name} receives every item that the link {name} publishes, so more replicas would not be "
                    f"faster; set kind: push for the link"
                )


def _port_clashes(plan: Plan, link_ends: list[LinkEnd]) -> Iterator[ConfigError]:
    """Yield an error if processes of one host use the same port, a range is too short, or a link uses the port for metrics."""
    opened: dict[str, str] = {}
    links: dict[int, str] = {}
    for who, link, key, needed in _port_users(plan):
        allowed, location = port_range(getattr(plan.links[link], key)), plan.location / "links" / link / key
        links |= {port: link for port, _ in needed.values()}
        for process, (port, address) in needed.items():
            if port not in allowed:
                first, last = allowed[0], max(other for other, _ in needed.values())
                where = f" on {process.host}" if process.host else ""
                replicas = f"{last - first + 1} replicas of {process.role}"
                yield location.error(f"{replicas} each open a port{where}; set a range of ports such as {first}-{last}")
                break
            yield from _taken(opened, process.host, address, who, location)
    for end in link_ends:
        if end.link.bind and not plan.roles[end.process.role].external:
            for address in end.link.locations:
                yield from _taken(opened, end.process.host, address, f"{end.process.role}'s {end.link}", end.location)
    for port in port_range(plan.metrics.port) if plan.metrics else ():
        if port in links:
            yield (plan.location / "metrics").error(f"the link {links[port]} uses port {port}; choose other ports, such as 9400-9409")


def _port_users(plan: Plan) -> Iterator[tuple[str, str, str, dict[Process, tuple[int, str]]]]:
    """Yield all users of ports: their name in messages, the link, the key ``port`` or ``tap``, and each process's port and location."""
    for link, spec in plan.links.items():
        if spec.over.has_port:
            binders = [process for process in plan.processes_at(link, spec.bind) if not plan.roles[process.role].autoscale]
            yield f"the link {link}", link, "port", {each: (plan.port(link, each), plan.link_address(link, each)) for each in binders}
        if spec.tap is not None:
            senders = plan.processes_at(link, "from")
            taps = {each: (plan.port(link, each, "tap"), plan.tap(link, each).removeprefix("tcp://")) for each in senders}
            yield f"the tap of the link {link}", link, "tap", taps


def _taken(opened: dict[str, str], host: str, address: str, who: str, location: Location) -> Iterator[ConfigError]:
    """Record the owner of an address. Yield an error if the address already has an owner."""
    port = address.rpartition(":")[2]
    if port == "0":
        return
    key, where = (f"{host}:{port}", f" on {host}") if host else (address, "")
    if key in opened:
        others = (
            "in several replicas; use a link with a range of ports" if opened[key] == who else f"but {opened[key]} uses it too; change one"
        )
        yield location.error(f"{who} opens port {port}{where}, {others}")
    opened[key] = who


def _unmatched(link_ends: list[LinkEnd]) -> Iterator[ConfigError]:
    """Yield an error if no stage binds an address at which stages send and receive, or if the ends of a link are incompatible."""
    at: dict[str, list[LinkEnd]] = defaultdict(list)
    for end in link_ends:
        for address in end.link.addresses:
            at[address].append(end)
    for address, ends in at.items():
        roles, kinds = _and(sorted({end.process.role for end in ends})), sorted({end.link.kind for end in ends})
        if {end.direction for end in ends} == {"send", "receive"} and not any(end.link.bind for end in ends):
            yield ends[0].location.error(f"{roles} connect to {address}, but none of them binds it; give one of them bind: true")
        if len({end.link.fans_out for end in ends}) > 1:
            yield ends[0].location.error(f"{roles} use {address} as {_and(kinds)}, which cannot be combined")


def lonely_urls(topology: Topology) -> Iterator[str]:
    """For each URL in a stage: if no role has the other end, yield a sentence. The topology must have no errors."""
    found = explicit_ends(topology)
    hosts: dict[tuple[Direction, str], set[str]] = defaultdict(set)
    for end in found:
        for address in end.link.addresses:
            place, host = _parted(address)
            hosts[end.direction, place].add(host)
    for end in found:
        other: Direction = "receive" if end.direction == "send" else "send"
        for address in end.link.addresses:
            place, host = _parted(address)
            if not any(_may_meet(host, one) for one in hosts[other, place]):
                does = "receives from" if other == "receive" else "sends to"
                yield (
                    f"{end.location}: no role in the file {does} {address}, so {end.process.role} waits for another program. Correct the "
                    f"address, or declare the other program as a role with  external: true  whose stages have this URL"
                )


def _parted(address: str) -> tuple[str, str]:
    """Return the parts of an address: scheme and port, and the host."""
    scheme, _, location = address.partition("://")
    if scheme not in TRANSPORTS or not TRANSPORTS[scheme].has_port:
        return address, ""
    host, _, port = location.rpartition(":")
    return f"{scheme}:{port}", host.strip("[]")


def _may_meet(one: str, other: str) -> bool:
    """Return whether two hosts can be the same machine: their addresses are equal, or a host is a name or means all addresses."""
    try:
        first, second = ip_address(one), ip_address(other)
    except ValueError:
        return True
    return first == second or first.is_unspecified or second.is_unspecified


def _and(words: list[Any]) -> str:
    shown = [word or "other machines" for word in words]
    return " and ".join(filter(None, [", ".join(shown[:-1]), shown[-1]]))

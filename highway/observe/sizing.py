"""Estimate the threads, processes, hosts, memory and network that a topology needs for a rate, and the resource that becomes short first.

A *role* is a pipeline of the topology file. A *plan* consists of the roles, hosts and links in this file.

The functions depend only on a plan, the measured costs of its roles, the resources of a host and the rate. CPU time, network and disk grow
linearly with the rate. Threads, processes and hosts are rounded to whole numbers. Memory depends on how many threads and processes there
are.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from highway.observe.calibration import Calibration, RoleCost
from highway.topology.limits import memory
from highway.topology.plan import Plan, Role, Side, names
from highway.wire.rendezvous import REFRESH

FULL = 0.9  # maximum fraction of the time in which a host, a process or a thread is planned to be busy
SLACK = 0.05  # no thread or process is added if only this fraction of its time is needed
MESSAGES = 2  # messages that can wait at each end of a connection, even if they are larger than its buffer

GIL = "the GIL of a process"
CORES, MEMORY, IN, OUT, DISK = "cores", "memory", "network in", "network out", "disk"
GPUS = "GPUs"


@dataclass(frozen=True)
class HostSize:
    """The resources of a host. ``None`` means unknown; an unknown resource is never short.

    Args:
        cores: Number of CPU cores.
        memory_mb: Megabytes of memory.
        gbit: Gbit/s of one network interface of the host, in each direction.
        nics: Number of network interfaces.
        disk_mb: Megabytes per second that can be read from files.
        gpus: Number of GPUs. Each GPU is used by one process.
    """

    cores: int
    memory_mb: float | None = None
    gbit: float | None = None
    nics: int = 1
    disk_mb: float | None = None
    gpus: int | None = None

    def part(self, what: str, amount: float) -> float:
        """Return an amount as a fraction of the host's resource; 0 if the resource is unknown. For the units, see :class:`RoleSize`."""
        network = self.gbit * self.nics if self.gbit else None
        has = {CORES: self.cores, MEMORY: self.memory_mb, IN: network, OUT: network, DISK: self.disk_mb, GPUS: self.gpus}[what]
        return amount / has if has else 0.0


class Used(NamedTuple):
    """A resource, and the used fraction of the resource. A fraction above 1 means a shortage."""

    what: str
    part: float


@dataclass(frozen=True)
class RoleSize:
    """The needs of a role for a rate.

    Args:
        role: The name of the role.
        samples: Samples per second that the role yields: the sum over all processes of the role.
        replicas: Number of processes of the role.
        threads: Worker threads of each stage, in each process.
        hosts: Number of hosts, if each host runs only this role. 1 if links over shared memory or UNIX sockets force the role to share a
            host with other roles.
        host: Needs of the role's processes on one host: cores, megabytes of memory, Gbit/s over all network interfaces, megabytes per
            second from files.
        used: The used fraction of each resource: of a process, and of the host that runs the most processes of the role. Other roles that
            must run on this host are included. GPUs are included only if a host has too few.
    """

    role: str
    samples: float
    replicas: int
    threads: Mapping[str, int]
    hosts: int
    host: Mapping[str, float]
    used: Sequence[Used]

    @property
    def fullest(self) -> Used:
        """The resource that becomes short first when the rate grows."""
        return max(self.used, key=lambda each: each.part)


def size(plan: Plan, given: Calibration, host: HostSize, rate: float) -> list[RoleSize]:
    """Return the needs of each measured role.

    Args:
        plan: Roles and links. If the processes of a role do not share the work, the role keeps its number of replicas. A role at an end of
            the topology keeps at least this number.
        given: The costs of the roles.
        host: The resources of each host.
        rate: Samples per second that each last role yields. A last role is a role that sends to no other role. The rate is the sum over the
            processes of the role. If each process gets all samples, ``rate`` is the rate of each process.
    """
    handed_on = demands(plan, given, rate)
    known = [role for role in plan.roles.values() if role.name in given.roles]
    apart = replace(plan, roles={role.name: replace(role, hosts=(_place(plan, role.name),)) for role in plan.roles.values()})
    replicas = {role.name: _replicas(apart, given, role, handed_on[role.name], host) for role in known}
    planned = _with(apart, **replicas)
    each = {name: _of_a_process(planned, given, name, handed_on[name]) for name in replicas}
    for name, needs in each.items():
        needs[MEMORY] = _memory(planned, given, name, handed_on[name])
    found = []
    for role in known:
        name, samples, count = role.name, handed_on[role.name], replicas[role.name]
        others = [other for other in each if other != name and _place(plan, other) == _place(plan, name)]
        fits = min([count, *(math.floor(FULL / part) for what, one in each[name].items() if (part := host.part(what, one)))])
        if gpus := host.part(GPUS, role.resources.gpus):  # GPUs are planned without a reserve
            fits = min(fits, math.floor(1 / gpus))
        hosts = 1 if others else -(-count // max(1, fits))
        own = {what: one * -(-count // hosts) for what, one in each[name].items()}
        whole = {what: amount + sum(each[other][what] * replicas[other] for other in others) for what, amount in own.items()}
        of_host = [Used(what, host.part(what, amount)) for what, amount in whole.items()]
        used = [*_of_its_process(role, given.roles[name], samples, count), *of_host, *([Used(GPUS, gpus)] if gpus > 1 else [])]
        found.append(RoleSize(name, samples, count, _threads(given.roles[name], samples / count), hosts, own, used))
    return found


def together(sizes: Sequence[RoleSize], host: HostSize) -> list[Used]:
    """Return the used fractions of cores, memory and disk if one host runs all roles.

    A fraction above 1 means that the host is too small.
    """
    return [Used(what, host.part(what, sum(each.host[what] * each.hosts for each in sizes))) for what in (CORES, MEMORY, DISK)]


class Lookups(NamedTuple):
    """Queries per second to a rendezvous, which is a server that maps names of links to addresses.

    The estimate assumes that each link with a port has a name.

    Args:
        questions: Number of queries per second.
        names: Number of names per second in these queries.
    """

    questions: float
    names: float


def lookups(plan: Plan, sizes: Sequence[RoleSize]) -> Lookups:
    """Return the number of queries that all processes send to a rendezvous."""
    planned, questions, asked = _with(plan, **{each.role: each.replicas for each in sizes}), set(), 0
    for link, spec in plan.links.items():
        if spec.over.has_port:
            senders, receivers = planned.count(link, "from"), planned.count(link, "to")
            questions |= {*names(spec, "from"), *names(spec, "to")}
            asked += senders * receivers + (senders if spec.bind == "from" else receivers)
    return Lookups(sum(planned.roles[name].replicas for name in questions) / REFRESH, asked / REFRESH)


def possible(plan: Plan, given: Calibration, host: HostSize) -> Used | None:
    """Return the resource that limits the rate of a topology. ``None`` if nothing was measured.

    ``part`` of the result is the maximum rate in samples per second, not a fraction. Each host that the topology file names has the
    resources ``host``. If the file names no hosts, one host runs all processes. Memory and GPUs are not considered.
    """
    handed_on, used = demands(plan, given, 1.0), []
    for name, cost in given.roles.items():
        role = plan.roles[name]
        items = handed_on[name] / cost.samples / role.replicas
        used += [Used(_thread_name(name, stage.name, stage.workers), items * stage.seconds / stage.workers) for stage in cost.stages]
        used += [Used(f"{name}: {GIL}", items * sum(stage.held for stage in cost.stages))]
    for machine in {name: None for role in plan.roles.values() for name in role.used_hosts}:
        total = dict.fromkeys((CORES, IN, OUT, DISK), 0.0)
        for name in given.roles:
            one = _of_a_process(plan, given, name, handed_on[name])
            for what in total:
                total[what] += one[what] * plan.roles[name].on_host(machine)
        used += [Used(f"{what}{f' of {machine}' if machine else ''}", host.part(what, amount)) for what, amount in total.items()]
    short = max(used, key=lambda each: each.part, default=Used("", 0.0))
    return Used(short.what, 1 / short.part) if short.part else None


def demands(plan: Plan, given: Calibration, rate: float) -> dict[str, float]:
    """Return the samples per second that each role yields, as the sum over its processes. For ``rate``, see :func:`size`."""

    def handed_on(name: str, passed: frozenset[str]) -> float:
        links = _links(plan, name, "from")
        if name in passed:  # in a cycle
            return 0.0
        if not links:
            return rate * (plan.roles[name].replicas if _gets_all(plan, name) else 1)
        return max(flow(link, passed | {name}) / plan.count(link, "from") for link in links) * plan.roles[name].replicas

    def flow(link: str, passed: frozenset[str]) -> float:
        """Return the samples per second that are sent on a link. A sample counts once, even if several receivers get it."""
        found = [0.0]
        for name in names(plan.links[link], "to"):
            taken = given.roles[name].taken if name in given.roles else 1.0
            share = plan.roles[name].replicas if plan.links[link].fans_out else 1
            found.append(handed_on(name, passed) * taken / share / len(_links(plan, name, "to")))
        return max(found) if plan.links[link].fans_out else sum(found)

    return {name: handed_on(name, frozenset()) for name in plan.roles}


def _links(plan: Plan, role: str, side: Side) -> list[str]:
    """Return the links on which a role sends (``from``) or receives (``to``)."""
    return [link for link, spec in plan.links.items() if role in names(spec, side)]


def _gets_all(plan: Plan, role: str) -> bool:
    """Return whether each process of a role gets all samples, so that more processes do not share the work."""
    return any(plan.links[link].fans_out for link in _links(plan, role, "to"))


def _place(plan: Plan, role: str) -> str:
    """Return a name for the host of a role. Roles that are linked by shared memory or UNIX sockets get the same name."""
    found = [role]
    for name in found:
        for spec in plan.links.values():
            ends = {*names(spec, "from"), *names(spec, "to")}
            if not spec.over.has_port and name in ends:
                found += sorted(ends - set(found))
    return min(found)


def _with(plan: Plan, **replicas: int) -> Plan:
    """Return the plan with other replica counts, by role."""
    return replace(plan, roles={**plan.roles, **{name: replace(plan.roles[name], replicas=count) for name, count in replicas.items()}})


def _replicas(plan: Plan, given: Calibration, role: Role, samples: float, host: HostSize) -> int:
    """Return the number of processes that a role needs for a rate."""
    if _gets_all(plan, role.name):
        return role.replicas
    alone = _of_a_process(_with(plan, **{role.name: 1}), given, role.name, samples)
    parts = [each.part for each in _of_its_process(replace(role, autoscale=None), given.roles[role.name], samples, 1)]
    needed = math.ceil(max([*parts, *(host.part(what, amount) for what, amount in alone.items())]) / FULL - SLACK)
    is_end = not (_links(plan, role.name, "to") and _links(plan, role.name, "from"))
    return max(1, needed, role.replicas if is_end else 1)


def _of_its_process(role: Role, cost: RoleCost, samples: float, replicas: int) -> Iterator[Used]:
    """Yield the used fractions of the GIL of a process, and of the threads of stages that cannot have several threads.

    The role has ``replicas`` processes, and each has an equal part of the samples. If the role has ``autoscale``, also yield ``replicas``
    as a fraction of the maximum number of processes.
    """
    items = samples / cost.samples / replicas
    yield Used(GIL, items * sum(stage.held for stage in cost.stages))
    for stage in cost.stages:
        if stage.shape != "map":
            yield Used(f"the one thread of {stage.name}", items * stage.seconds)
    if role.autoscale is not None:
        yield Used(f"autoscale: max {role.autoscale.max}", replicas / role.autoscale.max)


def _thread_name(role: str, stage: str, workers: int) -> str:
    return f"{role}: the {f'{workers} threads' if workers > 1 else 'one thread'} of {stage}"


def _threads(cost: RoleCost, samples: float) -> dict[str, int]:
    """Return the number of worker threads that each stage of a process needs, if each thread is busy most of the time."""
    items = samples / cost.samples
    return {stage.name: max(1, math.ceil(items * stage.seconds / FULL - SLACK)) if stage.shape == "map" else 1 for stage in cost.stages}


def _of_a_process(plan: Plan, given: Calibration, name: str, samples: float) -> dict[str, float]:
    """Return the needs of each process of a role, in the units of :class:`RoleSize`, without memory."""
    cost, samples = given.roles[name], samples / plan.roles[name].replicas
    items, into, out = samples / cost.samples, _links(plan, name, "to"), _links(plan, name, "from")
    came = sum(samples * cost.taken / len(into) * _bytes_of_a_sample(plan, given, link) for link in into if _leaves(plan, link))
    copies = sum(plan.count(link, "to") if plan.links[link].fans_out else 1 for link in out if _leaves(plan, link))
    return {
        CORES: items * sum(stage.cpu for stage in cost.stages),
        IN: came * 8 / 1e9,
        OUT: items * cost.message * copies * 8 / 1e9,
        DISK: items * sum(stage.read for stage in cost.stages) / 1e6,
    }


def _memory(plan: Plan, given: Calibration, name: str, samples: float) -> float:
    """Return the megabytes of each process of a role: the process, the items between stages, and the messages at the ends of links."""
    role, cost = plan.roles[name], given.roles[name]
    threads = _threads(cost, samples / role.replicas)
    waiting = sum((stage.waiting + threads[stage.name]) * stage.nbytes for stage in cost.stages)
    alone = replace(plan, roles={**plan.roles, name: replace(role, hosts=())})  # on a host of its own
    links = 0.0
    for link, megabytes in memory(alone, "").items():
        message = max((given.roles[each].message for each in names(plan.links[link], "from") if each in given.roles), default=0.0) / 1e6
        links += megabytes * max(1.0, MESSAGES * message / plan.links[link].budget_mb)
    return given.process_mb + waiting / 1e6 + links / role.replicas


def _leaves(plan: Plan, link: str) -> bool:
    """Return whether the messages of a link pass the network."""
    spec = plan.links[link]
    hosts = {host for name in (*names(spec, "from"), *names(spec, "to")) for host in plan.roles[name].used_hosts}
    return spec.over.has_port and len(hosts) > 1


def _bytes_of_a_sample(plan: Plan, given: Calibration, link: str) -> float:
    """Return the mean bytes of a sample on a link."""
    sent = [(plan.roles[name].replicas, given.roles[name]) for name in names(plan.links[link], "from") if name in given.roles]
    return sum(count * cost.message / cost.samples for count, cost in sent) / max(1, sum(count for count, _ in sent))

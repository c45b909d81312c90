"""The plan of a topology: the hosts of processes, and the addresses of links.

A *role* is a pipeline of the file. A *replica* is one of its processes.
"""

from __future__ import annotations

import hashlib
import os
import re
import sys
import urllib.parse
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal, NamedTuple

from highway.errors import ConfigError
from highway.parameters.location import Location, did_you_mean
from highway.topology.spec import AutoscaleSpec, HostSpec, LinkSpec, MetricsSpec, ResourcesSpec, RestartSpec
from highway.wire.address import SOCKETS_FOLDER
from highway.wire.options import PeerKind
from highway.wire.transports.table import TRANSPORTS, Transport
from highway.wire.url import SCHEMES, Direction, url_of

Side = Literal["from", "to"]

SIDES: Mapping[Direction, Side] = {"send": "from", "receive": "to"}
COMPONENTS: Mapping[str, Direction] = {"ZMQSink": "send", "ZMQSource": "receive"}  # these components accept ``link: NAME`` instead of a URL
LONGEST_NAME = 60  # maximum characters of the name of a link's socket
SOCKETS: Mapping[str, tuple[str, str]] = {"push": ("push", "pull"), "publish": ("pub", "sub")}  # by kind: sender, receiver


class Process(NamedTuple):
    """A process of a role: the role, the index of the replica, and the host."""

    role: str
    replica: int
    host: str


@dataclass(frozen=True)
class Role:
    """A role of a topology.

    Args:
        stages: The stages as written in the file, before variables are replaced.
        location: The location of the stages in the file.
        replicas: The number of processes. With ``autoscale``, the initial number.
        hosts: The hosts, which the processes use in turn; empty if the file names no hosts.
        env: Environment variables of the processes as written in the file, before variables are replaced.
        external: Whether another program starts the role.
        restart: When highway restarts a process of the role.
        resources: Resources that each process needs, for engines that choose hosts.
        autoscale: The limits of the number of replicas, if the number can change during a run.
    """

    name: str
    stages: list[Any]
    location: Location
    replicas: int = 1
    hosts: tuple[str, ...] = ()
    env: Any = field(default_factory=dict)
    external: bool = False
    restart: RestartSpec = field(default_factory=lambda: RestartSpec("never"))
    resources: ResourcesSpec = field(default_factory=ResourcesSpec)
    autoscale: AutoscaleSpec | None = None

    def host(self, replica: int) -> str:
        """Return the host of process ``replica``, or ``""`` if the file names no hosts for the role."""
        return self.hosts[replica % len(self.hosts)] if self.hosts else ""

    @property
    def most(self) -> int:
        """The maximum number of processes."""
        return self.autoscale.max if self.autoscale else self.replicas

    @property
    def least(self) -> int:
        """The minimum number of processes."""
        return self.autoscale.min if self.autoscale else self.replicas

    @cached_property
    def processes(self) -> Sequence[Process]:
        """All possible processes of the role. A run begins with the first ``replicas`` processes."""
        return [Process(self.name, replica, self.host(replica)) for replica in range(self.most)]

    def on_host(self, host: str, before: int | None = None) -> int:
        """Return the maximum number of processes on a host (``""``: no host). With ``before``, count only replicas with a lower index."""
        hosts = self.hosts or ("",)
        rounds, rest = divmod(self.most if before is None else before, len(hosts))
        return rounds * hosts.count(host) + hosts[:rest].count(host)

    @property
    def used_hosts(self) -> list[str]:
        """The distinct hosts of the processes; ``[""]`` if the file names no hosts for the role."""
        return list(dict.fromkeys(self.hosts[: self.most] or ("",)))


@dataclass(frozen=True)
class Plan:
    """The roles, hosts and links of a topology, each by name.

    Args:
        name: Name of the topology. The socket names of ipc and shm links begin with this name.
        location: The location of the file's root.
        metrics: The HTTP address at which each run reports its state, if any.
        local: Whether all hosts are this machine. Each host then has its own loopback address, 127.0.0.1, 127.0.0.2 and so on.
        path: The absolute path of the file.
        named: Whether links over tcp have names instead of addresses. A rendezvous then stores the address of each name.
        identity: Text that identifies the file (of several merged files, the first file). The two ends of a link compare this text.
    """

    name: str
    roles: Mapping[str, Role]
    hosts: Mapping[str, HostSpec]
    links: Mapping[str, LinkSpec]
    location: Location
    metrics: MetricsSpec | None = None
    local: bool = False
    path: str = ""
    named: bool = False
    identity: str = ""

    def processes(self, host: str | None = None) -> list[Process]:
        """Return the processes that highway starts at the beginning of a run, on all hosts or only on ``host``."""
        here = [process for role in self.roles.values() if not role.external for process in role.processes[: role.replicas]]
        return [process for process in here if host is None or process.host == host]

    def processes_at(self, link: str, side: Side) -> list[Process]:
        """Return all possible processes on one side of a link."""
        return [process for name in names(self.links[link], side) for process in self.roles[name].processes]

    def count(self, link: str, side: Side, host: str | None = None) -> int:
        """Return the initial number of processes on one side of a link. With ``host``, return the maximum number on this host."""
        roles = [self.roles[name] for name in names(self.links[link], side)]
        return sum(role.replicas if host is None else role.on_host(host) for role in roles)

    def expected(self, link: str, side: Side) -> int:
        """Return for how many processes on ``side`` of a link the other side waits. With ``autoscale``: the minimum number."""
        return sum(self.roles[name].least for name in names(self.links[link], side))

    def address(self, host: str) -> str:
        """Return the address under which other hosts reach a host."""
        if self.local or not host:
            net, number = divmod(list(self.hosts).index(host) if host else 0, 254)  # skip .0 and .255, which can mean a whole network
            return f"127.{net >> 8}.{net & 255}.{number + 1}"
        return self.hosts[host].address

    def link_address(self, link: str, process: Process, listen: bool = False) -> str:
        """Return the address, path or name at which a process at the binding side of a link can be reached.

        With ``listen``, return the address that the process binds. It can differ from the address at which other hosts reach the process.
        """
        spec = self.links[link]
        if self.over(link).is_named:
            return f"{_quoted(link)}.{_quoted(process.role)}.{process.replica}"
        if spec.over.has_port:
            return self._listens(process, self.port(link, process), listen)
        number, _ = self._place(link, spec.bind, process)
        return spec.over.prefix + _socket_name(f"{self.name}-{link}-{number}", self._digest(f"{link}-{number}"))

    def over(self, link: str) -> Transport:
        """Return the transport of a link. If the plan is ``named``, the transport ``named`` replaces tcp."""
        transport = self.links[link].over
        return TRANSPORTS["named"] if self.named and transport.has_port else transport

    def peers(self, link: str) -> PeerKind:
        """Return the value of ``peers`` for a link. The default is ``any`` for links that publish or have an external role."""
        spec = self.links[link]
        is_open = spec.fans_out or any(self.roles[name].external for side in SIDES.values() for name in names(spec, side))
        return spec.peers or ("any" if is_open else "highway")

    def socket_paths(self, processes: Collection[Process]) -> list[str]:
        """Return the socket paths that processes open at the binding sides of links with paths."""
        links = {name: spec.bind for name, spec in self.links.items() if spec.over.location == "path"}
        ends = ((link, process) for link, side in links.items() for process in self.processes_at(link, side))
        return [self.link_address(link, process) for link, process in ends if process in processes]

    def port(self, link: str, process: Process, key: Literal["port", "tap"] = "port") -> int:
        """Return the port that a process opens for a link, or for viewers (``"tap"``). Processes on one host use successive ports."""
        spec = self.links[link]
        return port_range(getattr(spec, key))[0] + self._place(link, spec.bind if key == "port" else "from", process)[1]

    def tap(self, link: str, process: Process, listen: bool = False) -> str:
        """Return the address of a sender's tap, to which viewers can connect.

        If the file has no port for the tap, or the plan is ``named``, the address is an ipc name on the machine of the process. On Linux,
        the name is in the abstract namespace, so that no file remains. The name depends on the path of the topology file. Therefore, two
        topologies never share a name. ``listen`` is as for :meth:`link_address`.
        """
        if self.links[link].tap is not None and not self.named:
            return f"tcp://{self._listens(process, self.port(link, process, 'tap'), listen)}"
        number, _ = self._place(link, "from", process)
        name = f"@highway-tap-{os.getuid()}-{self._digest(link)}-{number}"
        return f"ipc://{name if sys.platform == 'linux' else f'{SOCKETS_FOLDER}/{name[1:]}'}"

    def _digest(self, name: str) -> str:
        """Return a digest that is different for each file on a machine, even for files with the same name."""
        return hashlib.blake2s(f"{self.path}\0{name}".encode(errors="surrogateescape"), digest_size=8).hexdigest()

    def _place(self, link: str, side: Side, process: Process) -> tuple[int, int]:
        """Return how many processes come before ``process`` on this side of a link, and how many of these are on its host."""
        before = on_host = 0
        for name in names(self.links[link], side):
            role = self.roles[name]
            if name == process.role:
                return before + process.replica, on_host + role.on_host(process.host, process.replica)
            before, on_host = before + role.most, on_host + role.on_host(process.host)
        raise ValueError(f"{process} is not on this side of the link {link}")

    def _listens(self, process: Process, port: int, listen: bool) -> str:
        address = self.address(process.host)
        if listen and process.host and not self.local:
            address = self.hosts[process.host].listen or address
        return host_and_port(address, port)

    def urls(self, link: str, role: str, replica: int, direction: Direction, most: int | None = None) -> list[str]:
        """Return the URLs of one end of a link, without options.

        ``most`` limits the number of URLs. It is for callers that only check the form of the URLs.

        Raises:
            ConfigError: the link does not exist, or the role is not at this end of the link.
        """
        spec = self.links.get(link)
        if spec is None:
            raise ConfigError(f"no link {link!r}{did_you_mean(link, self.links)}")
        side = SIDES[direction]
        if role not in names(spec, side):
            way = f"from {' and '.join(names(spec, 'from'))} to {' and '.join(names(spec, 'to'))}"
            raise ConfigError(f"the link {link} goes {way}, so {role} cannot {direction} on it")
        binds = spec.bind == side
        kind = SOCKETS[spec.kind][direction == "receive"]
        scheme = next(scheme for scheme, found in SCHEMES.items() if found == (kind, binds))
        binders = [Process(role, replica, self.roles[role].host(replica))] if binds else self.processes_at(link, spec.bind)[:most]
        return [url_of(scheme, self.over(link), self.link_address(link, process, listen=binds)) for process in binders]

    def link_parameters(
        self, link: str, role: str, replica: int, direction: Direction, most: int | None = None, is_known: bool = True
    ) -> dict[str, Any]:
        """Return the parameters that replace ``{link: NAME}`` at one end of a link: the URLs and the settings of the link.

        Arguments and errors are as for :meth:`urls`. With ``is_known=False``, an end that connects accepts any program at the other end.
        """
        urls, spec = self.urls(link, role, replica, direction, most), self.links[link]
        peers = self.peers(link) if is_known or spec.bind == SIDES[direction] else "any"
        found = {"url": urls if len(urls) > 1 else urls[0], "codec": spec.codec, "budget_mb": spec.budget_mb, "peers": peers}
        # A script that joins a run at a rendezvous might have a copy of the file. The identity of the file is then not compared.
        if self.identity and self.peers(link) == "highway" and (is_known or not self.named):
            found["topology"] = self.identity
        if direction == "receive":
            return {**found, "senders": self.expected(link, "from") if spec.senders is None else spec.senders}
        found["receivers"] = self.expected(link, "to") if spec.receivers is None else spec.receivers
        found["tap"] = self.tap(link, Process(role, replica, self.roles[role].host(replica)), listen=True)
        return found if replica < self.roles[role].least else {**found, "extra": True}


def names(spec: LinkSpec, side: Side) -> list[str]:
    """Return the roles on one side of a link."""
    found = spec.from_ if side == "from" else spec.to
    return [found] if isinstance(found, str) else found


def host_and_port(address: str, port: int) -> str:
    """Return ``address:port``, with an IPv6 address in brackets as in URLs."""
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"


def port_range(given: int | str | None) -> range:
    """Return the ports of a port number or of a range such as ``5555-5558``; empty for ``None``."""
    if given is None:
        return range(0)
    first, last = (given, given) if isinstance(given, int) else map(int, re.split("-", given))
    return range(first, last + 1)


def _quoted(name: str) -> str:
    """Quote a name so that it can stand between two dots of a URL's location."""
    return urllib.parse.quote(name, safe="").replace(".", "%2E")


def _socket_name(text: str, digest: str) -> str:
    """Return a name from a readable text and a digest. The name is unique, and fits into a URL and a socket's path (at most 107 bytes)."""
    name = re.sub(r"[^\w.-]", "_", text, flags=re.ASCII)
    return f"{name[: LONGEST_NAME - len(digest) - 1]}-{digest}"

"""Who runs where, and how the ends of the links find each other."""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple
from urllib.parse import urlencode

from highway.errors import ConfigError
from highway.place import Place, did_you_mean
from highway.topology.spec import HostSpec, LinkSpec, MetricsSpec
from highway.wire.url import DIRECTIONS, SCHEMES, Direction

Side = Literal["from", "to"]

SIDES: Mapping[Direction, Side] = {"send": "from", "receive": "to"}
COMPONENTS: Mapping[str, Direction] = {"ZMQSink": "send", "ZMQSource": "receive"}  # that take ``link: NAME`` in place of a URL
SOCKETS: Mapping[str, tuple[str, str]] = {"push": ("push", "pull"), "publish": ("pub", "sub")}  # kind of link -> sender's, receiver's


@dataclass(frozen=True)
class Role:
    """A role of a topology.

    Args:
        name: Its name.
        stages: Its stages as the file has them, with their variables.
        place: Where the file has the stages.
        replicas: How many processes run it.
        hosts: The hosts where they run, in turns; none if the file does not say.
        env: Environment variables of its processes.
        external: Whether it is started by others.
    """

    name: str
    stages: list[Any]
    place: Place
    replicas: int = 1
    hosts: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    external: bool = False

    def host(self, replica: int) -> str:
        """Return the host of one of its processes, or ``""`` if the file does not say."""
        return self.hosts[replica % len(self.hosts)] if self.hosts else ""


class End(NamedTuple):
    """A process at one end of a link."""

    role: str
    replica: int
    host: str


@dataclass(frozen=True)
class Plan:
    """The roles, hosts and links of a topology.

    Args:
        name: What names on one host (of ipc and shm links) begin with.
        roles: The roles by name.
        hosts: The hosts by name.
        links: The links by name.
        place: Where the file begins.
        metrics: Where each run answers for its state over HTTP, if it is to.
        local: Whether all hosts are this machine: each then has a loopback address of its own, 127.0.0.1, 127.0.0.2 and so on.
    """

    name: str
    roles: Mapping[str, Role]
    hosts: Mapping[str, HostSpec]
    links: Mapping[str, LinkSpec]
    place: Place
    metrics: MetricsSpec | None = None
    local: bool = False

    def processes(self, host: str | None = None) -> list[End]:
        """Return the processes that highway starts: of all hosts, or of one."""
        ends = [End(role.name, n, role.host(n)) for role in self.roles.values() if not role.external for n in range(role.replicas)]
        return [end for end in ends if host is None or end.host == host]

    def ends(self, link: str, side: Side) -> list[End]:
        """Return the processes on one side of a link."""
        roles = [self.roles[name] for name in names(self.links[link], side)]
        return [End(role.name, replica, role.host(replica)) for role in roles for replica in range(role.replicas)]

    def address(self, host: str) -> str:
        """Return where others reach a host."""
        if self.local or not host:
            return f"127.0.0.{1 + (list(self.hosts).index(host) if host else 0)}"
        return self.hosts[host].address

    def location(self, link: str, end: End, listen: bool = False) -> str:
        """Return the port, path or name that a process at the binding side of a link opens.

        Args:
            link: The link.
            end: The process.
            listen: Whether this is for the process itself, which may bind another address than the one at which others reach it.
        """
        spec = self.links[link]
        number = self.ends(link, spec.bind).index(end)
        if spec.transport != "tcp":
            name = f"highway-{os.getuid()}-{self.name}-{link}-{number}"
            return f"{tempfile.gettempdir()}/{name}" if spec.transport == "ipc" else name
        address = self.address(end.host)
        if listen and end.host and not self.local:
            address = self.hosts[end.host].listen or address
        return f"[{address}]:{self.port(link, end)}" if ":" in address else f"{address}:{self.port(link, end)}"

    def port(self, link: str, end: End) -> int:
        """Return the port that a process at the binding side opens: those of one host take the ports of the link's range in turn."""
        binders = self.ends(link, self.links[link].bind)
        return ports(self.links[link])[0] + sum(other.host == end.host for other in binders[: binders.index(end)])

    def urls(self, link: str, role: str, replica: int, direction: Direction) -> list[str]:
        """Return the URLs of one end of a link.

        Raises:
            ConfigError: there is no such link, or the role is not at that end of it.
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
        scheme = next(scheme for scheme, found in SCHEMES.items() if found == (kind, binds) and DIRECTIONS[found[0]] == direction)
        own = End(role, replica, self.roles[role].host(replica))
        locations = [self.location(link, own, listen=True)] if binds else [self.location(link, end) for end in self.ends(link, spec.bind)]
        transport = "" if spec.transport == "tcp" else f"+{spec.transport}"
        return [f"{scheme}{transport}://{location}?{self._options(link, direction)}" for location in locations]

    def _options(self, link: str, direction: Direction) -> str:
        spec = self.links[link]
        options: dict[str, object] = {"codec": spec.codec, "budget_mb" if spec.transport == "shm" else "hwm_mb": f"{spec.budget_mb:g}"}
        if direction == "send":
            options["receivers"] = len(self.ends(link, "to")) if spec.receivers is None else spec.receivers
        else:
            options["senders"] = len(self.ends(link, "from")) if spec.senders is None else spec.senders
        return urlencode(options)


def names(spec: LinkSpec, side: Side) -> list[str]:
    """Return the roles on one side of a link."""
    found = spec.from_ if side == "from" else spec.to
    return [found] if isinstance(found, str) else found


def ports(spec: LinkSpec | MetricsSpec) -> range:
    """Return the ports of a tcp link or of an endpoint; none if the file names none."""
    if spec.port is None:
        return range(0)
    first, last = (spec.port, spec.port) if isinstance(spec.port, int) else map(int, re.split("-", spec.port))
    return range(first, last + 1)

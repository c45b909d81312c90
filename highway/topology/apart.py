"""Check whether the roles of a topology can run on hosts that an engine chooses later.

A *role* is a pipeline of the topology file. An *engine*, such as Ray or Slurm, is a place where highway runs the processes of the roles.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from highway.errors import ConfigError
from highway.topology.checking import LinkEnd
from highway.topology.model import Topology
from highway.topology.wiring import Wiring
from highway.wire.address import is_loopback


def problems_apart(topology: Topology) -> Iterator[ConfigError]:
    """Yield an error for each part of a topology that needs one common host or known hosts. The topology must have passed :func:`check`."""
    location = topology.plan.location / "links"
    for name, spec in topology.plan.links.items():
        if not spec.over.has_port:
            yield (location / name / "transport").error(
                f"a link over {spec.transport} works only within one host, but this engine may choose several hosts; set transport: tcp"
            )
    used: dict[str, list[LinkEnd]] = defaultdict(list)
    for end in Wiring(topology, topology.processes()).ends:
        for address in () if end.name else end.link.addresses:
            used[_place(address)].append(end)
    for address, ends in used.items():
        if len(roles := sorted({end.process.role for end in ends})) > 1:
            yield ends[0].location.error(
                f"{' and '.join(roles)} use {address}, but their hosts are not known before the run; replace this URL by a link of the file"
            )


def _place(address: str) -> str:
    """Return an address for comparisons. All addresses of this host with the same port become equal."""
    scheme, _, location = address.partition("://")
    host, _, port = location.rpartition(":")
    return f"{scheme}://*:{port}" if host in ("*", "0.0.0.0", "[::]") or is_loopback(host.strip("[]")) else address

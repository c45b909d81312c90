"""The URLs at which a viewer can subscribe to a running link.

A *viewer* is a program that reads copies of the messages of a link.
"""

from __future__ import annotations

import socket
from contextlib import suppress

from highway.errors import ConfigError
from highway.parameters.location import did_you_mean
from highway.topology.plan import Plan, Process, names, port_range
from highway.wire.url import url_of


def viewer_urls(plan: Plan, link: str, role: str | None = None, replica: int | None = None) -> list[str]:
    """Return the URLs at which a viewer on this machine sees the messages of a link. The viewer connects one socket to all URLs.

    A *tap* is an address at which viewers can read the messages of a sender. The URLs are the taps of all senders of the link. ``role`` and
    ``replica`` select the senders of one role, and the process with this index. If a publisher has no reachable tap, the URL is the address
    of the link.

    Raises:
        ConfigError: the link does not exist, the role or replica does not send on the link, or this machine cannot reach a tap.
    """
    if link not in plan.links:
        raise (plan.location / "links").error(f"no link {link!r}{did_you_mean(link, plan.links)}")
    spec, processes = plan.links[link], _chosen(plan, link, role, replica)
    away = [process for process in processes if spec.tap is None and not _is_here(plan, process.host)]
    has_taps = all(plan.roles[process.role].stages for process in processes)
    if spec.fans_out and spec.bind == "from" and (away or not has_taps):
        return [f"{url_of('zsub', spec.over, plan.link_address(link, process))}?codec={spec.codec}" for process in processes]
    if away:
        raise _out_of_reach(plan, link, away)
    lasting = sum(process.replica < plan.roles[process.role].least for process in processes)
    waits = f"&senders={lasting}" if 0 < lasting < len(processes) else ""  # replicas that autoscaling might never start do not count
    return [f"zsub+{plan.tap(link, process)}?codec={spec.codec}{waits}" for process in processes]


def _chosen(plan: Plan, link: str, role: str | None, replica: int | None) -> list[Process]:
    """Return the sending processes of a link. ``role`` and ``replica`` select one role, and the processes with this index."""
    senders = names(plan.links[link], "from")
    location = plan.location / "links" / link
    if role is not None and role not in senders:
        raise (location / "from").error(f"{role} does not send on this link{did_you_mean(role, senders)}")
    processes = [process for process in plan.processes_at(link, "from") if role in (None, process.role)]
    chosen = [process for process in processes if replica in (None, process.replica)]
    if not chosen:
        raise (location / "from").error(f"there is no replica {replica}; expected 0 to {max(process.replica for process in processes)}")
    return chosen


def _is_here(plan: Plan, host: str) -> bool:
    """Return whether a host of the file is this machine, that is, whether a socket can be bound to the host's address."""
    if plan.local or not host:
        return True
    with suppress(OSError, UnicodeError):
        for family, kind, protocol, _, address in socket.getaddrinfo(plan.address(host), 0, type=socket.SOCK_STREAM):
            with suppress(OSError), socket.socket(family, kind, protocol) as probe:
                probe.bind(address)
                return True
    return False


def _out_of_reach(plan: Plan, link: str, away: list[Process]) -> ConfigError:
    first = max((port_range(spec.port)[-1] for spec in plan.links.values() if spec.port is not None), default=7899) + 1
    hosts = [process.host for process in plan.processes_at(link, "from")]
    last = first + max(map(hosts.count, hosts)) - 1
    example = f"{first}-{last}" if last > first else f"{first}"
    who = ", ".join(f"{process.role} {process.replica} on {process.host}" for process in away)
    return (plan.location / "links" / link).error(
        f"{who}: viewers on another machine need a port of the tap; set a port, such as tap: {example}, and restart the topology, or "
        f"run the viewer on that machine. If everything runs on this machine, pass --local"
    )

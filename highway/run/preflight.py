"""The last checks before processes start on this machine: are ports free, and do host names have addresses?"""

from __future__ import annotations

import errno
import socket
from collections.abc import Iterable

from highway.topology.checking import LinkEnd


def preflight(ends: Iterable[LinkEnd], any_order: bool = False) -> None:
    """Check that processes on this machine can open the ports of their links and find the addresses of the other ends.

    Args:
        ends: The ends of links of these processes.
        any_order: Whether the processes start in any order. A host name of another end is then allowed to have no address yet.

    Raises:
        ConfigError: a port is in use, an address does not belong to this machine, or a name has no address.
    """
    for found in ends:
        for transport, location in zip(found.link.transports, found.link.locations, strict=True):
            if transport.has_port and not (any_order and not found.link.bind):
                host, _, port = location.rpartition(":")
                if problem := _problem("0.0.0.0" if host == "*" else host.strip("[]"), int(port), found.link.bind):
                    raise found.location.error(f"{found.process.role}: {problem}")


def _problem(host: str, port: int, bind: bool) -> str:
    """Return why an address cannot be used on this machine, or an empty text if it can be used."""
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    except (OSError, UnicodeError) as error:
        why = getattr(error, "strerror", None) or error
        return (
            f"this machine finds no address for the name {host} ({why}); correct the name, use an IP address, or add the name to /etc/hosts"
        )
    if not bind:
        return ""
    with socket.socket(family, socket.SOCK_STREAM) as tried:
        tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            tried.bind(address[:2])
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                taken = f"port {port} of {address[0]} is used by another process"
                return f"{taken}; `ss -ltnp 'sport = :{port}'` shows this process; end it, or set another port"
            if error.errno == errno.EADDRNOTAVAIL:
                return f"{address[0]} is not an address of this machine; check that this is the host that the file means"
            return f"{address[0]}:{port} cannot be opened: {error.strerror}"
    return ""

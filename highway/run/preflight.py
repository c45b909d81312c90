"""The last look before processes start on this machine: are the ports free, are the addresses known?"""

from __future__ import annotations

import errno
import socket
from collections.abc import Iterable

from highway.errors import ConfigError
from highway.topology.check import LinkEnd


def preflight(ends: Iterable[LinkEnd]) -> None:
    """Look whether processes can open their ports here, and know the addresses that they connect to.

    Args:
        ends: The ends of links in the processes that are to start on this machine.

    Raises:
        ConfigError: a port is taken, an address is not one of this machine, or a name has no address.
    """
    for found in ends:
        for transport, location in zip(found.link.transports, found.link.locations, strict=True):
            if transport.has_port:
                host, _, port = location.rpartition(":")
                address = _resolve(found, "0.0.0.0" if host == "*" else host.strip("[]"), int(port))
                if found.link.bind:
                    _try_to_bind(found, *address)


def _resolve(found: LinkEnd, host: str, port: int) -> tuple[int, tuple[str, int]]:
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    except (OSError, UnicodeError) as error:
        why = getattr(error, "strerror", None) or error
        raise found.location.error(
            f"{found.process.role}: the name {host} has no address here ({why}); correct it, give an IP address, or put it into /etc/hosts"
        ) from None
    return family, (str(address[0]), int(address[1]))


def _try_to_bind(found: LinkEnd, family: int, address: tuple[str, int]) -> None:
    with socket.socket(family, socket.SOCK_STREAM) as tried:
        tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            tried.bind(address)
        except OSError as error:
            raise _explain(found, address, error) from None


def _explain(found: LinkEnd, address: tuple[str, int], error: OSError) -> ConfigError:
    host, port = address
    if error.errno == errno.EADDRINUSE:
        message = f"port {port} of {host} is taken by another process; `ss -ltnp 'sport = :{port}'` shows which, another port is free"
    elif error.errno == errno.EADDRNOTAVAIL:
        message = f"{host} is no address of this machine; is this the host that the file means?"
    else:
        message = f"{host}:{port} cannot be opened: {error.strerror}"
    return found.location.error(f"{found.process.role}: {message}")

"""The table of all transports. No other code compares the names of transports."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from highway.wire.address import SOCKETS_FOLDER

BetweenProcesses = Literal["tcp", "ipc", "shm"]
"""Transports between processes. A topology can use them for the links between its roles (groups of equal processes)."""


@dataclass(frozen=True)
class Transport:
    """A transport.

    Args:
        name: The name in URLs and topologies.
        package: The package next to this module that opens the ends of links (:mod:`highway.wire.transports.opening`).
        location: The form of the part of a URL after ``://``.
        alone: The reason, for error messages, why URLs of this transport cannot share a socket with URLs of other transports. Empty if they
            can.
        publishes: Whether the transport supports publishers and subscribers in addition to push and pull.
        within_process: Whether both ends are in one process. If true, the transport does not report connections, and a receiver reads the
            sender's memory.
        checks_user: Whether an end that connects refuses processes of other users.
        is_named: Whether the locations are names at a rendezvous, a store of addresses (:mod:`highway.wire.rendezvous`).
        prefix: Prefix of the locations that a topology uses for links on one host.
        budget_mb: Default of the option ``budget_mb``: maximum megabytes that wait at each end of each connection.
        is_senders_budget: Whether ``budget_mb`` limits all connections of the sender together, instead of each connection.
        departure: How a receiver leaves without losing messages. ``"marks"``: the receiver notifies its senders, which reply with marks
            (:mod:`highway.wire.goodbye`). ``"at once"``: the senders immediately use other receivers. ``"no"``: a receiver cannot leave
            without losing messages.
        loss: A sentence about losses that are possible only over this transport, or empty.
    """

    name: str
    package: Literal["zmq", "shm"]
    location: Literal["host:port", "path", "name"]
    alone: str = ""
    publishes: bool = True
    within_process: bool = False
    checks_user: bool = False
    is_named: bool = False
    prefix: str = ""
    budget_mb: float = 64.0
    is_senders_budget: bool = False
    departure: Literal["marks", "at once", "no"] = "marks"
    loss: str = ""

    @property
    def has_port(self) -> bool:
        """Whether the locations are ``host:port``. Among transports without a port, only ``named`` reaches other machines."""
        return self.location == "host:port"


TRANSPORTS: Mapping[str, Transport] = {
    each.name: each
    for each in (
        Transport("tcp", "zmq", "host:port", loss="if the network is cut: the messages in transit are lost"),
        Transport("ipc", "zmq", "path", checks_user=True, prefix=f"{SOCKETS_FOLDER}/"),
        Transport(
            "shm",
            "shm",
            "name",
            alone="shm is shared memory, which ZeroMQ sockets cannot read; use ipc instead, or use a separate source or sink for each URL",
            publishes=False,
            checks_user=True,
            prefix=f"highway-{os.getuid()}-",
            budget_mb=256.0,
            is_senders_budget=True,
            departure="at once",
        ),
        Transport("named", "zmq", "name", is_named=True, loss="if the network is cut or a host fails: the messages in transit are lost"),
        Transport(
            "inproc",
            "zmq",
            "name",
            alone="over inproc, ZeroMQ does not report connections, so the end of the stream would be missed; use ipc instead",
            within_process=True,
            departure="no",
        ),
    )
}
"""Name -> transport. The first transport is the default of URLs."""

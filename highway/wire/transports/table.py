"""The transports: one record of data for each. Nobody else compares their names."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from highway.wire.address import SOCKETS_FOLDER

BetweenProcesses = Literal["tcp", "ipc", "shm"]
"""Those that link processes, and so the roles of a topology."""


@dataclass(frozen=True)
class Transport:
    """A way for messages to travel.

    Args:
        name: What URLs and topologies call it.
        package: The package beside this module that opens its ends (:mod:`highway.wire.transports.opening`).
        location: What its URLs have behind ``://``.
        alone: Why its URLs share no socket with those of others, and what to do: the end of an error; empty if they do.
        publishes: Whether it has publishers and subscribers, besides push and pull.
        within_process: Whether both ends are in one process: then nobody tells who is connected, and a receiver holds what was sent.
        checks_user: Whether an end that connects refuses another user's at the other end.
        is_named: Whether its locations are names, under which the end that binds publishes its address (:mod:`highway.wire.rendezvous`).
        prefix: What the locations of a topology's links begin with, on one host.
        budget_mb: Megabytes that may wait, if a link does not say: at each end of each connection.
        is_senders_budget: Whether they wait at the sender in its place, for all connections together.
        departure: How a receiver leaves without a loss: its senders are told, and send marks (:mod:`highway.wire.goodbye`), or they turn
            to others at once; or not at all.
        loss: What it may lose beside what all may: a sentence, or nothing.
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
        """Whether it has hosts and ports, so that other machines can be reached; else it stays on one."""
        return self.location == "host:port"


TRANSPORTS: Mapping[str, Transport] = {
    each.name: each
    for each in (
        Transport("tcp", "zmq", "host:port", loss="if the network is cut: what was under way is lost"),
        Transport("ipc", "zmq", "path", checks_user=True, prefix=f"{SOCKETS_FOLDER}/"),
        Transport(
            "shm",
            "shm",
            "name",
            alone="shm is shared memory, which no socket of ZeroMQ reads; use ipc in its place, or give each a source or sink of its own",
            publishes=False,
            checks_user=True,
            prefix=f"highway-{os.getuid()}-",
            budget_mb=256.0,
            is_senders_budget=True,
            departure="at once",
        ),
        Transport("named", "zmq", "name", is_named=True, loss="if the network is cut or a host fails: what was under way is lost"),
        Transport(
            "inproc",
            "zmq",
            "name",
            alone="over inproc ZeroMQ does not tell who is connected, so the end of the stream would be missed; use ipc in its place",
            within_process=True,
            departure="no",
        ),
    )
}
"""Name -> transport; the first one is that of URLs that name none."""

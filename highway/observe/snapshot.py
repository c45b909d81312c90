"""The current state of one ``highway run``, as plain values and JSON. The HTTP endpoint of the run returns this JSON."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from highway.observe.state import ReplicaState, as_json
from highway.safe_text import for_terminal
from highway.topology.wiring import Wiring
from highway.wire.counters import LINK_COUNTERS


@dataclass(frozen=True)
class Ends:
    """The names of the links of a replica (process). If a link is only a URL in the file, the name is the address in the URL.

    Args:
        receives: The link of the replica's source; empty if the source is not a link.
        sends: The link of the replica's sink; empty if the sink is not a link.
        publishes: Whether each receiver of the link ``sends`` gets all messages.
    """

    receives: str = ""
    sends: str = ""
    publishes: bool = False


@dataclass(frozen=True)
class Loss:
    """The missing messages of a push link.

    Args:
        missing: Number of messages that were sent and not received: in transit, or lost.
        lost: Number of messages that were lost because a process at one end of the link has ended. Exact if no message is in transit.
    """

    missing: int = 0
    lost: int = 0


@dataclass(frozen=True)
class Snapshot:
    """The replicas of one ``highway run``.

    Args:
        topology: The name of the topology.
        states: The replicas that the launcher runs. The statistics of a restarted replica include its earlier processes.
        ends: The links of each replica, by the replica's name.
        losses: The missing messages of each link that has all its ends in this run, by the link's name.
        loads: For each working replica, by name, the fraction of the last half minute in which the replica had work.
        machine: The hostname of this machine.
        pid: The ID of the process that answers.
        time: The time of the snapshot, as ``time.time()``.
    """

    topology: str
    states: Sequence[ReplicaState] = ()
    ends: Mapping[str, Ends] = field(default_factory=dict)
    losses: Mapping[str, Loss] = field(default_factory=dict)
    loads: Mapping[str, float] = field(default_factory=dict)
    machine: str = field(default_factory=lambda: os.uname().nodename)
    pid: int = field(default_factory=os.getpid)
    time: float = field(default_factory=time.time)

    def to_json(self) -> bytes:
        """Return the snapshot as JSON."""
        return as_json(self)

    @classmethod
    def from_json(cls, text: bytes) -> Snapshot:
        """Parse the text of :meth:`to_json`.

        Raises:
            ValueError: the text is not a snapshot. The message names the invalid part.
        """
        try:
            snapshot = _decoder.decode(msgspec.json.encode(_made_safe(msgspec.json.decode(text))))
        except (msgspec.MsgspecError, RecursionError, UnicodeError) as error:
            raise ValueError(f"not statistics of highway: {for_terminal(error)}") from None
        for state in snapshot.states:
            if state.stats and not state.stats.stages:
                raise ValueError(f"not statistics of highway: {state.name} has no stages")
            for stage in state.stats.stages if state.stats else ():
                if any(not isinstance(stage.counters.get(name, 0), (int, float)) for name in LINK_COUNTERS):
                    raise ValueError(f"not statistics of highway: a counter of {stage.name} is not a number")
        return snapshot


_decoder = msgspec.json.Decoder(Snapshot)  # created here, because two concurrent first uses crashed msgspec 0.22


def _made_safe(value: Any) -> Any:
    """Return plain values whose texts are safe to print on a terminal. Raises ValueError for numbers that do not fit into 64 bits."""
    if isinstance(value, dict):
        return {for_terminal(key): _made_safe(part) for key, part in value.items()}
    if isinstance(value, list):
        return list(map(_made_safe, value))
    if isinstance(value, (int, float)) and not -(2**63) <= value < 2**63:
        raise ValueError("not statistics of highway: a number is too large")
    return for_terminal(value) if isinstance(value, str) else value


def find_ends(wiring: Wiring) -> dict[str, Ends]:
    """Return the links of the processes in ``wiring``, by the names of their replicas. The topology must be valid."""
    found = {}
    links = {(end.process, end.direction): end for end in wiring.ends}
    for process in wiring.processes:
        receives, sends = links.get((process, "receive")), links.get((process, "send"))
        name = ReplicaState(process.role, process.replica, single=wiring.topology.roles[process.role].most == 1).name
        found[name] = Ends(receives.label if receives else "", sends.label if sends else "", sends is not None and sends.link.fans_out)
    return found

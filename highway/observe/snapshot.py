"""The current state of one ``highway run``, for its HTTP endpoint, as plain values and JSON."""

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
    """The names of a replica's links. If a link is given by its URL, its address is its name.

    Args:
        receives: The link of its source; empty if that is not a link.
        sends: The link of its sink; empty if that is not a link.
        publishes: Whether each receiver gets all messages.
    """

    receives: str = ""
    sends: str = ""
    publishes: bool = False


@dataclass(frozen=True)
class Loss:
    """The missing messages of a push link.

    Args:
        missing: Messages that were sent and not received: under way, or lost.
        lost: Messages that are lost, because a process at one of its ends has ended; exact if no message is under way.
    """

    missing: int = 0
    lost: int = 0


@dataclass(frozen=True)
class Snapshot:
    """The replicas of one ``highway run``.

    Args:
        topology: The name of the topology.
        states: The replicas that the launcher runs; the statistics of a restarted replica continue.
        ends: The links of each replica, by the replica's name.
        losses: The links with all ends in this run, by name.
        loads: The working replicas, by name, each with the fraction of the last half minute in which it had work.
        machine: The machine's own name.
        pid: The process that answers.
        time: The time of the snapshot, in seconds of ``time.time()``.
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
            ValueError: the text is not a snapshot; the message tells where.
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
                    raise ValueError(f"not statistics of highway: a counter of {stage.name} is no number")
        return snapshot


_decoder = msgspec.json.Decoder(Snapshot)  # created here, because two concurrent first uses crashed msgspec 0.22


def _made_safe(value: Any) -> Any:
    """Return plain values with texts that are safe for a terminal. Raises ValueError for numbers that are too large."""
    if isinstance(value, dict):
        return {for_terminal(key): _made_safe(part) for key, part in value.items()}
    if isinstance(value, list):
        return list(map(_made_safe, value))
    if isinstance(value, (int, float)) and not -(2**63) <= value < 2**63:
        raise ValueError("not statistics of highway: a number is too large for one")
    return for_terminal(value) if isinstance(value, str) else value


def find_ends(wiring: Wiring) -> dict[str, Ends]:
    """Return the links of some processes of a topology without errors, by the names of their replicas."""
    found = {}
    links = {(end.process, end.direction): end for end in wiring.ends}
    for process in wiring.processes:
        receives, sends = links.get((process, "receive")), links.get((process, "send"))
        name = ReplicaState(process.role, process.replica, single=wiring.topology.roles[process.role].most == 1).name
        found[name] = Ends(receives.label if receives else "", sends.label if sends else "", sends is not None and sends.link.fans_out)
    return found

"""What one ``highway run`` knows at one moment, as it answers for it over HTTP: plain values, to JSON and back."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import msgspec

from highway.observe.state import ReplicaState
from highway.topology.wiring import Wiring


@dataclass(frozen=True)
class Ends:
    """The links of a replica, by name; one that is written as URLs is called by its address.

    Args:
        receives: The link of its source; empty if that is none.
        sends: The link of its sink; empty if that is none.
        publishes: Whether each receiver gets all that it sends.
    """

    receives: str = ""
    sends: str = ""
    publishes: bool = False


@dataclass(frozen=True)
class Loss:
    """What a link that deals out its messages lacks.

    Args:
        missing: Messages that were sent and not received: under way, or lost.
        lost: Those that are lost, since a process at one of its ends has ended; exact when nothing is under way any more.
    """

    missing: int = 0
    lost: int = 0


@dataclass(frozen=True)
class Snapshot:
    """The replicas of one ``highway run``.

    Args:
        topology: The name of the topology.
        states: The replicas that it runs; the figures of a restarted one count on.
        ends: The links of each, by the replica's name.
        losses: The links all of whose ends it runs, by name.
        loads: The replicas that work now, by name, each with the part of the last half minute in which it had work to do.
        machine: What the machine calls itself.
        pid: The process that answers.
        time: When this was, in seconds of ``time.time()``.
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
        """Return it as JSON."""
        return msgspec.json.encode(self, enc_hook=str)

    @classmethod
    def from_json(cls, text: bytes) -> Snapshot:
        """Read it back.

        Raises:
            ValueError: the text is no snapshot; the message says where.
        """
        try:
            return _decoder.decode(text)
        except msgspec.MsgspecError as error:
            raise ValueError(f"no figures of highway: {error}") from None


_decoder = msgspec.json.Decoder(Snapshot)  # made before any thread needs it: two that were the first at once crashed msgspec 0.22


def find_ends(wiring: Wiring) -> dict[str, Ends]:
    """Return the links of some processes of a topology without errors, by the names of their replicas."""
    found = {}
    links = {(end.process, end.direction): end for end in wiring.ends}
    for process in wiring.processes:
        receives, sends = links.get((process, "receive")), links.get((process, "send"))
        name = ReplicaState(process.role, process.replica, single=wiring.topology.roles[process.role].most == 1).name
        found[name] = Ends(receives.label if receives else "", sends.label if sends else "", sends is not None and sends.link.kind == "pub")
    return found

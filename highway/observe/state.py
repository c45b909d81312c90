"""The state of a replica (one process of a role), for the launcher (which starts the processes), the endpoint and ``highway top``."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any, Literal

import msgspec

from highway.engine.stats import PipelineStats
from highway.wire.tally import Counts

Phase = Literal["starting", "running", "draining", "waiting", "ended", "failed"]
"""``waiting`` is the time before a restart. After ``failed``, there is no restart."""


@dataclass(frozen=True)
class ReplicaState:
    """A replica of a role at one moment.

    Args:
        role: Name of the role.
        replica: Index of the replica, from 0.
        host: The replica's host in the file; ``""`` if the file names no host.
        phase: What the replica is doing.
        stats: The last statistics of the replica's current or last process; ``None`` before the first report.
        restarts: Number of restarts of the process.
        error: The error that ended the last process, as a text; ``""`` without an error.
        single: Whether the role has only this replica.
        counts: How many messages all processes of the replica have received and sent over links. The counts are exact even if a process was
            killed.
    """

    role: str
    replica: int = 0
    host: str = ""
    phase: Phase = "running"
    stats: PipelineStats | None = None
    restarts: int = 0
    error: str = ""
    single: bool = True
    counts: Counts = field(default_factory=Counts)

    @property
    def name(self) -> str:
        """The name in messages: ``reader``, or ``worker[1]`` if the role has several replicas."""
        return self.role if self.single else f"{self.role}[{self.replica}]"


def as_json(value: Any) -> bytes:
    """Return statistics as one line of JSON, for a process's reports to its launcher, and for the endpoint's answers.

    Values that JSON cannot represent become texts. In texts, ``?`` replaces the bytes of file names that are not valid UTF-8.
    """
    try:
        return msgspec.json.encode(value, enc_hook=str)
    except UnicodeEncodeError:
        return json.dumps(msgspec.to_builtins(value, enc_hook=str), ensure_ascii=False).encode(errors="replace")

"""The state of a replica, for its launcher, the metrics endpoint and ``highway top``."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any, Literal

import msgspec

from highway.engine.stats import PipelineStats
from highway.wire.tally import Counts

Phase = Literal["starting", "running", "draining", "waiting", "ended", "failed"]
"""``waiting`` is the time before a restart; ``failed`` means that there will be none."""


@dataclass(frozen=True)
class ReplicaState:
    """A replica of a role at one moment.

    Args:
        replica: The number, from 0.
        host: The host in the file, or ``""``.
        phase: The phase, from start to end.
        stats: The last statistics of its current or last process; ``None`` before the first report.
        restarts: Number of restarts of its process.
        error: The error that ended its last process, in words; ``""`` if there was none.
        single: Whether the role has no other replicas.
        counts: The messages that all its processes have received and sent over links; exact even if a process was killed.
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
    """Return statistics as a line of JSON: the reports of a process to its launcher, and the answers of the endpoint.

    Values that JSON does not have become texts. In texts, ``?`` replaces the bytes of file names that are not valid UTF-8.
    """
    try:
        return msgspec.json.encode(value, enc_hook=str)
    except UnicodeEncodeError:
        return json.dumps(msgspec.to_builtins(value, enc_hook=str), ensure_ascii=False).encode(errors="replace")

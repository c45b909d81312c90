"""The state of a replica, for its launcher, the metrics endpoint and ``highway top``."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

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

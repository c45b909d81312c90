"""What is known of a replica from outside: by its launcher, by the metrics endpoint, by ``highway top``."""

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
        replica: Its number, from 0.
        host: The host that the file gives it, or ``""``.
        phase: Where it is between its start and its end.
        stats: Its last figures, of the process that runs now or ran last; ``None`` before the first report.
        restarts: How many times its process was started again.
        error: What ended the process that ran last, in words; ``""`` if nothing did.
        single: Whether the role has no other replicas.
        counts: What all its processes have received and sent over links, one after the other: exact also if one was killed.
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
        """What people call it: ``reader``, or ``worker[1]`` where the role has several."""
        return self.role if self.single else f"{self.role}[{self.replica}]"

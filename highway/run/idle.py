"""For how long nothing has come to a pipeline that waits for it."""

from __future__ import annotations

from highway.engine.stats import PipelineStats, StageStats

WAITS = 0.8  # of the time between two looks that a source must have waited to count as one that waits


class Idle:
    """Looks at a pipeline's figures again and again, and tells for how long its source has waited without getting an item."""

    def __init__(self) -> None:
        self.seconds = 0.0
        """How long that is, up to the last look."""
        self._source: StageStats | None = None
        self._looked = self._since = 0.0

    def look(self, stats: PipelineStats) -> None:
        """Take in the figures since the pipeline's start."""
        source, before = stats.stages[0], self._source
        waited = source.starved - (before.starved if before else 0.0)
        got = source.items - (before.items if before else 0)
        if got or waited < WAITS * (stats.seconds - self._looked):
            self._since = stats.seconds
        self._source, self._looked, self.seconds = source, stats.seconds, stats.seconds - self._since

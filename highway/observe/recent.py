"""What a process did in the last few seconds."""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable

from highway.engine.stats import PipelineStats
from highway.observe.totals import minus

WINDOW = 3.0  # seconds


class Recent:
    """Remembers figures for some seconds, to tell rates from.

    Args:
        window: Seconds.
    """

    def __init__(self, window: float = WINDOW) -> None:
        self.window = window
        self._seen: dict[Hashable, deque[PipelineStats]] = {}

    def add(self, key: Hashable, stats: PipelineStats) -> PipelineStats:
        """Take in the figures of ``key`` since its start, and return those of the last seconds.

        If they began anew, so do these: it is another process.
        """
        seen = self._seen.setdefault(key, deque())
        if seen and (stats.seconds < seen[-1].seconds or len(stats.stages) != len(seen[-1].stages)):
            seen.clear()
        if not seen or stats.seconds > seen[-1].seconds:
            seen.append(stats)
        while len(seen) > 2 and seen[-1].seconds - seen[1].seconds >= self.window:
            seen.popleft()
        return seen[-1] if len(seen) == 1 else minus(seen[-1], seen[0])

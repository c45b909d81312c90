"""Count messages and bytes, and compute their rates."""

from __future__ import annotations

import time
from collections import deque


class Statistics:
    """Counts messages and their sizes, and computes rates: since the start, and for the recent messages.

    Args:
        horizon: Number of messages from which the recent rates are computed.
    """

    def __init__(self, horizon: int = 1000) -> None:
        self.horizon = horizon
        self.reset()

    def reset(self) -> None:
        """Set all counts to 0, and start the clock."""
        self.start = self.last = time.monotonic()
        self.count = 0
        self.total = 0.0
        self.recent: deque[tuple[float, float]] = deque(maxlen=self.horizon)

    def add(self, x: float) -> None:
        """Count one message of size ``x``."""
        self.last = time.monotonic()
        self.count += 1
        self.total += x
        self.recent.append((self.last, x))

    def rate(self) -> float:
        """Return the messages per second since the start."""
        return _ratio(self.count, self.last - self.start)

    def throughput(self) -> float:
        """Return the size per second since the start."""
        return _ratio(self.total, self.last - self.start)

    def recent_rate(self) -> float:
        """Return the messages per second of the recent messages; 0 before the second message."""
        return _ratio(len(self.recent) - 1, self._span())

    def recent_throughput(self) -> float:
        """Return the size per second of the recent messages; 0 before the second message."""
        return _ratio(sum(size for _, size in list(self.recent)[1:]), self._span())

    def summary(self) -> str:
        """Return the recent rates as a line of text."""
        return f"rate {self.recent_rate():.1f} msg/s throughput {self.recent_throughput():.2e} bytes/s"

    def _span(self) -> float:
        return self.recent[-1][0] - self.recent[0][0] if self.recent else 0.0


def _ratio(amount: float, seconds: float) -> float:
    return amount / seconds if seconds > 0 else 0.0

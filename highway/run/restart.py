"""When the process of a replica is started again."""

from __future__ import annotations

from highway.topology.spec import RestartSpec


class Restarts:
    """Counts how many times in a row the process of one replica was started again; a process that ran long enough begins a new streak."""

    def __init__(self, spec: RestartSpec) -> None:
        self.spec = spec
        self.streak = 0

    def follow(self, failed: bool) -> bool:
        """Say whether the end of a process is one that a start follows, as far as there may be more of them."""
        return self.spec.when == "always" or (self.spec.when == "on-failure" and failed)

    def delay(self, ran: float) -> float | None:
        """Return the seconds to wait before the next start, twice as many each time; ``None`` if there were as many as there may be.

        ``ran`` is the seconds that the process ran.
        """
        if ran >= self.spec.max_delay_s:
            self.streak = 0
        if self.streak >= self.spec.at_most:
            return None
        self.streak += 1
        return min(self.spec.delay_s * 2.0 ** min(self.streak - 1, 60), self.spec.max_delay_s)

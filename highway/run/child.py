"""A process of a replica, as far as its launcher has heard of it."""

from __future__ import annotations

import signal
import time
from dataclasses import dataclass, field

from highway.engine.stats import PipelineStats
from highway.run.idle import Idle
from highway.run.launcher import Handle

_ASKED = (128 + signal.SIGINT, 128 + signal.SIGTERM, -signal.SIGINT, -signal.SIGTERM)  # how a process ends that was asked to
_DRAINED = (0, 128 + signal.SIGTERM)


@dataclass(eq=False)
class Child:
    """A process of a replica.

    Args:
        handle: The process.
        started: When it was, by ``time.monotonic()``.
        stats: Its last figures.
        error: What ended it, as it said.
        leaving: Whether it was asked to end.
        done: Whether it said that it has ended as it should.
        code: How it ended; negative for a signal; ``None`` while it runs, or before all that it reported was heard.
    """

    handle: Handle
    started: float = field(default_factory=time.monotonic)
    stats: PipelineStats | None = None
    error: str = ""
    leaving: bool = False
    done: bool = False
    code: int | None = None
    _idle: Idle = field(default_factory=Idle)

    def poll(self) -> bool:
        """Take in what it has reported, and say whether it has ended."""
        code = self.handle.poll()
        for report in self.handle.reports():
            if report.stats:
                self.stats = report.stats
                self._idle.look(report.stats)
            self.error = report.error or self.error
            self.leaving = self.leaving or report.draining
            self.done = self.done or report.done
        self.code = code
        return code is not None

    def ask(self, number: int) -> None:
        """Ask it, if it runs, to end: SIGTERM drains it, SIGINT stops it."""
        if not self.poll():
            self.leaving = True
            self.handle.signal(number)

    @property
    def idle(self) -> float:
        """Seconds for which it has received nothing and waited for input, so that it could have."""
        return self._idle.seconds

    @property
    def failed(self) -> bool:
        """Whether it has ended, but not as it should."""
        as_it_should = (self.code == 0 and self.done) or (self.leaving and self.code in _ASKED)
        return self.code is not None and not as_it_should

    @property
    def how(self) -> str:
        """How it ended, in two or three words."""
        code = self.code or 0
        if not self.failed:
            return "ended" if not self.leaving else "was drained" if code in _DRAINED else "was stopped"
        return f"was killed by {_signal_name(-code)}" if code < 0 else f"failed with exit code {code}"

    @property
    def failure(self) -> str:
        """How it ended, with the error."""
        return f"({self.how.removeprefix('was ').removeprefix('failed with ')}): {self.error or 'it ended without a word'}"


def _signal_name(number: int) -> str:
    return signal.Signals(number).name if number in set(signal.Signals) else f"signal {number}"  # those for real time have no names

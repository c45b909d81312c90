"""A started process of a replica, as the launcher sees it through the reports of the process.

The *launcher* is the process that starts and watches the processes of a run, such as ``highway run``.
"""

from __future__ import annotations

import signal
import time
from dataclasses import dataclass, field

from highway.engine.stats import PipelineStats
from highway.observe.figures import minus
from highway.process import signals
from highway.run.launcher import Handle

# A source is idle between two reports if it received no item, and waited for at least this fraction of the time.
WAITS = 0.8

_ASKED = (128 + signal.SIGINT, 128 + signal.SIGTERM, -signal.SIGINT, -signal.SIGTERM)  # exit codes of a process that ended on request
_CRASHES = (signal.SIGSEGV, signal.SIGABRT, signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGSYS, signal.SIGTRAP)


@dataclass(eq=False)
class Child:
    """A started process of a replica. If the replica is restarted, it gets a new process.

    Args:
        handle: The launcher's handle of the process.
        started: Start time, as ``time.monotonic()``.
        stats: The last reported statistics; ``None`` before the first report.
        error: The reported message of the error that ended the process; empty without an error.
        leaving: Whether the process was asked to end.
        done: Whether the process has reported that it ended normally and delivered all its items.
        wanted: Whether other processes need the items that the process has received but not delivered yet.
        code: The exit code, or the negative number of the signal that ended the process. ``None`` until the process has ended and all its
            reports are read.
        idle: Seconds for which the source has been idle, according to the latest reports.
    """

    handle: Handle
    started: float = field(default_factory=time.monotonic)
    stats: PipelineStats | None = None
    error: str = ""
    leaving: bool = False
    done: bool = False
    wanted: bool = True
    code: int | None = None
    idle: float = 0.0

    def poll(self) -> bool:
        """Handle the reports of the process. Return whether the process has ended."""
        code = self.handle.poll()
        for report in self.handle.reports():
            if report.stats:
                recent = minus(report.stats, self.stats) if self.stats else report.stats
                source, self.stats = recent.stages[0], report.stats
                waits = not source.items and source.starved >= WAITS * recent.seconds
                self.idle = self.idle + recent.seconds if waits else 0.0
            self.error = report.error or self.error
            self.leaving = self.leaving or report.draining
            self.done = self.done or report.done
        self.code = code
        return code is not None

    def ask(self, number: int, wanted: bool = True) -> None:
        """If the process runs, ask it to end: SIGTERM drains, SIGINT stops. ``wanted``: whether its undelivered items are needed."""
        if not self.poll():
            self.leaving, self.wanted = True, wanted
            self.handle.signal(number)

    @property
    def failed(self) -> bool:
        """Whether the process has ended, but neither normally nor on request."""
        as_it_should = (self.code == 0 and self.done) or (self.leaving and self.code in _ASKED)
        return self.code is not None and not as_it_should

    @property
    def was_killed(self) -> bool:
        """Whether the process failed because of a signal that does not indicate a crash, such as SIGKILL. SIGSEGV indicates a crash."""
        return self.failed and (self.code or 0) < 0 and -(self.code or 0) not in _CRASHES

    @property
    def unfinished(self) -> bool:
        """Whether the process was asked to end, and has not delivered all items that other processes need. True while it drains."""
        return self.leaving and self.wanted and not self.done

    @property
    def how(self) -> str:
        """How the process ended, as a short text."""
        code = self.code or 0
        if not self.failed:
            return "ended" if not self.leaving else "was drained" if self.done else "was stopped"
        if code >= 0:
            return f"failed with exit code {code}"
        return f"was killed by {signals.name_of(-code)}"

    @property
    def failure(self) -> str:
        """How the process ended, and its error, as a text."""
        return f"({self.how.removeprefix('was ').removeprefix('failed with ')}): {self.error or 'it ended without an error message'}"

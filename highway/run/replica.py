"""A replica of a role as its launcher sees it: the process that runs now or ran last, and what it said of itself."""

from __future__ import annotations

import os
import sysconfig
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO, Protocol

import highway
from highway.engine.stats import PipelineStats
from highway.observe.accounts import Departure
from highway.observe.state import Phase, ReplicaState
from highway.process.cores import ONE_THREAD
from highway.run.child import Process
from highway.run.restart import Restarts
from highway.topology.plan import End, Role
from highway.wire.tally import Counts


class Read(Protocol):
    """Calls a function with every line of a stream from now on."""

    def __call__(self, stream: IO[bytes], handle: Callable[[str], None], whole: bool = False) -> None:
        """Args as follow.

        Args:
            stream: What to read; it is closed at its end.
            handle: Called with each line.
            whole: Whether to leave out a last line without an end, such as one that its writer was killed over.
        """


class Replica:
    """A replica of a role, in one process after the other.

    Args:
        end: Which one.
        role: Its role.
        options: The arguments of ``highway run`` that it gets besides its role and replica.
    """

    def __init__(self, end: End, role: Role, options: Sequence[str]) -> None:
        self.end, self.role = end, role
        self.phase: Phase = "starting"
        self.restarts = 0
        self._row = Restarts(role.restart)
        self.due = 0.0  # when it is started again, in the phase waiting
        self._arguments = [*options, "--role", role.name, "--replica", str(end.replica)]
        self._process: Process | None = None
        self._last: PipelineStats | None = None
        self._error = ""
        self.departures: list[Departure] = []
        """Its processes that have ended."""

    @property
    def name(self) -> str:
        """What people call it."""
        return self.state().name

    @property
    def process(self) -> Process:
        """The process that runs now or ran last."""
        assert self._process is not None, "it was not started"
        return self._process

    @property
    def is_over(self) -> bool:
        """Whether no process of it runs, and none will."""
        return self.phase in ("ended", "failed")

    def state(self) -> ReplicaState:
        """Return what is known of it now."""
        process, phase = self._process, self.phase
        stats = process.stats if process and process.stats else self._last
        if process and phase in ("starting", "running"):
            phase = "draining" if process.leaving else "running" if process.stats else "starting"
        counts = self._counts(process)
        single = self.role.replicas == 1
        return ReplicaState(self.end.role, self.end.replica, self.end.host, phase, stats, self.restarts, self._error, single, counts)

    def _counts(self, process: Process | None) -> Counts:
        counts = Counts() if process is None or process.code is not None else process.tally.read()
        for departure in self.departures:
            counts = counts.plus(departure.counts)
        return counts

    def start(self, read: Read, show: Callable[[str, str, bool], None]) -> None:
        """Start its process.

        Args:
            read: Reads its streams.
            show: Shows a line that it prints: its name, the text, and whether that is from standard error.
        """
        process = Process.start(self._arguments, environment(self.role.env))
        if self._process:
            self.restarts += 1
            self._last = self._process.stats or self._last
        self.phase = "starting"
        self._process = process
        assert process.popen.stdout is not None and process.popen.stderr is not None
        read(process.reports, process.report, whole=True)
        read(process.popen.stdout, lambda line: show(self.name, line, False))
        read(process.popen.stderr, lambda line: show(self.name, line, True))

    def settle(self, may_restart: bool) -> str:
        """Take note that its process has ended, and decide what follows.

        Args:
            may_restart: Whether it may be started again.

        Returns:
            What there is to say of it, without its name; empty if it just ended.
        """
        process = self.process
        process.reap()
        self.departures.append(Departure(self.name, self.end.role, process.how, process.failed, process.tally.read(), process.stats))
        self._error = process.failure if process.failed else ""
        self.phase = "failed" if process.failed else "ended"
        how = f"failed {process.failure}" if process.failed else ""
        if process.leaving or not may_restart or not self._row.follow(process.failed):
            return how
        delay = self._row.delay(time.monotonic() - process.started)
        if delay is None:
            return f"{how or 'has ended'}; not started again, since restart {self._row.row} of {self.role.restart.at_most} was the last"
        self.phase, self.due = "waiting", time.monotonic() + delay
        return f"{how or 'has ended'}; started again in {delay:g} s (restart {self._row.row} of {self.role.restart.at_most})"

    def give_up(self) -> None:
        """Do not start it again."""
        if self.phase == "waiting":
            self.phase = "failed" if self.process.failed else "ended"

    def ask(self, number: int) -> None:
        """Ask its process, if one runs, to end: SIGTERM drains it, SIGINT stops it."""
        if not self.is_over and not self.process.is_over:
            self.process.leaving = True
            self.process.send(number)

    def kill(self) -> None:
        """End what is left of its process, and of all that it has started."""
        if self._process:
            self._process.reap()


def environment(own: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of a process that is to import the same highway as this one, whatever lies in the current directory.

    Numerical libraries get one thread each, since the stages of a role have threads of their own; the user's environment goes before that,
    and that of the role before both.

    Args:
        own: That of the role.
    """
    home = str(Path(highway.__file__).parents[1])
    paths = [] if home == sysconfig.get_path("purelib") else [home]
    path = os.pathsep.join([*paths, *filter(None, [os.environ.get("PYTHONPATH")])])
    return {**dict.fromkeys(ONE_THREAD, "1"), **os.environ, "PYTHONUNBUFFERED": "1", "PYTHONPATH": path, **own}

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
from highway.run.child import Child
from highway.run.restart import Restarts
from highway.topology.plan import Process, Role
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
        process: Which one.
        role: Its role.
        options: The arguments of ``highway run`` that it gets besides its role and replica.
    """

    def __init__(self, process: Process, role: Role, options: Sequence[str]) -> None:
        self.process, self.role = process, role
        self.phase: Phase = "starting"
        self.restarts = 0
        self._restarts = Restarts(role.restart)
        self.due = 0.0  # when it is started again, in the phase waiting
        self._arguments = [*options, "--role", role.name, "--replica", str(process.replica)]
        self._child: Child | None = None
        self._last: PipelineStats | None = None
        self._error = ""
        self.departures: list[Departure] = []
        """Its processes that have ended."""

    @property
    def name(self) -> str:
        """What people call it."""
        return self.state().name

    @property
    def child(self) -> Child:
        """The process that runs now or ran last."""
        assert self._child is not None, "it was not started"
        return self._child

    @property
    def is_over(self) -> bool:
        """Whether no process of it runs, and none will."""
        return self.phase in ("ended", "failed")

    def state(self) -> ReplicaState:
        """Return what is known of it now."""
        child, phase = self._child, self.phase
        stats = child.stats if child and child.stats else self._last
        if child and phase in ("starting", "running"):
            phase = "draining" if child.leaving else "running" if child.stats else "starting"
        counts = self._counts(child)
        single = self.role.replicas == 1
        return ReplicaState(
            self.process.role, self.process.replica, self.process.host, phase, stats, self.restarts, self._error, single, counts
        )

    def _counts(self, child: Child | None) -> Counts:
        counts = Counts() if child is None or child.code is not None else child.tally.read()
        for departure in self.departures:
            counts = counts.plus(departure.counts)
        return counts

    def start(self, read: Read, show: Callable[[str, str, bool], None]) -> None:
        """Start its process.

        Args:
            read: Reads its streams.
            show: Shows a line that it prints: its name, the text, and whether that is from standard error.
        """
        child = Child.start(self._arguments, environment(self.role.env))
        if self._child:
            self.restarts += 1
            self._last = self._child.stats or self._last
        self.phase = "starting"
        self._child = child
        assert child.popen.stdout is not None and child.popen.stderr is not None
        read(child.reports, child.report, whole=True)
        read(child.popen.stdout, lambda line: show(self.name, line, False))
        read(child.popen.stderr, lambda line: show(self.name, line, True))

    def settle(self, may_restart: bool) -> str:
        """Take note that its process has ended, and decide what follows.

        Args:
            may_restart: Whether it may be started again.

        Returns:
            What there is to say of it, without its name; empty if it just ended.
        """
        child = self.child
        child.reap()
        self.departures.append(Departure(self.name, self.process.role, child.how, child.failed, child.tally.read(), child.stats))
        self._error = child.failure if child.failed else ""
        self.phase = "failed" if child.failed else "ended"
        how = f"failed {child.failure}" if child.failed else ""
        if child.leaving or not may_restart or not self._restarts.follow(child.failed):
            return how
        delay = self._restarts.delay(time.monotonic() - child.started)
        which = f"restart {self._restarts.streak} of {self.role.restart.at_most}"
        if delay is None:
            return f"{how or 'has ended'}; not started again, since {which} was the last"
        self.phase, self.due = "waiting", time.monotonic() + delay
        return f"{how or 'has ended'}; started again in {delay:g} s ({which})"

    def give_up(self) -> None:
        """Do not start it again."""
        if self.phase == "waiting":
            self.phase = "failed" if self.child.failed else "ended"

    def ask(self, number: int) -> None:
        """Ask its process, if one runs, to end: SIGTERM drains it, SIGINT stops it."""
        if not self.is_over and not self.child.is_over:
            self.child.leaving = True
            self.child.send(number)

    def kill(self) -> None:
        """End what is left of its process, and of all that it has started."""
        if self._child:
            self._child.reap()


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

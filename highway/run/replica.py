"""A replica of a role, as the launcher sees it: its current or last process, and its ended processes.

A *role* is a pipeline of a topology file. A *replica* is one of its processes. The *launcher* is the process that starts and watches the
processes of a run, such as ``highway run``.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable

from highway.engine.stats import PipelineStats
from highway.observe.accounts import Departure
from highway.observe.state import Phase, ReplicaState
from highway.run.child import Child
from highway.run.launcher import Launcher, LaunchSpec
from highway.topology.plan import Process, Role
from highway.topology.spec import RestartSpec
from highway.wire.tally import Counts


class Replica:
    """A replica of a role. One child process at a time runs the replica. A restart starts a new process.

    ``spec`` returns the specification of the process to start. :meth:`start` calls ``spec`` for each start, because the addresses of other
    processes can be unknown until then.
    """

    def __init__(self, process: Process, role: Role, spec: Callable[[str, Process], LaunchSpec]) -> None:
        self.process, self.role = process, role
        self.phase: Phase = "ended"
        self.restarts = 0
        self._restarts = Restarts(role.restart)
        self.due = 0.0  # in the phase "waiting": time of the next start
        self._spec = spec
        self._child: Child | None = None
        self._last: PipelineStats | None = None
        self._error = ""
        self.departures: list[Departure] = []  # the ended processes
        self._counts = Counts()  # the sum of the departures' counts; stored, because there can be thousands of departures

    @property
    def name(self) -> str:
        """The name of the replica in messages."""
        return self.state().name

    @property
    def child(self) -> Child:
        """The current or last process of the replica."""
        assert self._child is not None, "it was not started"
        return self._child

    @property
    def has_begun(self) -> bool:
        """Whether a process of this replica was started."""
        return self._child is not None

    @property
    def is_leaving(self) -> bool:
        """Whether the process runs, but was asked to end."""
        return self._runs and self.child.leaving

    @property
    def is_beginning(self) -> bool:
        """Whether the process was started, has not reported statistics yet, and was not asked to end."""
        return self._runs and not self.child.leaving and self.child.stats is None

    @property
    def is_working(self) -> bool:
        """Whether the process has reported statistics, and was not asked to end."""
        return self._runs and not self.child.leaving and self.child.stats is not None

    @property
    def has_ended_by_itself(self) -> bool:
        """Whether the process has ended normally and without a request. No more items will then come."""
        return self.phase == "ended" and self.has_begun and not self.child.leaving and not self.child.failed

    @property
    def _runs(self) -> bool:
        return self._child is not None and self.phase not in ("ended", "failed", "waiting")

    @property
    def is_over(self) -> bool:
        """Whether no process of the replica runs, and no restart is planned. Scaling up can start a process again."""
        return self.phase in ("ended", "failed")

    def state(self) -> ReplicaState:
        """Return the current state of the replica."""
        child, phase = self._child, self.phase
        stats = child.stats if child and child.stats else self._last
        if child and phase in ("starting", "running"):
            phase = "draining" if child.leaving else "running" if child.stats else "starting"
        total, single = self._counts, self.role.most == 1
        if child and child.code is None:
            total = total.plus(child.handle.counts())
        return ReplicaState(
            self.process.role, self.process.replica, self.process.host, phase, stats, self.restarts, self._error, single, total
        )

    def start(self, launcher: Launcher) -> None:
        """Start a process of the replica."""
        child = Child(launcher.start(self._spec(self.name, self.process)))
        if self._child:
            self.restarts += 1
            self._last = self._child.stats or self._last
        self.phase = "starting"
        self._child = child

    def settle(self, may_restart: bool) -> str:
        """Record that the process has ended, and decide whether to restart it.

        Returns:
            A message about the failure or the restart, without the replica's name. Empty if there was neither.
        """
        child = self.child
        counts = child.handle.counts()
        left = Departure(self.name, child.how, child.failed, counts, child.stats, child.was_killed, child.unfinished, child.handle.is_lost)
        self.departures.append(left)
        self._counts = self._counts.plus(counts)
        self._error = child.failure if child.failed else ""
        self.phase = "failed" if child.failed else "ended"
        how = f"failed {child.failure}" if child.failed else ""
        if child.leaving or not may_restart or not self._restarts.follow(child.failed):
            return how
        delay = self._restarts.delay(time.monotonic() - child.started)
        which = f"restart {self._restarts.streak} of {self.role.restart.at_most}"
        if delay is None:
            return f"{how or 'has ended'}; not restarted, because {which} was the last"
        self.phase, self.due = "waiting", time.monotonic() + delay
        return f"{how or 'has ended'}; restarts in {delay:g} s ({which})"

    def give_up(self) -> None:
        """Cancel the planned restart."""
        if self.phase == "waiting":
            self.phase = "failed" if self.child.failed else "ended"

    def ask(self, number: int, wanted: bool = True) -> None:
        """If a process runs, ask it to end: SIGTERM drains, SIGINT stops. ``wanted``: whether its undelivered items are needed."""
        if not self.is_over and self._child:
            self._child.ask(number, wanted)

    def kill(self) -> None:
        """Kill the process and all processes that it has started."""
        if not self.is_over and self._child:
            self._child.handle.signal(signal.SIGKILL)


class Restarts:
    """Counts the consecutive restarts of a replica. After a process has run long enough, the count starts again at 0."""

    def __init__(self, spec: RestartSpec) -> None:
        self.spec = spec
        self.streak = 0

    def follow(self, failed: bool) -> bool:
        """Return whether the restart policy restarts an ended process. The limit of restarts is not checked here."""
        return self.spec.when == "always" or (self.spec.when == "on-failure" and failed)

    def delay(self, ran: float) -> float | None:
        """Return the seconds to wait before the restart, or ``None`` if the limit of restarts is reached.

        The seconds double with each consecutive restart. ``ran`` is the number of seconds that the ended process ran.
        """
        if ran >= self.spec.max_delay_s:
            self.streak = 0
        if self.streak >= self.spec.at_most:
            return None
        self.streak += 1
        return min(self.spec.delay_s * 2.0 ** min(self.streak - 1, 60), self.spec.max_delay_s)

"""Run all roles of a topology, each replica in its own process, and supervise these processes until all have ended.

A *role* is a pipeline of a topology file. A *replica* is one of its processes. To *drain* a process means to end its source and to deliver
the items in flight. The *launcher* is this process.
"""

from __future__ import annotations

import contextlib
import signal
import time
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

from highway.errors import ConfigError
from highway.observe.accounts import Account, Departure, account
from highway.observe.snapshot import find_ends
from highway.observe.state import ReplicaState
from highway.run.launcher import DRAIN, Launcher, LaunchSpec
from highway.run.replica import Replica
from highway.run.scaling import PATIENCE, Scaler
from highway.topology.plan import Process
from highway.topology.wiring import Wiring, depths_of
from highway.wire.address import remove_if_dead

GRACE = 3.0  # after the end of the last sink, seconds for all other roles to end by themselves
STOP_TIMEOUT = 8.0  # maximum seconds for a process to end on request; a pipeline's stop() takes at most 5 s
IDLE = 2.0  # after the end of all its senders, a replica is drained if it gets no message for this many seconds
TICK = 0.25  # seconds between two checks of all processes, if there is no event
REPEATED = 1.0  # SIGTERMs within this many seconds count as one, because the end of a job can signal this process twice
MOMENT = 0.05  # minimum seconds between two checks
HIGHWAY = "highway"  # the name that marks messages of the launcher itself


@runtime_checkable
class Watcher(Protocol):
    """Gets the states of the replicas."""

    def update(self, states: Sequence[ReplicaState]) -> None:
        """Handle the states of all started replicas. The launcher calls this method several times per second, and once after the end."""


class Display(Watcher, Protocol):
    """Shows the output of processes and the launcher's messages."""

    def line(self, name: str, text: str, is_error: bool) -> None:
        """Show a line that the process ``name`` printed."""


@dataclass
class Result:
    """The result of a launch.

    Args:
        code: The exit code. 0: no process failed, or ``restart`` allowed all failures. 1: a role failed. Larger than 128: 128 plus the
            number of the signal that ended the run.
        message: A description of the failure; empty if there was no failure.
        states: The final state of each replica that was started.
        links: The messages that each link has carried.
        departures: The ended processes, in the order of their replicas.
    """

    code: int
    message: str
    states: Sequence[ReplicaState]
    links: Sequence[Account] = ()
    departures: Sequence[Departure] = ()


def launch(
    wiring: Wiring,
    launcher: Launcher,
    arguments: Sequence[str],
    display: Display,
    watchers: Sequence[Watcher] = (),
    drain_timeout: float = DRAIN,
) -> Result:
    """Run processes of a topology until all processes have ended.

    Sinks are roles that send nothing over a link. When all sinks have ended, all other roles have ``GRACE`` seconds to end, and are then
    stopped. If a process fails and is not restarted, all other processes are stopped. They continue in three cases: the run is being
    drained, :meth:`Scaler.excuse` allows the failure, or the process would have been restarted but all its senders have ended.

    SIGTERM drains the run: each role that receives nothing from another role of this run ends its source, and all items in flight are
    delivered. SIGINT stops all processes. A second signal kills all processes.

    Args:
        wiring: The processes to run.
        launcher: Starts the processes. :func:`launch` closes the launcher at the end.
        arguments: Arguments of ``highway run`` for each process, in addition to ``--role`` and ``--replica``.
        display: Shows messages and statistics.
        watchers: Objects that get the states of the replicas, in addition to ``display``.
        drain_timeout: Maximum seconds for items in flight to arrive after SIGTERM. 0: SIGTERM stops all processes immediately.

    Raises:
        ConfigError: no process has begun, and a process waits for a host or node that it can never get.
        OSError: this machine lacks the resources for a process.
    """
    topology = wiring.topology

    def spec(name: str, process: Process) -> LaunchSpec:
        own = ["--role", process.role, "--replica", str(process.replica)]
        if wiring.scales and topology.roles[process.role].autoscale:
            own += [f"--drain-timeout={PATIENCE:g}"]
        return LaunchSpec(name, topology.process_spec(process.role, process.replica), [*arguments, *own])

    replicas = [Replica(process, topology.roles[process.role], spec) for process in wiring.processes]
    watch = _Watch(launcher, display, watchers, replicas, wiring, drain_timeout)
    try:
        with watch.signals():
            result = watch.until_the_end()
        result.departures = [one for replica in replicas for one in replica.departures]
        result.links = account(result.states, result.departures, find_ends(wiring), wiring.whole_links)
        return result
    finally:
        launcher.close()
        for path in topology.plan.socket_paths(set(wiring.processes)):
            remove_if_dead(path)


@dataclass
class _Watch:
    launcher: Launcher
    display: Display
    watchers: Sequence[Watcher]
    replicas: Sequence[Replica]
    wiring: Wiring
    drain_timeout: float
    heard: list[int] = field(default_factory=list)
    terminated: float = float("-inf")
    code: int = 0
    message: str = ""
    deadline: float | None = None
    draining: bool = False
    stopping: bool = False

    def __post_init__(self) -> None:
        depths = depths_of(self.wiring.feeders)
        self.downstream_first = sorted(self.replicas, key=lambda replica: -depths[replica.process.role])
        self.scaler = Scaler(self.replicas, self.wiring, self.launcher, lambda text: self.display.line(HIGHWAY, text, True))

    @contextlib.contextmanager
    def signals(self) -> Iterator[None]:
        """Record SIGINT and SIGTERM, so that these signals do not kill this process."""
        before = {number: signal.signal(number, lambda number, _: self._note(number)) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _note(self, number: int) -> None:
        now = time.monotonic()
        if number != signal.SIGTERM or now > self.terminated + REPEATED:
            self.heard.append(number)
            self.terminated = now if number == signal.SIGTERM else self.terminated

    def until_the_end(self) -> Result:
        first = set(self.wiring.first)
        for replica in self.replicas:
            if replica.process in first:
                replica.start(self.launcher)
        while not all(replica.is_over for replica in self.replicas):
            self._hear()
            self._wait()
            for replica in [replica for replica in self._running() if replica.child.poll()]:
                self._settle(replica)
            self._judge()
            for replica in self.replicas:
                if replica.phase == "waiting" and time.monotonic() >= replica.due:
                    self._start_again(replica)
            states = self._tell()
            if self.deadline is None:
                self.scaler.step(states, lambda role: bool(self._ended_feeders(role)))
        while self.launcher.wait(0):
            pass
        self._tell()
        return Result(self.code, self.message, self._states())

    def _wait(self) -> None:
        """Wait for an event, and then up to :data:`MOMENT` for more events. To check all replicas after each event would take too long."""
        try:
            happened, until = self.launcher.wait(TICK), time.monotonic() + MOMENT
            while happened and (left := until - time.monotonic()) > 0:
                happened = self.launcher.wait(left)
        except ConfigError as error:
            if all(state.phase == "starting" for state in self._states()):  # no process has begun, so no item can be lost
                raise
            if not (self.stopping or self.draining):
                self.code, self.message = 1, str(error)
                self._stop(signal.SIGINT)

    def _running(self) -> list[Replica]:
        return [replica for replica in self.replicas if not replica.is_over and replica.phase != "waiting"]

    def _states(self) -> list[ReplicaState]:
        """Return the states of all replicas. Receivers are asked before senders, so that each received message also counts as sent."""
        asked = {replica: replica.state() for replica in self.downstream_first if replica.has_begun}
        return [asked[replica] for replica in self.replicas if replica.has_begun]

    def _tell(self) -> Sequence[ReplicaState]:
        states = self._states()
        for watcher in (self.display, *self.watchers):
            watcher.update(states)
        return states

    def _settle(self, replica: Replica) -> None:
        """Handle the end of a replica's process."""
        starved = self._ended_feeders(replica.process.role)
        said = replica.settle(may_restart=not (self.draining or self.stopping))
        if replica.child.failed and self.scaler.excuse(replica):
            return
        if replica.phase == "waiting" and starved:
            self._start_again(replica)
        elif replica.phase != "failed":
            if said:
                self.display.line(HIGHWAY, f"{replica.name} {said}", True)
        elif self.draining:
            self.message = f"terminated; {replica.name} {said}"
        elif not self.stopping:
            self.code, self.message = 1, f"{replica.name} {said}"
            self._stop(signal.SIGINT)

    def _start_again(self, replica: Replica) -> None:
        """Restart a replica. If all roles that feed the replica have ended, the run continues to its end without the replica."""
        if not (starved := self._ended_feeders(replica.process.role)):
            replica.start(self.launcher)
            return
        replica.give_up()
        if replica.phase == "failed":
            self._blame(replica, f"{replica.name} failed {replica.child.failure}; not restarted, because {_all(starved)} ended before")

    def _blame(self, replica: Replica, message: str) -> None:
        """Report that a replica has failed and will get no more items. Decide whether the whole run has failed.

        While its senders run, a killed process is restarted. The exit code must not depend on the moment of the kill. Therefore, the run
        fails in two cases only: the replica is a sink, which has missed the end messages; or the process has failed without being killed.
        """
        self.display.line(HIGHWAY, message, True)
        if not self.code and (replica.process.role in self.wiring.sinks or not replica.departures[-1].was_killed):
            self.code, self.message = 1, message

    def _ended_feeders(self, role: str) -> set[str]:
        """Return the roles that feed ``role`` if all of them have ended; otherwise, return an empty set."""
        feeding = self.wiring.feeders[role]
        return feeding if all(other.is_over for other in self._replicas_of(feeding)) else set()

    def _replicas_of(self, roles: Collection[str]) -> list[Replica]:
        return [replica for replica in self.replicas if replica.process.role in roles]

    def _end_what_gets_nothing(self) -> None:
        """Drain replicas that wait for items although all their senders have ended.

        Such a replica has started too late to receive the end messages, or a sender was killed before it could announce its end.
        """
        for replica in self._running():
            child, starved = replica.child, self._ended_feeders(replica.process.role)
            if child.leaving or child.idle < IDLE or not starved or replica.process.role not in self.wiring.fed_here:
                continue
            senders = sum(len(other.departures) for other in self._replicas_of(starved))
            if child.handle.counts().senders > senders:  # processes outside this run also send to the replica
                continue
            self.display.line(HIGHWAY, f"{replica.name} is drained: {_all(starved)} ended, and no message has arrived for {IDLE:g} s", True)
            replica.ask(signal.SIGTERM)
            if replica.departures and replica.departures[-1].failed and not child.handle.counts().received:
                self._blame(replica, f"{replica.name} {replica.departures[-1].how}, and received no messages after its restart")

    def _judge(self) -> None:
        """Stop or kill the remaining processes if all sinks have ended or a deadline has passed."""
        self._end_what_gets_nothing()
        sinks = self._replicas_of(self.wiring.sinks)
        if sinks and all(replica.is_over for replica in sinks) and self.deadline is None:
            self.deadline = time.monotonic() + GRACE
        if self.deadline is None or time.monotonic() < self.deadline:
            return
        if self.stopping:
            self._kill()
        else:
            delivered = all(replica.has_ended_by_itself for replica in sinks)
            self._stop(signal.SIGTERM if self.draining else signal.SIGINT, wanted=not delivered)

    def _hear(self) -> None:
        while self.heard:
            number = self.heard.pop(0)
            if self.stopping or self.draining:
                self._kill()
                continue
            self.code, self.message = 128 + number, "interrupted" if number == signal.SIGINT else "terminated"
            if number == signal.SIGTERM and self.drain_timeout:
                self._drain()
            else:
                self._stop(number)

    def _drain(self) -> None:
        """End the sources. All other roles deliver the items in flight, and end when their senders have ended."""
        self.draining, self.deadline = True, time.monotonic() + self.drain_timeout
        self.scaler.withdraw()
        for replica in self.replicas:
            replica.give_up()
            if not self.wiring.feeders[replica.process.role] and not replica.is_leaving:
                replica.ask(signal.SIGTERM)

    def _stop(self, number: int, wanted: bool = True) -> None:
        self.stopping, self.deadline = True, time.monotonic() + STOP_TIMEOUT
        for replica in self.replicas:
            replica.give_up()
            replica.ask(signal.SIGINT if replica.role.autoscale else number, wanted)  # SIGTERM drains it for up to PATIENCE seconds

    def _kill(self) -> None:
        self.stopping, self.deadline = True, time.monotonic() + STOP_TIMEOUT
        for replica in self.replicas:
            replica.give_up()
            if not replica.is_over:
                self.display.line(replica.name, "does not end; it is killed", True)
                replica.kill()


def _all(roles: Collection[str]) -> str:
    return " and ".join(sorted(roles))

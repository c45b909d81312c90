"""Scale roles: add a replica if the replicas of a role are too busy, and remove a replica if fewer replicas are enough.

A *role* is a pipeline of a topology file. A *replica* is one of its processes. To *drain* a process means to end its source and to deliver
the items in flight.
"""

from __future__ import annotations

import signal
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple

from highway.engine.stats import PipelineStats
from highway.observe.figures import Recent, load
from highway.observe.poll import Sample
from highway.observe.snapshot import find_ends
from highway.observe.state import ReplicaState
from highway.observe.traffic import traffic
from highway.run.child import Child
from highway.run.launcher import Launcher
from highway.run.replica import Replica
from highway.topology.spec import AutoscaleSpec
from highway.topology.wiring import Wiring

LOAD = 0.8  # a replica is added if the replicas of a role work more than this fraction of the time
SLACK = 0.6  # a replica is removed if the remaining replicas would work less than this fraction of the time
PAUSE = 0.25  # seconds between two checks
AGAIN = 60.0  # if a replica could not be added, seconds until the next attempt
IDLE = 2.0  # after the senders have ended, a replica is drained if it gets no message for this many seconds
PATIENCE = 86_400.0  # maximum seconds for a removed replica to deliver its items


class Look(NamedTuple):
    """A measurement of the load of a role's replicas.

    Args:
        time: Time of the measurement, as ``time.monotonic()``.
        replicas: Number of running replicas.
        load: Fraction of the recent time, from 0 to 1, in which a replica worked, averaged over the replicas. A replica that has not begun
            to work counts as 0.
        waiting: Number of messages that wait for the replicas; ``None`` if unknown.
    """

    time: float
    replicas: int
    load: float
    waiting: int | None = None


def wanted(looks: Sequence[Look], scale: AutoscaleSpec) -> int:
    """Return the number of replicas that the role should have: the current number, one more, or one fewer.

    The number does not grow if it is known that no messages waited recently.

    Args:
        looks: The measurements since the number of replicas last changed, oldest first. At least one.
        scale: The limits of the number of replicas, and the seconds to measure before a change.
    """
    last, lately, long = looks[-1], _during(looks, scale.grow_s), _during(looks, scale.shrink_s)
    if lately and last.replicas < scale.max and last.load > LOAD and any(look.waiting != 0 for look in lately):
        return last.replicas + 1
    if long and last.replicas > scale.min and all(_with_one_fewer(look) < SLACK for look in long):
        return last.replicas - 1
    return last.replicas


def _during(looks: Sequence[Look], seconds: float) -> Sequence[Look]:
    """Return the measurements of the last ``seconds``. If all measurements together cover less time, return an empty list."""
    since = looks[-1].time - seconds
    return [look for look in looks if look.time >= since] if looks[0].time <= since else []


def _with_one_fewer(look: Look) -> float:
    return look.load * look.replicas / (look.replicas - 1)


class Scaler:
    """Starts and drains replicas of the roles with ``autoscale``.

    The first ``min`` replicas of a role always run. Of all other replicas, the replica with the lowest index is started first, and the
    replica with the highest index is drained first.

    Args:
        replicas: All possible replicas.
        wiring: The processes of the run and their links.
        launcher: The launcher that starts the replicas.
        say: A function that shows a message. It is called for each change, with the reason.
    """

    def __init__(self, replicas: Sequence[Replica], wiring: Wiring, launcher: Launcher, say: Callable[[str], None]) -> None:
        self._roles: dict[str, _Role] = {}
        self._due = 0.0
        for name in wiring.roles if wiring.scales else ():
            if scale := wiring.topology.roles[name].autoscale:
                own = [replica for replica in replicas if replica.process.role == name]
                self._roles[name] = _Role(own, scale, launcher, say)
        self._ends = find_ends(wiring) if self._roles else {}
        self._whole = wiring.whole_links if self._roles else set()

    def step(self, states: Sequence[ReplicaState], has_ended: Callable[[str], bool]) -> None:
        """Start or drain a replica of each role if necessary. Call this method several times per second.

        Args:
            states: The states of all replicas of the run.
            has_ended: Function that receives the name of a role, and returns whether all roles that feed this role have ended.
        """
        if not self._roles or (now := time.monotonic()) < self._due:
            return
        self._due = now + PAUSE
        links = traffic([Sample.of(state, self._ends) for state in states])
        waiting = {link.link: link.missing for link in links if link.link in self._whole}
        for name, role in self._roles.items():
            role.step(now, waiting.get(self._ends[role.any_name].receives), has_ended(name))

    def withdraw(self) -> None:
        """Start no more replicas, and drain the replicas that have not begun to work."""
        for role in self._roles.values():
            role.withdraw()

    def excuse(self, replica: Replica) -> bool:
        """Return whether the run continues without a replica whose process has failed.

        The run continues in two cases. Either the replica was added during the run, and failed before it began to work. Or the replica
        failed while it was drained, and its role allows restarts.
        """
        role = self._roles.get(replica.process.role)
        return role is not None and role.excuse(replica)


class _Role:
    """The replicas of a role, in order of their indexes."""

    def __init__(self, replicas: Sequence[Replica], scale: AutoscaleSpec, launcher: Launcher, say: Callable[[str], None]) -> None:
        self.any_name = replicas[0].name
        self._replicas, self._extra, self._scale = replicas, replicas[scale.min :], scale
        self._launcher, self._say = launcher, say
        self._free = set(replicas[replicas[0].role.replicas :])  # replicas that can be started, without replicas that a user has drained
        self._added: set[Replica] = set()  # added replicas that have not begun to work
        self._looks: deque[Look] = deque()
        self._there: list[Child | Literal[False]] = []
        self._first: dict[Child, PipelineStats | None] = {}
        self._recent = Recent(scale.grow_s)
        self._again = 0.0
        self._told = ""

    def step(self, now: float, waiting: int | None, has_ended: bool) -> None:
        if has_ended or any(replica.has_ended_by_itself for replica in self._replicas):
            self.withdraw()
            for replica in self._replicas:
                if replica.is_working and replica.child.idle >= IDLE:  # the replica started too late to receive the end
                    replica.ask(signal.SIGTERM)
            return
        self._look(now, waiting)
        if not self._looks:
            return
        number, last = wanted(self._looks, self._scale), self._looks[-1]
        if number > last.replicas and now >= self._again and not any(replica.is_beginning for replica in self._replicas):
            self._add(last)
        elif number < last.replicas:
            self._remove(last)

    def withdraw(self) -> None:
        for replica in self._extra:
            if replica.is_beginning:
                replica.ask(signal.SIGTERM)

    def excuse(self, replica: Replica) -> bool:
        child = replica.child
        if replica in self._added and child.stats is None:
            if not child.leaving:
                self._postpone(replica, child.failure)
        elif child.leaving and replica in self._free and replica.role.restart.when != "never":
            self._say(f"{replica.name} failed while it was drained {child.failure}")
        else:
            return False
        replica.phase = "ended"
        return True

    def _look(self, now: float, waiting: int | None) -> None:
        """Record the load of the replicas, if each replica has sent a report since the last change of their number."""
        self._added -= {replica for replica in self._added if replica.is_working}
        there = [replica for replica in self._replicas if replica.is_working or (replica.is_beginning and replica in self._added)]
        figures = {replica.child: replica.child.stats for replica in there}
        if [replica.is_working and replica.child for replica in there] != self._there:
            self._there = [replica.is_working and replica.child for replica in there]
            self._first, self._recent = figures, Recent(self._scale.grow_s)
            self._looks.clear()
        recent = [self._recent.add(child, stats) for child, stats in figures.items() if stats]
        if not recent or any(stats and stats is self._first[child] for child, stats in figures.items()):
            return
        self._looks.append(Look(now, len(there), sum(map(load, recent)) / len(there), waiting))
        while len(self._looks) > 1 and self._looks[1].time <= now - max(self._scale.grow_s, self._scale.shrink_s):
            self._looks.popleft()

    def _add(self, last: Look) -> None:
        if not (free := [replica for replica in self._extra if replica.is_over and replica in self._free]):
            return  # the replicas that do not work are draining, or a user has drained them
        replica = free[0]
        self._free.remove(replica)
        self._added.add(replica)
        self._say(f"{replica.name} is added: the running replicas were busy for {last.load:.0%} of the last {self._scale.grow_s:g} s")
        try:
            replica.start(self._launcher)
        except OSError as error:  # this machine has no resources for another replica
            self._postpone(replica, f"({error})")

    def _remove(self, last: Look) -> None:
        """Drain the replica with the highest index. A replica that has not begun to work is drained first."""
        beginning = [replica for replica in self._extra if replica.is_beginning and replica in self._added]
        running = [replica for replica in self._extra if replica.is_working]
        for replica in [*running, *beginning][-1:]:
            self._free.add(replica)
            self._say(
                f"{replica.name} is drained: without it, the other replicas would be busy for {_with_one_fewer(last):.0%} of the time"
            )
            replica.ask(signal.SIGTERM)

    def _postpone(self, replica: Replica, why: str) -> None:
        self._added.discard(replica)
        self._free.add(replica)
        self._again = time.monotonic() + AGAIN
        if why != self._told:
            self._say(f"{replica.name} cannot be added {why}; highway tries again every {AGAIN:g} s while the replica is needed")
        self._told = why

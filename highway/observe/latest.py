"""The current state of a run's replicas (processes), with totals over restarts, counts of lost messages, and loads."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from highway.observe.figures import LOAD_WINDOW, Recent, Totals, load
from highway.observe.poll import Sample
from highway.observe.snapshot import Ends, Loss, Snapshot, find_ends
from highway.observe.state import ReplicaState
from highway.observe.traffic import Traffic, traffic
from highway.topology.wiring import Wiring

WINDOW = 3.0  # seconds before and after the end of a process in which the numbers of missing messages are compared
REFILL = 1.0  # after the end of a process, the number of messages in transit returns to its level within this many seconds

_OVER = ("ended", "failed", "waiting")


@dataclass
class _Link:
    """The missing messages of a link (in transit or lost), over the last seconds, and the number of messages that are known to be lost."""

    lost: int = 0
    missing: deque[tuple[float, int]] = field(default_factory=deque)
    ended: float | None = None  # time of the last end of a process, until its lost messages are counted
    before: int = 0


class Losses:
    """Counts the messages that a link loses when a sender or receiver stops. Pass every state to :meth:`count`, several times per second.

    A *missing* message was sent and not received: it is in transit or lost. The number of messages in transit is about constant. Therefore
    this class compares the minimum number of missing messages before and after a process ends, and counts the increase as lost. When all
    processes of a link have ended, the number of lost messages is exact, unless an earlier estimate was too large. The number never falls.
    Links that publish, and links with receivers outside this run, are not counted.

    Args:
        ends: The links of each replica, by the replica's name.
        whole: The links to count. All their ends must be known.
        clock: A function that returns the time in seconds.
    """

    def __init__(self, ends: Mapping[str, Ends], whole: Collection[str], clock: Callable[[], float] = time.monotonic) -> None:
        self._ends, self._clock = ends, clock
        self._links = {link: _Link() for link in sorted(whole) if not any(one.publishes and one.sends == link for one in ends.values())}
        self._running: dict[str, int] = {}  # the restarts of each replica that ran at the last call

    def count(self, states: Iterable[ReplicaState]) -> Mapping[str, Loss]:
        """Add the states of all replicas, and return the losses of each link."""
        states = list(states)
        ended = {state.name for state in states if self._running.get(state.name, state.restarts) != state.restarts}
        ended |= {state.name for state in states if state.name in self._running and state.phase in _OVER}
        self._running = {state.name: state.restarts for state in states if state.phase not in _OVER}
        samples = [Sample.of(state, self._ends) for state in states]
        for link in traffic(samples):
            if link.link in self._links and link.missing is not None and not self._has_outsiders(link.link, samples):
                at_link = {one.state.name for one in samples if link.link in (one.ends.receives, one.ends.sends)}
                self._look(self._links[link.link], link, bool(ended & at_link), over=not at_link & self._running.keys())
        return {name: Loss(link.missing[-1][1] if link.missing else 0, link.lost) for name, link in self._links.items()}

    def _has_outsiders(self, link: str, samples: Sequence[Sample]) -> bool:
        """Return whether a link had receivers outside this run. Messages to such receivers are not missing."""
        own = sum(1 + one.state.restarts for one in samples if one.ends.receives == link)
        return max((one.state.counts.receivers for one in samples if one.ends.sends == link), default=0) > own

    def _look(self, link: _Link, traffic: Traffic, ended: bool, over: bool) -> None:
        now, missing = self._clock(), traffic.missing or 0
        if ended and link.ended is None:
            link.before = min((count for _, count in link.missing), default=0)
        if ended:
            link.ended = now
        link.missing.append((now, missing))
        while link.missing[0][0] < now - WINDOW:
            link.missing.popleft()
        if link.ended is not None and now - link.ended >= WINDOW:
            least = min(count for when, count in link.missing if when >= link.ended + REFILL)
            link.lost, link.ended = link.lost + max(0, least - link.before), None
        if over:
            link.lost, link.ended = max(link.lost, missing), None


class Latest:
    """The last states of the processes of a topology: a :class:`highway.run.supervise.Watcher`."""

    def __init__(self, wiring: Wiring) -> None:
        topology = wiring.topology
        self._name, self._ends = topology.plan.name, find_ends(wiring)
        self._states = [
            ReplicaState(process.role, process.replica, process.host, "starting", single=topology.roles[process.role].most == 1)
            for process in wiring.first
        ]
        self._totals = Totals()
        self._losses = Losses(self._ends, wiring.whole_links)
        self._lost: Mapping[str, Loss] = {}
        self._recent, self._loads = Recent(LOAD_WINDOW), dict[str, float]()

    def update(self, states: Iterable[ReplicaState]) -> None:
        """Store the states of all replicas. Call this method several times per second."""
        self._states = self._totals.count(states)
        self._lost = self._losses.count(self._states)
        works = [state for state in self._states if state.phase in ("running", "draining")]
        self._loads = {state.name: load(self._recent.add(state.name, state.stats)) for state in works if state.stats}

    def snapshot(self) -> Snapshot:
        """Return the current snapshot."""
        return Snapshot(self._name, self._states, self._ends, self._lost, self._loads)

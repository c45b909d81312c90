"""The current state of one run's replicas, with statistics that depend on earlier states: totals over restarts, lost messages, loads."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from highway.observe.figures import LOAD_WINDOW, Recent, Totals, load
from highway.observe.losses import Losses
from highway.observe.snapshot import Loss, Snapshot, find_ends
from highway.observe.state import ReplicaState
from highway.topology.wiring import Wiring


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
        """Store the states of the replicas; call it several times per second, with all of them."""
        self._states = self._totals.count(states)
        self._lost = self._losses.count(self._states)
        works = [state for state in self._states if state.phase in ("running", "draining")]
        self._loads = {state.name: load(self._recent.add(state.name, state.stats)) for state in works if state.stats}

    def snapshot(self) -> Snapshot:
        """Return the current snapshot."""
        return Snapshot(self._name, self._states, self._ends, self._lost, self._loads)

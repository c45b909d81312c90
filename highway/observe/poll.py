"""Poll the HTTP endpoints of a topology on all hosts, and merge the answers.

An *endpoint* is the HTTP address at which a ``highway run`` reports its state. A topology can have several runs, on several hosts.
"""

from __future__ import annotations

import contextlib
import http.client
import itertools
import socket
import time
import urllib.parse
from collections.abc import Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any, Self, TypeGuard

from highway.engine.stats import PipelineStats, Rate
from highway.observe.figures import Recent
from highway.observe.snapshot import Ends, Loss, Snapshot
from highway.observe.state import ReplicaState
from highway.safe_text import for_terminal
from highway.topology.model import Topology
from highway.topology.plan import host_and_port, port_range
from highway.topology.spec import MetricsSpec

ANSWER_TIMEOUT = 2.0  # maximum seconds for the answer of an endpoint
LARGEST = 8_000_000  # maximum bytes of an answer; a run of a thousand processes needs half of this
MOST = 2000  # maximum number of replicas to show; an answer with so many replicas has the maximum size
AT_ONCE = 64  # endpoints that are polled at the same time


@dataclass(frozen=True)
class PollTarget:
    """An endpoint: its URL ``http://host:port``, and the host to report if the endpoint is silent. Without a host, silence is normal."""

    url: str
    host: str


@dataclass(frozen=True)
class Sample:
    """The state of a replica (one process of a role) at one moment.

    Args:
        state: The state, with statistics since the start of the replica.
        recent: The statistics of the last seconds.
        ends: The links of the replica.
        machine: The name of the replica's host in the file; without hosts, the hostname of its machine.
    """

    state: ReplicaState
    recent: PipelineStats | None = None
    ends: Ends = field(default_factory=Ends)
    machine: str = ""

    @classmethod
    def of(cls, state: ReplicaState, ends: Mapping[str, Ends]) -> Sample:
        """Return a sample without recent statistics. ``ends`` holds the links of all replicas, by the replica's name."""
        return cls(state, ends=ends.get(state.name, Ends()))

    @property
    def runs(self) -> bool:
        """Whether the replica currently works, so that its rates are meaningful."""
        return self.recent is not None and self.state.phase in ("running", "draining")

    def rate(self, stage: int) -> Rate:
        """Return the recent rate of the output of the stage with this index (of a sink: its input). 0 if the replica does not run."""
        if not self.runs or not self.recent:
            return Rate()
        figures = self.recent.stages[stage]
        return Rate.of(figures.items, figures.bytes, self.recent.seconds)


@dataclass(frozen=True)
class View:
    """One view of a topology: its replicas, messages about silent endpoints, and the known losses of links."""

    samples: Sequence[Sample]
    silent: Sequence[str] = ()
    losses: Mapping[str, Loss] = field(default_factory=dict)


def targets(topology: Topology, spec: MetricsSpec, host: str | None = None) -> list[PollTarget]:
    """Return the possible endpoints of a topology: on all of its hosts, or only on ``host``, and on this machine."""
    here = "127.0.0.1" if spec.listen in ("0.0.0.0", "::") else spec.listen  # these addresses mean every interface
    hosts = {name: topology.plan.address(name) for name in topology.plan.hosts if host in (None, name)}
    addresses = {"": here, **hosts} if hosts else {"this machine": here}
    return [
        PollTarget(f"http://{host_and_port(address, port)}", name) for name, address in addresses.items() for port in port_range(spec.port)
    ]


class Poller:
    """Polls a topology repeatedly.

    Args:
        targets: The endpoints.
        topology: The name of the topology to show. Empty: show all topologies.
        order: The names of the roles, in display order. Other roles come after them.
        host: The only host to show.
    """

    def __init__(self, targets: Sequence[PollTarget], topology: str = "", order: Sequence[str] = (), host: str | None = None) -> None:
        self._targets, self._topology, self._host = targets, topology, host
        self._order = order
        self._recent = Recent()

    def poll(self) -> View:
        """Poll all endpoints, and wait at most two seconds for each."""
        with ThreadPoolExecutor(min(AT_ONCE, len(self._targets)), "highway-poll") as pool:
            answers = dict(zip(self._targets, pool.map(fetch, (target.url for target in self._targets)), strict=True))
        ours = {(one.machine, one.pid): one for one in answers.values() if self._is_ours(one)}  # a run can have several addresses
        view = self.view(ours.values())
        return replace(view, silent=[*self._silent(answers, {one.state.host for one in view.samples}), *view.silent])

    def view(self, snapshots: Collection[Snapshot]) -> View:
        """Return a view of the snapshots of some runs."""
        found = (one for snapshot in snapshots for one in self._samples(snapshot) if self._host in (None, one.state.host))
        samples = list(itertools.islice(found, MOST))
        order = {role: number for number, role in enumerate(dict.fromkeys([*self._order, *(one.state.role for one in samples)]))}
        samples.sort(key=lambda one: (order[one.state.role], one.state.replica, one.machine))
        rest = [f"the endpoints report more than {MOST:,} replicas; the others are not shown"] if next(found, None) else []
        return View(samples, rest, {link: loss for snapshot in snapshots for link, loss in snapshot.losses.items()})

    def _samples(self, snapshot: Snapshot) -> Iterator[Sample]:
        for state in snapshot.states:
            key = (snapshot.machine, snapshot.pid, state.role, state.replica)
            recent = self._recent.add(key, state.stats) if state.stats else None
            yield Sample(state, recent, snapshot.ends.get(state.name, Ends()), state.host or snapshot.machine)

    def _is_ours(self, answer: Snapshot | str) -> TypeGuard[Snapshot]:
        return isinstance(answer, Snapshot) and self._topology in ("", answer.topology)

    def _silent(self, answers: Mapping[PollTarget, Snapshot | str], heard: Collection[str]) -> Iterator[str]:
        """Yield a message for each host that neither answers itself nor appears in the answer of another host."""
        for host in dict.fromkeys(target.host for target in answers if target.host):
            own = {target.url.removeprefix("http://"): answer for target, answer in answers.items() if target.host == host}
            if host not in heard and not any(map(self._is_ours, own.values())):
                reasons = {one if isinstance(one, str) else f"it runs another topology, {one.topology}" for one in own.values()}
                first, *_, last = [*own, *own]
                where = first if len(own) == 1 else f"{first} to {last.rpartition(':')[2]}"
                yield f"{host} does not answer{f' at {where}' if host != where else ''}: {', '.join(sorted(reasons))}"


def fetch(url: str) -> Snapshot | str:
    """Return the answer of an endpoint, or a text that describes the error. The time and the size of the answer are limited."""
    given = urllib.parse.urlsplit(url)
    connection = http.client.HTTPConnection(given.hostname or "", given.port or 80)
    try:
        connection.sock = _UntilDeadline.connected(connection.host, connection.port, time.monotonic() + ANSWER_TIMEOUT)
        with contextlib.closing(connection):
            connection.request("GET", f"{given.path}/stats")
            answer = connection.getresponse()
            if answer.status != http.client.OK:
                return for_terminal(f"{answer.status} {answer.reason}")
            if len(body := answer.read(LARGEST + 1)) > LARGEST:
                return f"its answer has more than {LARGEST:,} bytes; check that the program at this address is highway"
            return Snapshot.from_json(body)
    except OSError as error:
        return for_terminal(error.strerror or error)
    except (ValueError, http.client.HTTPException) as error:
        return for_terminal(error) or type(error).__name__


class _UntilDeadline(socket.socket):
    """A connection with one deadline for the whole answer. A socket's own timeout begins again with each piece of the answer."""

    deadline = 0.0

    @classmethod
    def connected(cls, host: str, port: int, deadline: float) -> Self:
        with socket.create_connection((host, port), ANSWER_TIMEOUT) as opened:
            connection = cls(fileno=opened.detach())
        connection.deadline = deadline
        connection.settimeout(ANSWER_TIMEOUT)
        return connection

    def recv_into(self, *given: Any) -> int:
        if (left := self.deadline - time.monotonic()) <= 0:
            raise TimeoutError("timed out")
        self.settimeout(left)
        return super().recv_into(*given)

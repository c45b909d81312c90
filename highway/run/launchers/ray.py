"""Start processes on a Ray cluster. Each process has an actor, which starts the process on its node. The process itself does not use Ray.

A *role* is a pipeline of a topology file. A *replica* is one of its processes.

Ray chooses the node of an actor by the ``resources`` of the role. The supervisor decides on restarts, as on every engine. Each start of a
process has a new actor.
"""

from __future__ import annotations

import argparse
import logging
import os
import signal
import socket
import time
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from highway.errors import ConfigError
from highway.observe.state import ReplicaState
from highway.process.cores import ONE_THREAD
from highway.run.engines import LiveEngine, Option, Show
from highway.run.launcher import LaunchSpec
from highway.run.launchers.ray_agent import RayAgent, last_counts
from highway.run.launchers.ray_metrics import RayMetrics
from highway.run.launchers.ray_nodes import check_nodes, has_labels
from highway.run.remote import News, RemoteProcess
from highway.run.supervise import HIGHWAY
from highway.topology.apart import problems_apart
from highway.topology.wiring import Wiring
from highway.wire.registries.ray import NAMESPACE, import_ray, start_registry
from highway.wire.tally import Counts

PATIENCE = 30.0  # seconds before a warning that a process has no node yet
HOPELESS = 60.0  # a process without a node is an error after this many seconds, if no other program can free resources
AGAIN = 1.0  # after the connection to an actor broke, seconds until the actor is queried again
REACH = 5.0  # maximum seconds to wait for an answer of a cluster
SETTINGS = b"\0\0\0\4\0\0\0\0\0"  # a SETTINGS frame of HTTP/2, which both sides send first
HELLO = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + SETTINGS
END = 5.0  # maximum seconds for actors to end
LAST_WORDS = 40.0  # maximum seconds for the node of a killed actor to report the last counts of the process


def _connect(wiring: Wiring, options: argparse.Namespace, show: Show) -> RayLauncher:
    """Return a launcher for the cluster that ``--cluster`` names.

    Raises:
        ConfigError: Ray is not installed; the cluster is unreachable; it has no nodes for the roles; or it already has a run of this name.
    """
    os.environ.setdefault("RAY_NUM_REDIS_GET_RETRIES", "2")  # set before Ray is imported, because Ray would retry a refused token for 20 s
    ray = import_ray()
    _join(ray, options.cluster)
    try:
        software = check_nodes(wiring.topology, wiring.roles, lambda text: show(HIGHWAY, text, True))
        return RayLauncher(wiring, software, options.name or wiring.topology.plan.name, show)
    except BaseException:
        ray.shutdown()
        raise


ENGINE = LiveEngine(
    name="ray",
    what="actors of a Ray cluster",
    problems=problems_apart,
    connect=_connect,
    may_be_ended_by="Ray",  # Ray ends the process one minute after the cluster's registry has gone
    options=[
        Option(
            "cluster", {"metavar": "ADDRESS", "default": "auto", "help": "the address of the cluster (default: the cluster of this host)"}
        ),
        Option("name", {"help": "the name of the run in the cluster (default: the file's name without .yaml)"}),
    ],
)


def _join(ray: Any, cluster: str) -> None:
    given = os.environ.get("RAY_ADDRESS", cluster) if cluster == "auto" else cluster
    host, _, port = given.rpartition(":")
    try:
        if port.isdecimal() and "://" not in host:
            _look(host.strip("[]"), int(port))
        ray.init(cluster, log_to_driver=False, logging_level=logging.ERROR)
    except (OSError, RuntimeError, ValueError, ray.exceptions.RayError) as error:
        said = getattr(error, "strerror", None) or str(error)
        why = " ".join(said.split()).partition(". ")[0] or type(error).__name__
        raise ConfigError(
            f"--cluster {given}: {why}; start a cluster with `ray start --head`, or pass the address of a running cluster with --cluster "
            "HOST:6379. If the cluster requires a token, set RAY_AUTH_MODE=token and RAY_AUTH_TOKEN_PATH=FILE, a file with the token"
        ) from error


def _look(host: str, port: int) -> None:
    """Raise OSError if no HTTP/2 server listens (the head of a cluster is one). Without this check, Ray would retry for minutes."""
    with socket.create_connection((host, port), REACH) as connection:
        if os.environ.get("RAY_USE_TLS", "0") in ("0", ""):
            connection.sendall(HELLO)
            if connection.makefile("rb").read(len(SETTINGS))[3:4] != SETTINGS[3:4]:
                raise OSError("the program at this address is not a Ray cluster")


class Needs(NamedTuple):
    """What a process needs on a node. With ``cpus=None``, it needs one free core to get a node, but then holds no core."""

    cpus: float | None
    gpus: float
    memory: float = 0.0  # bytes
    is_additional: bool = False  # a replica above the minimum of ``autoscale``, without which the run continues
    labels: Mapping[str, str] = {}  # label selectors that the node must match

    def of_node(self, placed: bool = False) -> dict[str, float]:
        """Return the resources that must be free on a node, by Ray's names. If ``placed``, return the resources that the process holds."""
        return {"CPU": (0 if placed else 1) if self.cpus is None else self.cpus, "GPU": self.gpus, "memory": self.memory}


_UNITS = {"CPU": (1, "cores"), "GPU": (1, "GPUs"), "memory": (1e6, "MB of memory")}


def no_room(
    nodes: Mapping[str, Mapping[str, float]],
    labels: Mapping[str, Mapping[str, str]],
    free: Mapping[str, float],
    running: Sequence[tuple[str, Needs]],
    waiting: Mapping[str, Needs],
) -> str:
    """Return an error message if the waiting processes can never get a node, otherwise an empty text.

    They can never get a node if no node with their labels is large enough, or if only processes of this run hold the resources. Additional
    replicas can wait until the end of the run.

    Args:
        nodes: The resources of each node. The keys are the addresses of the nodes. The resources have Ray's names.
        labels: The labels of each node. The keys are the addresses of the nodes.
        free: Free resources of the cluster.
        running: The processes of the run that have a node: the address of the node, and the resources of the process.
        waiting: The resources and labels that each waiting process requires. The keys are the names of the processes.
    """
    waiting = {name: needs for name, needs in waiting.items() if not needs.is_additional}
    left = {address: dict(node) for address, node in nodes.items()}
    for address, needs in running:
        for name, amount in needs.of_node(placed=True).items():
            if address in left:
                left[address][name] = left[address].get(name, 0) - amount
    others = any(sum(node.get(name, 0) for node in left.values()) - free.get(name, 0) > 0.01 * unit for name, (unit, _) in _UNITS.items())
    # If other programs use the cluster, they can end and free their resources. Then compare with the whole size of each node.
    room = nodes if others else left
    hopeless = {
        name: needs for name, needs in waiting.items() if not any(_fits(needs, node, labels[address]) for address, node in room.items())
    }
    if not hopeless or (not others and len(hopeless) < len(waiting)):
        return ""
    names = [name for name in _UNITS if any(needs.of_node()[name] for needs in hopeless.values())]
    wanted = list(dict.fromkeys(label for needs in hopeless.values() for label in needs.labels))
    asks = " and ".join(f"{process} ({_offer(_amounts(needs.of_node(), names), needs.labels)})" for process, needs in hopeless.items())
    has = "; ".join(
        f"{address} has {_offer(_amounts(left[address], names, nodes[address], ' free'), labels[address], wanted)}"
        for address in [*nodes][:_SHOWN]
    )
    more = f"; and {len(nodes) - _SHOWN} more" if len(nodes) > _SHOWN else ""
    ways = "reduce `resources` of the roles, or start more or larger nodes"
    if wanted:
        ways = "reduce the resources or labels of the roles, or start nodes with them (`ray start` with --labels and resources)"
    return (
        f"no node has {'the labels and ' if wanted else ''}enough resources for {asks}: {has}{more}"
        f"{'' if others else '; no other program uses the cluster'}; {ways}"
    )


_SHOWN = 8  # maximum nodes in a message


def _fits(needs: Needs, node: Mapping[str, float], labels: Mapping[str, str]) -> bool:
    return has_labels(labels, needs.labels) and all(amount <= node.get(name, 0) + 1e-6 for name, amount in needs.of_node().items())


def _offer(amounts: str, labels: Mapping[str, str], names: Sequence[str] | None = None) -> str:
    """Return a text with amounts of resources, and with all labels or those with the given names."""
    shown = labels if names is None else names
    return ", ".join(filter(None, [amounts, *(f"{name}={labels[name]}" if name in labels else f"no label {name}" for name in shown)]))


def _amounts(resources: Mapping[str, float], names: Sequence[str], total: Mapping[str, float] | None = None, end: str = "") -> str:
    parts = []
    for name in names:
        unit, word = _UNITS[name]
        of = "" if total is None else f" of {total.get(name, 0) / unit:g}"
        parts.append(f"{max(0, resources.get(name, 0)) / unit:g}{of} {word}")
    return ", ".join(parts) + (end if parts else "")


class RayProcess(RemoteProcess):
    """A process in an actor: a :class:`highway.run.launcher.Handle`."""

    def __init__(self, name: str, show: Show, actor: Any, needs: Needs) -> None:
        super().__init__(name, show, lambda number: actor.signal.remote(number))
        self.name, self.actor, self.needs, self.is_told = name, actor, needs, False
        self.number = 0  # number of the last queried news
        self.since: float | None = time.monotonic()  # when the process began to wait for a node; None: it has a node
        self.due = 0.0  # time of the next query after a broken connection, or time to give up
        self.end: tuple[str, int] | None = None  # while the node is queried for counts: why the process was lost, and its exit code
        self._was_killed = False

    def hear(self, news: News) -> None:
        self.since = None
        super().hear(news)

    def signal(self, number: int) -> None:
        """Send a signal to the process. If the process has no node, or was already sent SIGKILL, record it as lost."""
        if self.poll() is None and (not self.address or self._was_killed):
            import_ray().kill(self.actor)
            self.lose(*(self.end or ("it had not started" if not self.address else f"{self.address} does not answer", -number)))
        self._was_killed = number == signal.SIGKILL
        super().signal(number)


class RayLauncher:
    """Starts processes in actors: a :class:`highway.run.launcher.Launcher`.

    Args:
        wiring: The processes.
        software: For each role, a text with the versions of the software that its processes must have.
        run: The name of the run.
        show: As for :class:`~highway.run.launchers.local.LocalLauncher`.

    Raises:
        ConfigError: a run with this name exists.
    """

    def __init__(self, wiring: Wiring, software: Mapping[str, str], run: str, show: Show) -> None:
        self._ray, self._topology, self._software, self._run, self._show = import_ray(), wiring.topology, software, run, show
        self._registry = start_registry(run)
        self._metrics = RayMetrics(wiring, run)
        self._asked: dict[Any, RayProcess] = {}  # the process of each pending answer, by Ray's reference of the answer
        self._cut_off: list[RayProcess] = []
        self._starts, self._check_due = 0, 0.0

    def start(self, spec: LaunchSpec) -> RayProcess:
        """Start an actor that runs a process."""
        self._starts += 1
        role = self._topology.roles[spec.process.key.role]
        resources = role.resources
        options: dict[str, Any] = {"label_selector": resources.labels, "num_cpus": resources.cpus}
        if resources.gpus:
            options["num_gpus"] = resources.gpus  # if num_gpus is set, even to 0, Ray holds a core for the actor's lifetime
        if resources.memory_mb:
            options["memory"] = int(1e6 * resources.memory_mb)
        actor = (
            self._ray.remote(RayAgent)
            .options(
                name=f"{self._run}/{spec.name} {self._starts}",  # a new name for each start, because an ending actor keeps its name
                namespace=NAMESPACE,
                scheduling_strategy="SPREAD",
                max_concurrency=4,
                **options,
            )
            .remote(
                spec.name,
                self._software[role.name],
                spec.to_json(),
                self._run,
                os.getcwd(),
                {name: os.environ.get(name, "1") for name in ONE_THREAD},  # because Ray sets different values
            )
        )
        needs = Needs(resources.cpus, resources.gpus, options.get("memory", 0), spec.process.replica >= role.least, resources.labels)
        process = RayProcess(spec.name, self._show, actor, needs)
        self._ask(process, 1)
        return process

    def wait(self, seconds: float) -> bool:
        """Wait at most ``seconds`` for news of a process. Return whether news came.

        Raises:
            ConfigError: the waiting processes can never get a node.
        """
        for process in [one for one in self._cut_off if time.monotonic() >= one.due]:
            self._cut_off.remove(process)
            self._ask(process)
        for answer, process in [*self._asked.items()]:
            if process.end is not None and time.monotonic() >= process.due:
                del self._asked[answer]
                process.lose(*process.end)
        if not self._asked:
            time.sleep(seconds)  # no actor was asked for news, so no news can come
            return False
        ready, _ = self._ray.wait([*self._asked], timeout=seconds)
        if ready:
            ready, _ = self._ray.wait([*self._asked], num_returns=len(self._asked), timeout=0)
        for answer in ready:
            self._hear(answer)
        now = time.monotonic()
        for process in self._asked.values():
            if process.since is not None and not process.is_told and now > process.since + PATIENCE:
                process.is_told = True
                self._show(process.name, "has no node yet; `ray status` shows whether a node has enough free resources for its role", True)
        if now >= self._check_due and any(one.since is not None and now > one.since + HOPELESS for one in self._asked.values()):
            self._check_due = now + HOPELESS / 4
            self._check_room()
        return bool(ready)

    def _check_room(self) -> None:
        """Check that all processes that wait for a node can get one.

        Raises:
            ConfigError: no node with the labels is large enough, or only this run uses the cluster and too few resources are free.
        """
        nodes = {node["NodeManagerAddress"]: node for node in self._ray.nodes() if node["Alive"]}
        resources, labels = ({address: node[what] for address, node in nodes.items()} for what in ("Resources", "Labels"))
        waiting = {one.name: one.needs for one in self._asked.values() if one.since is not None}
        running = [(one.address, one.needs) for one in self._asked.values() if one.since is None]
        if reason := no_room(resources, labels, self._ray.available_resources(), running, waiting):
            raise ConfigError(reason)

    def update(self, states: Sequence[ReplicaState]) -> None:
        """Export metrics of the replicas to Ray."""
        self._metrics.update(states)

    def close(self) -> None:
        """End all actors and leave the cluster."""
        self._metrics.flush()
        left = [*self._asked.values(), *self._cut_off]
        if ends := [process.actor.close.remote() for process in left if process.address]:
            self._ray.wait(ends, num_returns=len(ends), timeout=END)
        for actor in (*(process.actor for process in left), self._registry):
            self._ray.kill(actor)
        self._ray.shutdown()

    def _ask(self, process: RayProcess, more: int = 0) -> None:
        process.number += more
        self._asked[process.actor.news.remote(process.number)] = process

    def _hear(self, answer: Any) -> None:
        process = self._asked.pop(answer)
        try:
            if process.end is not None:
                process.lose(*process.end, Counts(*self._ray.get(answer)))
            else:
                process.hear(News.from_json(self._ray.get(answer)))
        except self._ray.exceptions.ActorUnavailableError:
            process.due = time.monotonic() + AGAIN
            self._cut_off.append(process)
            return
        except self._ray.exceptions.RayError as error:
            if process.end is None and self._ask_node(process):
                process.end, process.due = _why(error, process.address), time.monotonic() + LAST_WORDS
                return
            process.lose(*(process.end or _why(error, process.address)))
        if process.poll() is None:
            self._ask(process, 1)
        else:
            self._ray.kill(process.actor)

    def _ask_node(self, process: RayProcess) -> bool:
        """Ask the node of a process whose actor is dead for the counts of the process. Return whether the node is alive."""
        nodes = [node["NodeID"] for node in self._ray.nodes() if node["Alive"] and node["NodeManagerAddress"] == process.address]
        if not nodes:
            return False
        there = self._ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy(nodes[0], soft=False)
        answer = self._ray.remote(last_counts).options(num_cpus=0, max_retries=0, scheduling_strategy=there).remote(process.counts_at)
        self._asked[answer] = process
        return True


def _why(error: Exception, address: str) -> tuple[str, int]:
    """Return why an actor was lost, and the assumed exit code of the actor's process."""
    lines = [line for line in str(error).splitlines() if line.strip()]
    if getattr(error, "actor_init_failed", False):
        return lines[-1].removeprefix("RuntimeError: "), 1
    why = lines[-1].partition(" Some common causes")[0]  # drop Ray's sentences about possible causes
    return f"Ray has lost the process{f' on {address}' if address else ''}: {why}", -signal.SIGKILL

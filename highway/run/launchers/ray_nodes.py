"""Check that the nodes of a Ray cluster have the resources that the roles need, and that their software is the same.

A *role* is a pipeline of a topology file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import highway
from highway.errors import ConfigError
from highway.parameters.location import Location
from highway.topology import Topology
from highway.topology.plan import Role
from highway.wire.registries.ray import import_ray

PATIENCE = 30.0  # seconds before a message about nodes that have not reported their software yet

Node = Mapping[str, Any]  # an element of ray.nodes()


def check_nodes(topology: Topology, roles: Iterable[str], say: Callable[[str], None]) -> dict[str, str]:
    """Check that all nodes on which a role can run have the same software, and return this software for each role.

    Args:
        topology: The topology of the roles.
        roles: The names of the roles.
        say: A function that is called with a message if a node has not answered for ``PATIENCE`` seconds.

    Raises:
        ConfigError: no node has the resources of a role; nodes of a role differ in software that affects pixels; a node's version of
            highway differs from the version here; or a node does not report its software.
    """
    nodes = [node for node in import_ray().nodes() if node["Alive"]]
    fitting = {name: _fitting(topology, topology.roles[name], nodes) for name in sorted(roles)}
    found = _software({node["NodeID"]: node for some in fitting.values() for node in some}, say)
    for node, text in found.values():
        if _release(text) != f"highway {highway.__version__}":
            raise ConfigError(
                f"the node {node} has {_release(text)}, but this process has highway {highway.__version__} ({highway.__path__[0]}); "
                f"install the same version on all nodes and here"
            )
    return {name: _agreed(_resources(topology, name), [found[node["NodeID"]] for node in some]) for name, some in fitting.items()}


def _resources(topology: Topology, role: str) -> Location:
    return topology.plan.location / "roles" / role / "resources"


def _fitting(topology: Topology, role: Role, nodes: Sequence[Node]) -> list[Node]:
    """Return the nodes that have the resources for a process of a role."""
    needs = {"CPU": role.resources.cpus or 1, "GPU": role.resources.gpus, "memory": 1e6 * (role.resources.memory_mb or 0)}
    labels = role.resources.labels

    def fits(node: Node) -> bool:
        enough = all(node["Resources"].get(name, 0) >= needed for name, needed in needs.items())
        return enough and has_labels(node["Labels"], labels)

    if not (found := list(filter(fits, nodes))):
        text = "; ".join(f"{node['NodeManagerAddress']} has {_offer(node['Resources'], node['Labels'])}" for node in nodes)
        raise _resources(topology, role.name).error(
            f"no node of the cluster has {_offer(needs, labels)}: {text}; reduce the resources or labels of the role, or start a node "
            f"with them (`ray start` with --labels and resources)"
        )
    return found


def matches(wanted: str, label: str | None) -> bool:
    """Return whether a label matches a label selector of Ray: ``x``, ``!x``, ``in(x, y)`` or ``!in(x, y)``."""
    values = wanted.removeprefix("!")
    either = values[3:-1].split(",") if values.startswith("in(") and values.endswith(")") else [values]
    return (label in [value.strip() for value in either]) != wanted.startswith("!")


def has_labels(labels: Mapping[str, str], selectors: Mapping[str, str]) -> bool:
    """Return whether the labels of a node match all label selectors of a role."""
    return all(matches(wanted, labels.get(name)) for name, wanted in selectors.items())


def _offer(resources: Mapping[str, float], labels: Mapping[str, str]) -> str:
    found = [f"{name} {resources[name]:g}" for name in ("CPU", "GPU") if resources.get(name)]
    found += [f"memory {resources['memory'] / 1e6:,.0f} MB"] if resources.get("memory") else []
    return ", ".join([*found, *(f"{name}={value}" for name, value in labels.items() if not name.startswith("ray.io/node-id"))]) or "nothing"


def _software(nodes: Mapping[str, Node], say: Callable[[str], None]) -> dict[str, tuple[str, str]]:
    """Return the address and the software of each node."""
    ray = import_ray()
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    def tell() -> str:  # a local function, which Ray sends by value, so that nodes without this highway can run it
        try:
            from highway.images.software import software
        except ImportError as error:
            return f"no highway that can be imported ({error}),"
        return software()

    def ask(node: str) -> Any:
        there = NodeAffinitySchedulingStrategy(node, soft=False)
        return ray.remote(tell).options(num_cpus=0, max_retries=0, scheduling_strategy=there).remote()

    asked = {ask(node): node for node in nodes}
    _, late = ray.wait([*asked], num_returns=len(asked), timeout=PATIENCE)
    if late:
        where = ", ".join(nodes[asked[answer]]["NodeManagerAddress"] for answer in late)
        say(f"{where}: no answer yet about the installed software; still waiting, because Ray may be setting up the environment of the job")
    found = {}
    for answer, node in asked.items():
        address = nodes[node]["NodeManagerAddress"]
        try:
            found[node] = address, ray.get(answer)
        except ray.exceptions.RayError as error:
            why = next(filter(None, map(str.strip, str(error).splitlines())), type(error).__name__)
            raise ConfigError(
                f"the node {address} does not report its installed software: {why}; `ray status` shows whether it is healthy"
            ) from None
    return found


def _agreed(location: Location, found: Sequence[tuple[str, str]]) -> str:
    """Return the common software of all nodes on which a role can run. ``location`` is the location of the role's resources in the file."""
    (there, first), *others = found
    for here, text in others:
        if text != first:
            raise location.error(
                f"this role can run on the node {there}, which has {first}, and on the node {here}, which has {text}: the same seed "
                f"would give different batches on the two nodes; install the same software on both (`highway doctor` lists it), or "
                f"select the nodes with labels"
            )
    return first


def _release(text: str) -> str:
    return text.partition(",")[0]

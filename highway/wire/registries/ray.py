"""A rendezvous in a Ray cluster: an actor on the head node, whose name contains the name of the run. Requires ``ray.init()``.

A *rendezvous* stores the addresses of the links of a run, so that processes find each other.
"""

from __future__ import annotations

import uuid
from collections.abc import Collection, Mapping
from typing import Any

from highway.errors import ConfigError

NAMESPACE = "highway"  # Ray's namespace for the names of the actors
TIMEOUT = 10.0  # maximum seconds to wait for an answer

MISSING = "Ray is not installed here; run `pip install ray`"


def import_ray() -> Any:
    """Return the module ``ray``.

    Raises:
        ConfigError: Ray is not installed.
    """
    try:
        import ray
    except ImportError as error:
        raise ConfigError(MISSING) from error
    return ray


Since = tuple[str, int]
"""The last change that a process knows: the ID of the actor's process (``life``), and the number of the change in the actor's process."""

NEVER: Since = ("", 0)


class AddressBook:
    """An actor that stores the address of each name of a run.

    If the actor's process is lost, Ray starts a new process, and all processes of the run publish their addresses again.

    Changes are numbered, and each address is stored with the number of its change. A new actor process has a new ``life``, and starts new
    numbers. If a process asks for changes with the ``life`` of an earlier actor process, the actor returns all addresses.
    """

    def __init__(self) -> None:
        self._life, self._number = uuid.uuid4().hex, 0
        self._found: dict[str, tuple[int, str]] = {}

    def publish(self, addresses: Mapping[str, str]) -> None:
        """Store the addresses of names."""
        for name, address in addresses.items():
            if self._found.get(name, (0, ""))[1] != address:
                self._number += 1
                self._found[name] = self._number, address

    def changes(self, since: Since) -> tuple[Since, bool, dict[str, str]]:
        """Return the last change, whether the result has all names, and the addresses that were published after the change ``since``."""
        life, last = since
        last = last if life == self._life else 0
        found = {name: address for name, (number, address) in self._found.items() if number > last}
        return (self._life, self._number), life != self._life, found


def start_registry(run: str) -> Any:
    """Start the registry of a run.

    The registry runs on the head node, because the cluster cannot outlive that node. The registry ends with this process.

    Raises:
        ConfigError: a run with this name already has a registry.
    """
    ray = import_ray()
    on_head = {"node:__internal_head__": 0.001}
    options = {"name": f"{run}/registry", "namespace": NAMESPACE, "num_cpus": 0, "resources": on_head, "max_restarts": -1}
    try:
        return ray.remote(AddressBook).options(**options).remote()
    except ValueError:
        raise ConfigError(f"a run called {run} already exists on this cluster; end that run first, or pass another --name") from None


class RayRendezvous:
    """The registry of a run in the Ray cluster that this process has joined.

    Args:
        run: The name of the run. By default, ``highway launch`` uses the name of the topology file without ``.yaml``.

    Raises:
        ConfigError: Ray is not installed, or this process has not joined a cluster.
    """

    def __init__(self, run: str) -> None:
        self._ray, self._run = import_ray(), run
        if not self._ray.is_initialized():
            raise ConfigError(f"ray:{run}: this process is not connected to a Ray cluster; call ray.init() first")
        self.host: str = self._ray.util.get_node_ip_address()
        self._registry: Any = None
        self._since: Since = NEVER
        self._known: dict[str, str] = {}

    def publish(self, addresses: Mapping[str, str]) -> None:
        self._ask("publish", dict(addresses))

    def find(self, names: Collection[str]) -> Mapping[str, str]:
        self._since, are_all, changed = self._ask("changes", self._since)
        self._known = changed if are_all else self._known | changed
        return {name: self._known[name] for name in names if name in self._known}

    def _ask(self, method: str, argument: Any) -> Any:
        try:
            self._registry = self._registry or self._ray.get_actor(f"{self._run}/registry", NAMESPACE)
            return self._ray.get(getattr(self._registry, method).remote(argument), timeout=TIMEOUT)
        except (ValueError, self._ray.exceptions.RayError) as error:
            self._registry = None
            raise OSError(
                f"run {self._run} has no registry in the Ray cluster ({str(error).splitlines()[0]}); check that the run has started"
            ) from None

"""The actor on a Ray cluster that runs a process on its node, and returns news of the process. The process itself does not use Ray.

*News* are the output, the reports and the counts of a process (:class:`~highway.run.remote.News`).
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Mapping
from dataclasses import astuple

from highway.images.software import software as software_here
from highway.run.launcher import LaunchSpec
from highway.run.remote import KEEP, Agent
from highway.wire.registries.ray import RayRendezvous
from highway.wire.registries.relay import Relay
from highway.wire.tally import read_kept

LOOK = 1.0  # maximum seconds that a call waits for news


def last_counts(path: str) -> tuple[int, ...]:
    """Return the counts of a process on this node after the actor of the process was killed. Ray runs this function as a task."""
    return astuple(read_kept(path))


class RayAgent:
    """An actor that runs a process on its node, and returns its news.

    Args:
        name: The name of the process's replica.
        software: The software that the role's processes must have.
        spec: The process to run: a :class:`~highway.run.launcher.LaunchSpec` as JSON.
        run: The name of the run.
        folder: The current directory of the process, unless Ray's job has its own working directory.
        environment: Environment variables for the process, from the launcher.

    Raises:
        RuntimeError: the software of this node differs from ``software``.
    """

    def __init__(self, name: str, software: str, spec: str, run: str, folder: str, environment: Mapping[str, str]) -> None:
        import ray

        self._name = name
        here = ray.util.get_node_ip_address()
        if (own := software_here()) != software:  # for example, the node has joined the cluster after the launch
            raise RuntimeError(
                f"the node {here} has {own}, but other nodes of this role have {software}; install the same software on all nodes"
            )
        if "working_dir" not in ray.get_runtime_context().runtime_env and os.path.isdir(folder):
            os.chdir(folder)
        os.environ.update(environment)
        self._relay = Relay(RayRendezvous(run))
        self._agent = Agent(LaunchSpec.from_json(spec), here, [f"--rendezvous={self._relay.text}"], KEEP)
        self._lock, self._told, self._last = threading.Lock(), 0, b""

    def __repr__(self) -> str:
        """Return the name of the actor in Ray's logs and dashboard."""
        return self._name

    def news(self, number: int) -> bytes:
        """Return the news with this number. After a broken connection, the caller requests the number again, and gets the same news."""
        with self._lock:
            if number != self._told:
                news = self._agent.news(LOOK)
                for text, is_error in news.lines:
                    print(text, file=sys.stderr if is_error else sys.stdout, flush=True)  # printed for Ray's logs
                self._told, self._last = number, news.to_json()
            return self._last

    def signal(self, number: int) -> None:
        """Send a signal to the process."""
        self._agent.signal(number)

    def close(self) -> None:
        """Kill the process and all processes that it has started."""
        with self._lock:
            self._agent.close()
        self._relay.close()

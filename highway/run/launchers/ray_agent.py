"""The actor on a Ray cluster. It starts a process on its node, and returns news of the process. The process itself does not use Ray."""

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

LOOK = 1.0  # seconds that it waits for news


def last_counts(path: str) -> tuple[int, ...]:
    """Return the counts of a process on this node whose actor was killed. Runs as a task of Ray."""
    return astuple(read_kept(path))


class RayAgent:
    """An actor that runs a process on its node, and returns its news.

    Args:
        name: The name of its replica.
        software: The software of other processes of its role.
        spec: The process to run, a :class:`~highway.run.launcher.LaunchSpec` in JSON.
        run: The name of the run.
        folder: Its current directory, unless the job has its own working directory.
        environment: Variables of the launcher's environment, which the process gets.
    """

    def __init__(self, name: str, software: str, spec: str, run: str, folder: str, environment: Mapping[str, str]) -> None:
        import ray

        self._name = name
        here = ray.util.get_node_ip_address()
        if (own := software_here()) != software:  # a node that has joined since the launch
            raise RuntimeError(f"the node {here} has {own}, and others that it ran on have {software}; install the same on all")
        if "working_dir" not in ray.get_runtime_context().runtime_env and os.path.isdir(folder):
            os.chdir(folder)
        os.environ.update(environment)
        self._relay = Relay(RayRendezvous(run))
        self._agent = Agent(LaunchSpec.from_json(spec), here, [f"--rendezvous={self._relay.text}"], KEEP)
        self._lock, self._told, self._last = threading.Lock(), 0, b""

    def __repr__(self) -> str:
        """Its name in Ray's logs and dashboard."""
        return self._name

    def news(self, number: int) -> bytes:
        """Return the news with this number. If a connection breaks, the caller asks again, and gets the same news."""
        with self._lock:
            if number != self._told:
                news = self._agent.news(LOOK)
                for text, is_error in news.lines:
                    print(text, file=sys.stderr if is_error else sys.stdout, flush=True)  # for Ray's logs
                self._told, self._last = number, news.to_json()
            return self._last

    def signal(self, number: int) -> None:
        """Send the process a signal."""
        self._agent.signal(number)

    def close(self) -> None:
        """End the process and all that it has started."""
        with self._lock:
            self._agent.close()
        self._relay.close()

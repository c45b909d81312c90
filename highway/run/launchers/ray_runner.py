"""What runs in an actor of Ray: a process beside it on its node, which has nothing of Ray in it, and what tells of that."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Mapping

import highway
from highway.observe.metrics import STAGE, STAGES
from highway.run.remote import Agent, LaunchOrder, News
from highway.wire.registries.ray import RayRendezvous
from highway.wire.registries.relay import Relay

LOOK = 1.0  # seconds that it waits for something to tell


class Runner:
    """An actor that runs a process on its node, and tells of it.

    Args:
        name: That of its replica.
        version: That of the launcher's highway.
        order: What to run, a :class:`~highway.run.remote.LaunchOrder` in JSON.
        run: The name of the run.
        folder: Where it runs, unless the job has a working directory of its own.
        environment: Variables of the launcher's environment that the process gets unless it has others.
    """

    def __init__(self, name: str, version: str, order: bytes, run: str, folder: str, environment: Mapping[str, str]) -> None:
        import ray
        from ray.util.metrics import Gauge

        self._name = name
        here = ray.util.get_node_ip_address()
        if version != highway.__version__:
            raise RuntimeError(
                f"highway is {highway.__version__} on the node {here}, and {version} where it was launched; install one version"
            )
        if "working_dir" not in ray.get_runtime_context().runtime_env and os.path.isdir(folder):
            os.chdir(folder)
        os.environ.update(environment)
        given = LaunchOrder.from_json(order)
        self._relay = Relay(RayRendezvous(run))
        self._agent = Agent(given, here, [f"--rendezvous={self._relay.text}"])
        self._lock, self._told, self._last = threading.Lock(), 0, b""
        process = given.spec.process
        self._tags = {"role": process.key.role, "replica": str(process.replica)}
        self._figures = {field: Gauge(name, about, tag_keys=STAGE) for field, (_, name, about) in STAGES.items()}

    def __repr__(self) -> str:
        """What Ray calls it in logs and in its dashboard."""
        return self._name

    def news(self, number: int) -> bytes:
        """Return the news of this number: when it is asked for again, since a connection broke, the same."""
        with self._lock:
            if number != self._told:
                news = self._agent.news(LOOK)
                self._pass_on(news)
                self._told, self._last = number, news.to_json()
            return self._last

    def _pass_on(self, news: News) -> None:
        """Give Ray the lines for its logs, and the figures for its metrics."""
        for text, is_error in news.lines:
            print(text, file=sys.stderr if is_error else sys.stdout, flush=True)
        for report in news.reports:
            for stage in report.stats.stages if report.stats else ():
                for field, figure in self._figures.items():
                    figure.set(getattr(stage, field), {**self._tags, "stage": stage.name})

    def signal(self, number: int) -> None:
        """Send the process a signal."""
        self._agent.signal(number)

    def close(self) -> None:
        """End the process and all that it has started."""
        with self._lock:
            self._agent.close()
        self._relay.close()

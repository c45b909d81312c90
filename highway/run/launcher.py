"""The interface of launchers. A launcher starts processes on this machine, in a cluster or by a scheduler.

Supervision, restarts, drains and the final table use only these two protocols. ``launchers/local`` implements them for this machine.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from highway.run.report import RoleReport
from highway.topology.process_spec import ProcessSpec
from highway.wire.tally import Counts

DRAIN = 10.0  # seconds for items in flight to arrive when the run is terminated
STOP_SECONDS = 30  # seconds between an engine's drain and kill, more than a run needs to stop by itself


@dataclass(frozen=True)
class LaunchSpec:
    """A process to start.

    ``process`` contains all information for the process, so it reads no file. ``arguments`` are the arguments of ``highway run`` for it.
    """

    name: str
    process: ProcessSpec
    arguments: Sequence[str]

    def to_json(self) -> str:
        """Return the specification as text, for another host."""
        return json.dumps([self.name, self.process.to_json(), [*self.arguments]])

    @classmethod
    def from_json(cls, text: bytes | str) -> LaunchSpec:
        """Parse the text of :meth:`to_json`."""
        name, process, arguments = json.loads(text)
        return cls(name, ProcessSpec.from_json(process), arguments)


class Handle(Protocol):
    """A process that a launcher has started."""

    @property
    def address(self) -> str:
        """Address under which other hosts reach the host of the process; empty while it has no host."""

    def poll(self) -> int | None:
        """Return its exit code, or minus the signal that ended it; ``None`` while it runs. After the end, all its reports are available."""

    def signal(self, number: int) -> None:
        """Send a signal if the process runs: SIGTERM drains it, SIGINT stops it, SIGKILL kills it and all processes that it has started."""

    def reports(self) -> Sequence[RoleReport]:
        """Return its reports since the last call."""

    def counts(self) -> Counts:
        """Return its counts of messages received and sent over links. After its end, they are exact, unless it ``is_lost``."""

    @property
    def is_lost(self) -> bool:
        """Whether the engine has lost the process. The counts are then the last reported counts, and the true counts may be higher."""


class Launcher(Protocol):
    """Starts processes somewhere, and shows their output.

    A launcher that is also a :class:`~highway.run.supervise.Watcher` gets the states of the replicas, to pass them to its engine.
    """

    def start(self, spec: LaunchSpec) -> Handle:
        """Start a process; returns at once."""

    def wait(self, seconds: float) -> bool:
        """Wait at most ``seconds`` for an event of a process; return whether a process has printed or reported something.

        Raises:
            ConfigError: a process waits for a host or node that it can never get; the run ends.
        """

    def close(self) -> None:
        """Kill all processes, and the processes that they have started."""


def file_arguments(options: argparse.Namespace) -> list[str]:
    """Return the arguments ``--set`` and ``--plugin`` for ``highway run``, so that it reads the topology files in the same way."""
    return [f"--{name}={value}" for name in ("set", "plugin") for value in getattr(options, name)]

"""The interface of launchers. A launcher starts processes on this machine, in a cluster or through a scheduler.

To *drain* a process means to end its source and to deliver the items in flight.

The code for supervision, restarts, drains and the final table uses only the protocols :class:`Launcher` and :class:`Handle`.
``launchers/local`` implements these protocols for this machine.
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

DRAIN = 10.0  # maximum seconds for items in flight to arrive after the run gets SIGTERM
STOP_SECONDS = 30  # after a drain, an engine waits this many seconds and then kills the processes; a run stops earlier by itself


@dataclass(frozen=True)
class LaunchSpec:
    """The specification of a process to start.

    Args:
        name: The name of the replica.
        process: All parts of the topology that the process needs. The process therefore reads no topology file.
        arguments: The arguments of ``highway run`` for the process.
    """

    name: str
    process: ProcessSpec
    arguments: Sequence[str]

    def to_json(self) -> str:
        """Return the specification as JSON, for another host."""
        return json.dumps([self.name, self.process.to_json(), [*self.arguments]])

    @classmethod
    def from_json(cls, text: bytes | str) -> LaunchSpec:
        """Return the specification from the result of :meth:`to_json`."""
        name, process, arguments = json.loads(text)
        return cls(name, ProcessSpec.from_json(process), arguments)


class Handle(Protocol):
    """A process that a launcher has started."""

    @property
    def address(self) -> str:
        """Address at which other hosts reach the host of the process; empty while the process has no host."""

    def poll(self) -> int | None:
        """Return the exit code, or the negative number of the signal that ended the process; ``None`` while the process runs.

        After the end of the process, :meth:`reports` returns all of its remaining reports.
        """

    def signal(self, number: int) -> None:
        """If the process runs, send it a signal. SIGTERM drains it, SIGINT stops it, SIGKILL kills it and its children."""

    def reports(self) -> Sequence[RoleReport]:
        """Return the reports of the process since the last call."""

    def counts(self) -> Counts:
        """Return the numbers of messages that the process received and sent over links.

        After the end of the process, the counts are exact, unless the process ``is_lost``.
        """

    @property
    def is_lost(self) -> bool:
        """Whether the engine has lost the process. :meth:`counts` then returns the last known counts; the true counts can be higher."""


class Launcher(Protocol):
    """Starts processes somewhere, and shows their output.

    A launcher that is also a :class:`~highway.run.supervise.Watcher` gets the states of the replicas, and passes them to its engine.
    """

    def start(self, spec: LaunchSpec) -> Handle:
        """Start a process, without waiting for it.

        Raises:
            OSError: this machine lacks the resources for the process.
        """

    def wait(self, seconds: float) -> bool:
        """Wait at most ``seconds`` for an event: output, a report or the end of a process. Return whether there was an event.

        Raises:
            ConfigError: a process waits for a host or node that it can never get. The run then ends.
        """

    def close(self) -> None:
        """Kill all processes of this launcher, and all processes that these have started."""


def file_arguments(options: argparse.Namespace) -> list[str]:
    """Return the arguments ``--set`` and ``--plugin`` of this command, for a ``highway run`` that reads the same topology files."""
    return [f"--{name}={value}" for name in ("set", "plugin") for value in getattr(options, name)]

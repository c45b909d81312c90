"""The seam between what runs and where: a launcher starts processes, and what is above it knows nothing else of them.

Supervision, restarts, drains and the closing table are written once, on top of these two protocols. ``launchers/local`` fulfils them for
this machine.
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

DRAIN = 10.0  # seconds that what is in flight may take to arrive when the run is terminated
STOP_SECONDS = 30  # that an engine waits after the drain before it kills: longer than a run takes to stop by itself, whatever its stages do


@dataclass(frozen=True)
class LaunchSpec:
    """A process to start.

    ``process`` is what it needs to know to run, so that it reads no file and checks no other role; ``arguments`` are those of
    ``highway run`` that name it and say how it is to run.
    """

    name: str
    process: ProcessSpec
    arguments: Sequence[str]

    def to_json(self) -> str:
        """Return it as text, for another host."""
        return json.dumps([self.name, self.process.to_json(), [*self.arguments]])

    @classmethod
    def from_json(cls, text: bytes | str) -> LaunchSpec:
        """Read it back."""
        name, process, arguments = json.loads(text)
        return cls(name, ProcessSpec.from_json(process), arguments)


class Handle(Protocol):
    """A process that a launcher has started."""

    @property
    def address(self) -> str:
        """Where others reach its host; empty while it has no place."""

    def poll(self) -> int | None:
        """Return its exit code, or minus the signal that ended it; ``None`` while it runs. All that it has reported is there then."""

    def signal(self, number: int) -> None:
        """Send it a signal, if it runs: SIGTERM drains it, SIGINT stops it, SIGKILL ends it and all that it has started."""

    def reports(self) -> Sequence[RoleReport]:
        """Return what it has reported since the last call."""

    def counts(self) -> Counts:
        """Return what it has received and sent over links; exact once it has ended, however that was, unless it ``is_lost``."""

    @property
    def is_lost(self) -> bool:
        """Whether its engine has lost it: then its counts are those that it told last, and it may have received and sent more."""


class Launcher(Protocol):
    """Starts processes somewhere, and shows the lines that they print.

    One that is a :class:`~highway.run.supervise.Watcher` too is told how the processes are, so that it can tell its engine.
    """

    def start(self, spec: LaunchSpec) -> Handle:
        """Start a process; returns at once."""

    def wait(self, seconds: float) -> bool:
        """Wait until one of the processes does something, or so long; say whether one has printed or reported something."""

    def close(self) -> None:
        """Leave nothing behind: no process, none that one of them has started."""


def file_arguments(options: argparse.Namespace) -> list[str]:
    """Return what `highway run` has to be told of a file besides its name, as a command that reads the same file was told it."""
    return [f"--{name}={value}" for name in ("set", "plugin") for value in getattr(options, name)]

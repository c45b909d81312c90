"""The engines that a topology can be launched on: one record of data for each. Nobody else compares their names."""

from __future__ import annotations

import argparse
import importlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from highway.errors import ConfigError
from highway.topology import Topology
from highway.topology.wiring import Wiring


@dataclass(frozen=True)
class Engine:
    """Where the processes of a topology can run.

    Its module, ``highway.run.launchers.NAME``, is imported when it is chosen. It has ``problems(topology)``, which yields a ConfigError
    for each thing that the engine cannot do for it, and one of two:

    - ``connect(wiring, options, show)`` returns a :class:`~highway.run.launcher.Launcher`, and ``placed(topology)`` the processes, as their
      links are there: highway starts them, watches them and shows what they print, as on this machine;
      ``preview(wiring, options)``, if it is there, returns what would be handed to the engine: texts by what they are;
    - ``render(topology, options)`` returns the texts of files by their names: the engine's own tools start what these say.

    Args:
        name: What ``--on`` calls it.
        what: Where processes run then, in words.
        renders: Whether it renders files.
    """

    name: str
    what: str
    renders: bool = False

    @property
    def module(self) -> Any:
        """What speaks to it."""
        return importlib.import_module(f"highway.run.launchers.{self.name}")

    def preview(self, wiring: Wiring, options: argparse.Namespace) -> Mapping[str, str]:
        """Return what it would be handed, texts by what they are.

        Raises:
            ConfigError: that is no text.
        """
        if not hasattr(self.module, "preview"):
            raise ConfigError(f"--dry-run: to run {self.what} nothing is written that could be shown; `highway check` checks the file")
        found: Mapping[str, str] = self.module.preview(wiring, options)
        return found

    def check(self, topology: Topology) -> None:
        """Check that it can run a topology.

        Raises:
            ConfigError: it cannot; the message has a line for each reason.
        """
        problems: Iterator[ConfigError] = self.module.problems(topology)
        if texts := list(map(str, problems)):
            raise ConfigError("\n".join(texts))


ENGINES: Mapping[str, Engine] = {
    each.name: each
    for each in (
        Engine("local", "processes on this machine"),
        Engine("ray", "actors of a Ray cluster"),
        Engine("slurm", "jobs of Slurm"),
        Engine("kubernetes", "pods of Kubernetes: the manifests are written", renders=True),
        Engine("systemd", "services of systemd on each host: the units are written", renders=True),
    )
}
"""Name -> engine."""

"""Engines: places where the processes of a topology can run. ``launchers/table`` lists them."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from highway.errors import ConfigError
from highway.run.launcher import Launcher
from highway.topology import Topology
from highway.topology.wiring import Wiring

Show = Callable[[str, str, bool], None]
"""Shows a line: the name of the process that printed it, the text, and whether it is from standard error."""


class Option(NamedTuple):
    """An option of ``highway launch`` for one engine: its name without ``--``, and its arguments for argparse."""

    name: str
    settings: Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class Engine:
    """A place where the processes of a topology can run: a :class:`LiveEngine` or a :class:`RenderingEngine`.

    Args:
        name: The name for ``--on``.
        what: The place where the engine runs processes, in words.
        problems: Yields a ConfigError for each part of a topology that the engine does not support.
        options: Options that only this engine has.
    """

    name: str
    what: str
    problems: Callable[[Topology], Iterator[ConfigError]]
    options: Sequence[Option] = ()

    def check(self, topology: Topology) -> None:
        """Check that the engine can run a topology.

        Raises:
            ConfigError: the engine cannot run the topology; the message has a line for each reason.
        """
        if texts := list(map(str, self.problems(topology))):
            raise ConfigError("\n".join(texts))


def placed_anywhere(topology: Topology) -> Wiring:
    """Return all processes of a topology for an engine that chooses the hosts: they find each other by name."""
    return Wiring.scaling(topology.anywhere())


@dataclass(frozen=True, kw_only=True)
class LiveEngine(Engine):
    """An engine in which highway starts processes, watches them and shows their output, as on this machine.

    Args:
        connect: Returns a launcher.
        placed: Returns the processes of a topology, with their links in this engine.
        preview: Returns the texts for the engine, such as job scripts, by name. ``None``: the engine uses no texts.
        may_be_ended_by: The library that may end the launcher's process without raising an error. Empty: no library does this.
    """

    connect: Callable[[Wiring, argparse.Namespace, Show], Launcher]
    placed: Callable[[Topology], Wiring] = placed_anywhere
    preview: Callable[[Wiring, argparse.Namespace], Mapping[str, str]] | None = None
    may_be_ended_by: str = ""


@dataclass(frozen=True, kw_only=True)
class RenderingEngine(Engine):
    """An engine whose own tools start processes from files.

    Args:
        render: Returns the contents of these files by name.
    """

    render: Callable[[Topology, argparse.Namespace], Mapping[str, str]]

"""What an engine is: a place where the processes of a topology can run. ``launchers/table`` lists the engines that there are."""

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
    """An option of ``highway launch`` that only one engine has: its name without ``--``, and what argparse is told of it."""

    name: str
    settings: Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class Engine:
    """Where the processes of a topology can run: a :class:`LiveEngine` or a :class:`RenderingEngine`.

    Args:
        name: What ``--on`` calls it.
        what: Where processes run then, in words.
        problems: Yields a ConfigError for each thing that the engine cannot do for a topology.
        options: What only this engine can be told.
    """

    name: str
    what: str
    problems: Callable[[Topology], Iterator[ConfigError]]
    options: Sequence[Option] = ()

    def check(self, topology: Topology) -> None:
        """Check that it can run a topology.

        Raises:
            ConfigError: it cannot; the message has a line for each reason.
        """
        if texts := list(map(str, self.problems(topology))):
            raise ConfigError("\n".join(texts))


def placed_anywhere(topology: Topology) -> Wiring:
    """Return all processes of a topology for an engine that chooses hosts: they find each other by name."""
    return Wiring.scaling(topology.anywhere())


@dataclass(frozen=True, kw_only=True)
class LiveEngine(Engine):
    """An engine in which highway starts the processes, watches them and shows what they print, as on this machine.

    Args:
        connect: Returns what starts processes there.
        placed: Returns the processes of a topology, as their links are there.
        preview: Returns what would be handed to the engine, texts by what they are; ``None`` if that is no text.
    """

    connect: Callable[[Wiring, argparse.Namespace, Show], Launcher]
    placed: Callable[[Topology], Wiring] = placed_anywhere
    preview: Callable[[Wiring, argparse.Namespace], Mapping[str, str]] | None = None


@dataclass(frozen=True, kw_only=True)
class RenderingEngine(Engine):
    """An engine whose own tools start what files say.

    Args:
        render: Returns the texts of these files by their names.
    """

    render: Callable[[Topology, argparse.Namespace], Mapping[str, str]]

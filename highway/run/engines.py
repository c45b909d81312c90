"""Engines: places where the processes of a topology can run. ``launchers/table`` has the list of engines.

The *launcher* is the process that starts and watches the processes of a run, such as ``highway run``.
"""

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
"""A function that shows a printed line. Arguments: the name of the process, the text, and whether the text is from standard error."""


class Option(NamedTuple):
    """An option of ``highway launch`` for one engine: its name without ``--``, and the arguments of argparse's ``add_argument``."""

    name: str
    settings: Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class Engine:
    """A place where the processes of a topology can run: a :class:`LiveEngine` or a :class:`RenderingEngine`.

    Args:
        name: The value of ``--on`` that selects the engine.
        what: A description of the place where the engine runs processes.
        problems: Function that receives a topology, and yields a ConfigError for each part that the engine does not support.
        options: Options of ``highway launch`` that only this engine has.
    """

    name: str
    what: str
    problems: Callable[[Topology], Iterator[ConfigError]]
    options: Sequence[Option] = ()

    def check(self, topology: Topology) -> None:
        """Check that the engine can run a topology.

        Raises:
            ConfigError: the engine cannot run the topology. The message has a line for each reason.
        """
        if texts := list(map(str, self.problems(topology))):
            raise ConfigError("\n".join(texts))


def placed_anywhere(topology: Topology) -> Wiring:
    """Return the processes of a topology for an engine that chooses their hosts. The links use names instead of addresses."""
    return Wiring.scaling(topology.anywhere())


@dataclass(frozen=True, kw_only=True)
class LiveEngine(Engine):
    """An engine whose processes highway starts and watches. highway also shows the output of these processes.

    Args:
        connect: Function that returns a launcher.
        placed: Function that returns the processes of a topology and their links, adapted to this engine.
        preview: Function that returns the texts that the engine gets, such as job scripts, by name. ``None``: the engine uses no texts.
        may_be_ended_by: Name of a library that can end the launcher's process without raising an error. Empty: no library does so.
    """

    connect: Callable[[Wiring, argparse.Namespace, Show], Launcher]
    placed: Callable[[Topology], Wiring] = placed_anywhere
    preview: Callable[[Wiring, argparse.Namespace], Mapping[str, str]] | None = None
    may_be_ended_by: str = ""


@dataclass(frozen=True, kw_only=True)
class RenderingEngine(Engine):
    """An engine that starts the processes with its own tools, from files that highway writes.

    Args:
        render: Function that returns the contents of the files by name.
    """

    render: Callable[[Topology, argparse.Namespace], Mapping[str, str]]

"""The topology file that a command is given."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import Any

from highway import topology
from highway.errors import ConfigError


def add_file_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of all commands that read a topology file to a parser."""
    parser.add_argument("files", metavar="FILE", nargs="+", help="the topology, a YAML file; several are merged by key, later ones count")
    parser.add_argument("--set", action="append", default=[], metavar="VAR=VALUE", help="give a variable of the file another value")
    parser.add_argument("--plugin", action="append", default=[], metavar="MODULE", help="allow the file to name classes of this module")


def allow_plugins(modules: Sequence[str]) -> None:
    """Have modules that ``--plugin`` names, if it names any, found in the current directory too, where ``python -m`` looks."""
    if modules and "" not in sys.path:
        sys.path.insert(0, "")


def load_checked(options: argparse.Namespace, look_only: bool = True) -> topology.Topology:
    """Return the topology that the options of :func:`add_file_options` name.

    Args:
        options: The options.
        look_only: Whether it will not be run, so that nothing is imported that the user has not named by ``--plugin``.

    Raises:
        ConfigError: it has mistakes; the message lists them all.
    """
    allow_plugins(options.plugin)
    return topology.load_checked(options.files, variables(options.set), options.plugin, look_only)


def variables(settings: list[str]) -> dict[str, Any]:
    """Return what ``--set VAR=VALUE`` options say; a value is YAML.

    Raises:
        ConfigError: one of them has no ``=``, or its value is not YAML.
    """
    from highway.topology.document import parse  # here, since a process that was launched reads no YAML

    values = {}
    for setting in settings:
        name, equals, text = setting.partition("=")
        if not equals or not name:
            raise ConfigError(f"--set {setting}: expected VAR=VALUE")
        values[name], _ = parse(text, f"--set {name}")
    return values

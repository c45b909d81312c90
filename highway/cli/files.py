"""The topology file of a command."""

from __future__ import annotations

import argparse
import contextlib
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from highway import topology
from highway.datasets.writing import writing
from highway.errors import ConfigError


@contextlib.contextmanager
def put_in(path: str | Path) -> Iterator[str]:
    """Write a file atomically, so that readers always find a complete file. Yield the path to write to.

    Raises:
        ConfigError: the file cannot be written.
    """
    try:
        with writing(str(path)) as part:
            yield part
    except OSError as error:
        raise ConfigError(f"-o {path}: {error.strerror or error}") from None


def add_file_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of all commands that read a topology file to a parser."""
    parser.add_argument("files", metavar="FILE", nargs="+", help="the topology, a YAML file; several are merged by key, later ones count")
    add_settings(parser)


def add_settings(parser: argparse.ArgumentParser) -> None:
    """Add the options that change what a topology file contains or may name."""
    parser.add_argument("--set", action="append", default=[], metavar="VAR=VALUE", help="give a variable of the file another value")
    parser.add_argument("--plugin", action="append", default=[], metavar="MODULE", help="allow the file to name classes of this module")


def allow_plugins(modules: Sequence[str]) -> None:
    """Make modules of ``--plugin``, if any, importable from the current directory, as with ``python -m``."""
    if modules and "" not in sys.path:
        sys.path.insert(0, "")


def load_checked(options: argparse.Namespace, look_only: bool = True) -> topology.Topology:
    """Return the topology for the options of :func:`add_file_options`.

    Args:
        options: The options.
        look_only: Whether the topology will not run, so that only modules of ``--plugin`` are imported.

    Raises:
        ConfigError: the topology has errors; the message lists them all.
    """
    allow_plugins(options.plugin)
    return topology.load_checked(options.files, variables(options.set), options.plugin, look_only)


def variables(settings: list[str]) -> dict[str, Any]:
    """Parse ``--set VAR=VALUE`` options; a value is YAML.

    Raises:
        ConfigError: an option has no ``=``, or its value is not YAML.
    """
    from highway.topology.document import parse  # here, because a launched process reads no YAML

    values = {}
    for setting in settings:
        name, equals, text = setting.partition("=")
        if not equals or not name:
            raise ConfigError(f"--set {setting}: expected VAR=VALUE")
        values[name], _ = parse(text, f"--set {name}")
    return values

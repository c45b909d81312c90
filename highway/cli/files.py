"""Options for topology files, and writing files."""

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
    """Yield the path of a temporary file, which replaces the file ``path`` atomically at the end. So readers always find a complete file.

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
    parser.add_argument(
        "files",
        metavar="FILE",
        nargs="+",
        help="the topology, a YAML file; if there are several files, they are merged by key, and a later file overrides earlier files",
    )
    add_settings(parser)


def add_settings(parser: argparse.ArgumentParser) -> None:
    """Add the options for variables and plug-ins of a topology file."""
    parser.add_argument("--set", action="append", default=[], metavar="VAR=VALUE", help="set the value of a variable of the file")
    parser.add_argument("--plugin", action="append", default=[], metavar="MODULE", help="allow the file to name classes of this module")


def allow_plugins(modules: Sequence[str]) -> None:
    """If modules of ``--plugin`` are given, make modules in the current directory importable, as ``python -m`` does."""
    if modules and "" not in sys.path:
        sys.path.insert(0, "")


def load_checked(options: argparse.Namespace, look_only: bool = True) -> topology.Topology:
    """Load and check the topology that the options select, and return it.

    Args:
        options: The options of :func:`add_file_options`.
        look_only: Whether the topology will not run. If true, only the modules of ``--plugin`` are imported.

    Raises:
        ConfigError: the topology has errors. The message lists the errors.
    """
    allow_plugins(options.plugin)
    return topology.load_checked(options.files, variables(options.set), options.plugin, look_only)


def variables(settings: list[str]) -> dict[str, Any]:
    """Return the variables in ``--set VAR=VALUE`` options. A value is YAML.

    Raises:
        ConfigError: an option has no ``=``, or its value is not YAML.
    """
    from highway.topology.document import parse  # imported here, because a launched process reads no YAML

    values = {}
    for setting in settings:
        name, equals, text = setting.partition("=")
        if not equals or not name:
            raise ConfigError(f"--set {setting}: expected VAR=VALUE")
        values[name], _ = parse(text, f"--set {name}")
    return values

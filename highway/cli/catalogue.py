"""``highway check`` and ``highway list``: what is in a file, and what may be in one."""

from __future__ import annotations

import argparse
import inspect
import sys
from typing import Any

from highway.components import PACKAGES, Components, built_in
from highway.errors import ConfigError
from highway.topology import Topology, load
from highway.topology.document import parse


def add_commands(commands: Any, common: argparse.ArgumentParser) -> None:
    """Add the commands of this module to the command line."""
    check = commands.add_parser("check", parents=[common, file_options()], help="check a topology file, without data or network")
    check.set_defaults(command=_check)
    listing = commands.add_parser("list", parents=[common], help="list the components, or describe one")
    listing.add_argument("name", metavar="NAME", nargs="?", help="the component to describe")
    listing.add_argument("--plugin", action="append", default=[], metavar="MODULE", help="allow classes of this module")
    listing.set_defaults(command=_list)


def file_options() -> argparse.ArgumentParser:
    """Return the options of all commands that read a topology file."""
    options = argparse.ArgumentParser(add_help=False)
    options.add_argument("file", metavar="FILE", help="the topology, a YAML file")
    options.add_argument("--set", action="append", default=[], metavar="VAR=VALUE", help="give a variable of the file another value")
    options.add_argument("--plugin", action="append", default=[], metavar="MODULE", help="allow the file to name classes of this module")
    return options


def load_checked(options: argparse.Namespace) -> Topology:
    """Return the topology that the options name.

    Raises:
        ConfigError: it has mistakes; the message lists them all.
    """
    if options.plugin and "" not in sys.path:
        sys.path.insert(0, "")  # where `python -m` looks for modules too: the current directory
    topology = load(options.file, variables(options.set), options.plugin)
    if errors := topology.check():
        raise ConfigError("\n".join(map(str, errors)))
    return topology


def variables(settings: list[str]) -> dict[str, Any]:
    """Return what ``--set VAR=VALUE`` options say; a value is YAML.

    Raises:
        ConfigError: one of them has no ``=``, or its value is not YAML.
    """
    values = {}
    for setting in settings:
        name, equals, text = setting.partition("=")
        if not equals or not name:
            raise ConfigError(f"--set {setting}: expected VAR=VALUE")
        values[name], _ = parse(text, f"--set {name}")
    return values


def _check(options: argparse.Namespace) -> int:
    topology = load_checked(options)
    for role in topology.roles.values():
        count = f" x {role.replicas}" if role.replicas > 1 else ""
        print(f"{role.name}{count}: {' -> '.join(stage.label for stage in topology.stages(role.name))}")
    print(f"{options.file}: nothing wrong")
    return 0


def _list(options: argparse.Namespace) -> int:
    if options.name:
        print(Components(options.plugin).describe(options.name))
        return 0
    for package in PACKAGES:
        print(f"{package}:")
        for name, cls in built_in(package).items():
            print(f"  {name:<20} {(inspect.getdoc(cls) or '').partition(chr(10))[0]}")
    print("`highway list NAME` shows the parameters of one.")
    return 0

"""``highway check``, ``list`` and ``schema``: what is in a file, and what may be in one."""

from __future__ import annotations

import argparse
import inspect
import json
import sys
from typing import Any

from highway.errors import ConfigError
from highway.parameters.docstrings import plain
from highway.topology import Topology, check, load
from highway.topology.check import labels, not_imported
from highway.topology.components import PACKAGES, Components, built_in
from highway.topology.document import parse
from highway.topology.limits import loss, memory
from highway.topology.plan import names
from highway.topology.schema import schema

MOST = 20  # mistakes of a file that are listed; the first ones often bring the others about


def add_commands(commands: Any, common: argparse.ArgumentParser) -> None:
    """Add the commands of this module to the command line."""
    checking = commands.add_parser("check", parents=[common, file_options()], help="check a topology file, without data or network")
    checking.set_defaults(command=_check)
    listing = commands.add_parser("list", parents=[common], help="list the components, or describe one")
    listing.add_argument("name", metavar="NAME", nargs="?", help="the component to describe")
    listing.add_argument("--plugin", action="append", default=[], metavar="MODULE", help="allow classes of this module")
    listing.set_defaults(command=_list)
    commands.add_parser("schema", parents=[common], help="print a JSON schema of topology files, for editors").set_defaults(command=_schema)


def file_options() -> argparse.ArgumentParser:
    """Return the options of all commands that read a topology file."""
    options = argparse.ArgumentParser(add_help=False)
    options.add_argument("files", metavar="FILE", nargs="+", help="the topology, a YAML file; several are merged by key, later ones count")
    options.add_argument("--set", action="append", default=[], metavar="VAR=VALUE", help="give a variable of the file another value")
    options.add_argument("--plugin", action="append", default=[], metavar="MODULE", help="allow the file to name classes of this module")
    return options


def load_checked(options: argparse.Namespace, look_only: bool = True) -> Topology:
    """Return the topology that the options name.

    Args:
        options: Those of :func:`file_options`.
        look_only: Whether it will not be run, so that nothing is imported that the user has not named by ``--plugin``.

    Raises:
        ConfigError: it has mistakes; the message lists them all.
    """
    if options.plugin and "" not in sys.path:
        sys.path.insert(0, "")  # where `python -m` looks for modules too: the current directory
    topology = load(options.files, variables(options.set), options.plugin, look_only)
    if errors := check(topology):
        more = [f"and {len(errors) - MOST:,} more"] if len(errors) > MOST else []
        raise ConfigError("\n".join([*map(str, errors[:MOST]), *more]))
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
    plan = topology.plan
    for role in plan.roles.values():
        where = f" on {', '.join(role.hosts)}" if role.hosts else ""
        count = f" x {role.replicas}" if role.replicas > 1 else ""
        stages = " -> ".join(labels(topology, role.name)) or "(no stages here)"
        print(f"role {role.name}{count}{where}{' (external)' if role.external else ''}: {stages}")
    for link, spec in plan.links.items():
        ends = f"{' and '.join(names(spec, 'from'))} to {' and '.join(names(spec, 'to'))}"
        print(f"link {link}: {ends}, {spec.kind} over {spec.transport}, {spec.delivery}")
        print("".join(f"  {sentence}\n" for sentence in loss(plan, link)), end="")
    for host in plan.hosts:
        if needed := memory(plan, host):
            parts = ", ".join(f"{link} {megabytes:,g}" for link, megabytes in needed.items())
            print(f"host {host}: links may hold {sum(needed.values()):,g} MB there ({parts})")
    passed_over = not_imported(topology)
    for sentence in passed_over:
        print(sentence)
    print(f"{topology.path}: nothing wrong{' in what was checked' if passed_over else ''}")
    return 0


def _list(options: argparse.Namespace) -> int:
    if options.name:
        print(Components(options.plugin).describe(options.name))
        return 0
    for package in PACKAGES:
        print(f"{package}:")
        for name, cls in built_in(package).items():
            print(f"  {name:<20} {plain(inspect.getdoc(cls) or '').partition(chr(10))[0]}")
    print("`highway list NAME` shows the parameters of one.")
    return 0


def _schema(options: argparse.Namespace) -> int:
    print(json.dumps(schema(), indent=2))
    return 0

"""The command ``highway``.

Each of its commands, such as ``run``, ``top`` and ``check``, is a module. This package may use all other packages.

A *topology* is a YAML file with roles (kinds of processes) and the links between the roles.

Exit codes: 0 for success, 1 for a failure at run time, 2 for wrong usage or a wrong file, 130 if interrupted, 143 if terminated. Begin with
``command``.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING

import highway
from highway.cli.command import COMMANDS, GROUPS, Command, CommandModule
from highway.parameters.location import did_you_mean

if TYPE_CHECKING:
    from highway.cli import check, doctor, drain, graph, launch, list, quickstart, run, schema, top, unit
    from highway.cli.convert import command as convert
    from highway.cli.measure import bench, plan
    from highway.cli.streams import mon, serve_dir, serve_shards, show, stat

    _MODULES: tuple[CommandModule, ...] = (bench, check, doctor, drain, graph, launch, list, plan, quickstart, run)
    _MODULES += (schema, top, unit, convert, mon, serve_dir, serve_shards, show, stat)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit code."""
    given = [*(sys.argv[1:] if arguments is None else arguments)]  # not list(): a module of this package is called ``list``
    parser = argparse.ArgumentParser(
        prog="highway",
        description=highway.__doc__.splitlines()[0],
        epilog=_commands(),
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"highway {highway.__version__}")
    parsers = parser.add_subparsers(metavar="COMMAND", required=True, help="one of the commands below")
    named = next((word for word in given if not word.startswith("-")), "")
    for command in COMMANDS:
        added = parsers.add_parser(command.name, description=command.summary, allow_abbrev=False)
        if command.name == named:  # only the given command needs its options
            command.add_arguments(added)
            added.set_defaults(command=command)
    if named not in {"", *parsers.choices}:
        parser.error(f"there is no command {named!r}{did_you_mean(named, parsers.choices) or '; `highway --help` lists them'}")
    options = parser.parse_args(given)
    chosen: Command = options.command
    return chosen.run(options, f"highway {chosen.name}" if chosen.logs else "highway")


def _commands() -> str:
    """Return the commands in groups, in lines of the terminal's width. argparse would list all subparsers in one group."""
    gap = max(len(command.name) for command in COMMANDS) + 4
    filled = textwrap.TextWrapper(shutil.get_terminal_size((80, 0)).columns, subsequent_indent=" " * gap).fill
    lines = []
    for group, commands in GROUPS.items():
        lines += [f"{group}:", *(filled(f"  {one.name}".ljust(gap) + one.summary) for one in commands), ""]
    return "\n".join([*lines, "`highway COMMAND --help` lists the options of a command."])

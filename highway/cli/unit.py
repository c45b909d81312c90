"""``highway unit``: print a unit of systemd for the part of a topology that runs on a machine."""

from __future__ import annotations

import argparse

from highway.cli.arguments import share
from highway.cli.files import add_file_options, load_checked
from highway.run.launcher import DRAIN
from highway.run.launchers.systemd import HOSTNAME, unit_of


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_file_options(parser)
    add = parser.add_argument
    add("--host", metavar="NAME", help="the name of this machine under hosts in the file; default: the name of this machine")
    add(
        "--user",
        action="store_true",
        help="print a unit for the systemd of your user (systemctl --user), not for the systemd of the system",
    )
    add(
        "--drain-timeout",
        type=share,
        default=DRAIN,
        metavar="S",
        help=f"the same as for `highway run`; systemd waits longer than this; default: {DRAIN:g}",
    )


def run(options: argparse.Namespace) -> int:
    """Print a unit and return the exit code."""
    topology = load_checked(options)
    topology.processes(None if options.host == HOSTNAME else options.host)  # raises an error if the host does not exist
    host = (options.host or HOSTNAME) if topology.plan.hosts else ""
    print(unit_of(topology, options, host, for_system=not options.user), end="")
    return 0

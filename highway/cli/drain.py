"""``highway drain``: remove processes of a role from a running topology, without losing items."""

from __future__ import annotations

import argparse
import contextlib
import sys

from highway.cli.files import add_file_options, variables
from highway.errors import ConfigError
from highway.run.control import ControlClient, find
from highway.topology import Topology, load


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_file_options(parser)
    parser.add_argument("--role", metavar="ROLE", required=True, help="the role; by default, all its processes on this machine are drained")
    parser.add_argument("--replica", type=int, metavar="I", help="drain only the process with this number")


def run(options: argparse.Namespace) -> int:
    """Ask processes to drain, wait until they have ended, and return the exit code."""
    topology = load(options.files, variables(options.set), options.plugin)
    with contextlib.ExitStack() as opened:
        found = find(topology.key(options.role))
        for process in found:
            opened.enter_context(process.connection)
        chosen = _chosen(topology, options, found)
        for process in chosen:
            process.ask()
        return max(map(_wait, chosen))


def _chosen(topology: Topology, options: argparse.Namespace, found: list[ControlClient]) -> list[ControlClient]:
    if not found:
        raise ConfigError(
            f"no process of the role {options.role} of {topology.path} was found; this command finds only your own "
            f"processes on this machine"
        )
    chosen = [process for process in found if options.replica in (None, process.number)]
    if not chosen:
        here = ", ".join(str(process.number) for process in found)
        raise ConfigError(
            f"--replica {options.replica}: the role {options.role} of {topology.path} has no process with this number on "
            f"this machine; expected one of {here}"
        )
    return chosen


def _wait(process: ControlClient) -> int:
    """Wait until a process has ended, print how it ended, and return the exit code."""
    lacks = "ended before it had delivered all items; its log gives the reason"
    if answer := process.wait():
        items, complete = answer
        print(f"{process.name} has ended; it delivered {items:,} items", flush=True)
        if complete:
            return 0
        lacks = "was stopped before it had delivered all items (see highway run --drain-timeout)"
    print(f"highway: {process.name} {lacks}", file=sys.stderr, flush=True)
    return 1

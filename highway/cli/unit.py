"""``highway unit``: a topology's part on a machine as a service of systemd."""

from __future__ import annotations

import argparse
import os
import pwd
import sys
import sysconfig
from pathlib import Path

from highway.cli.arguments import share
from highway.cli.files import add_file_options, load_checked
from highway.run.launcher import DRAIN
from highway.run.systemd import HOSTNAME, unit


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_file_options(parser)
    add = parser.add_argument
    add("--host", metavar="NAME", help="the host of the file that the machine is; by default the one with the machine's name")
    add("--user", action="store_true", help="print a unit for your own systemd (systemctl --user), not for the system's")
    add("--drain-timeout", type=share, default=DRAIN, metavar="S", help=f"as for `highway run`; systemd waits longer; default: {DRAIN:g}")


def run(options: argparse.Namespace) -> int:
    """Print a unit and return the exit code."""
    topology = load_checked(options)
    passed = [f"--{name}={value}" for name in ("set", "plugin") for value in getattr(options, name)]
    passed += [f"--drain-timeout={options.drain_timeout:g}"] if options.drain_timeout != DRAIN else []
    topology.processes(None if options.host == HOSTNAME else options.host)  # which knows whether there is such a host
    passed += ["--host", options.host or HOSTNAME] if topology.plan.hosts else []
    command = [*_highway(), "run", *(str(Path(file).absolute()) for file in options.files), *passed]
    user = None if options.user else _user()
    print(unit(f"highway: {topology.plan.name}", command, os.getcwd(), user, options.drain_timeout), end="")
    return 0


def _highway() -> list[str]:
    """Return the command that runs this highway: its script, or the module where it is not installed."""
    script = Path(sysconfig.get_path("scripts"), "highway")
    return [str(script)] if script.exists() else [sys.executable, "-m", "highway"]


def _user() -> str:
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:  # as in a container
        return str(os.getuid())

"""``highway run``: one role of a topology here, or all of them on this machine."""

from __future__ import annotations

import argparse
import logging
import sys
from collections.abc import Callable
from typing import Any

from highway.cli.catalogue import file_options, load_checked
from highway.cli.messages import RunError, explain
from highway.cli.screen import Screen
from highway.errors import ConfigError
from highway.stats import PipelineStats
from highway.topology import Topology
from highway.topology.launch import launch
from highway.topology.process import Reporter, StuckError, Terminated, die_with_parent, run, termination


def add_commands(commands: Any, common: argparse.ArgumentParser) -> None:
    """Add the command of this module to the command line."""
    parser = commands.add_parser("run", parents=[common, file_options()], help="run a role of a topology, or all of them on this machine")
    parser.add_argument("--role", metavar="ROLE", help="the role to run in this process; without it, every role in a process of its own")
    parser.add_argument("--replica", type=int, default=0, metavar="I", help="which of the role's processes this is, from 0")
    parser.add_argument("--report-to", type=int, metavar="FD", help=argparse.SUPPRESS)  # how the launcher starts processes
    parser.set_defaults(command=_run)


def _run(options: argparse.Namespace) -> int:
    if options.report_to is not None:
        return _run_for_launcher(options)
    topology = load_checked(options)
    return _run_all(topology, options) if options.role is None else _run_here(topology, options)


def _run_all(topology: Topology, options: argparse.Namespace) -> int:
    passed = [f"--{name}={value}" for name in ("set", "plugin") for value in getattr(options, name)]
    with Screen() as screen:
        result = launch(topology, [*passed, *(["--traceback"] if options.traceback else [])], screen)
    screen.summary(result.stats)
    if result.message:
        print(f"highway: {result.message}", file=sys.stderr)
    return result.code


def _run_here(topology: Topology, options: argparse.Namespace) -> int:
    last: dict[str, PipelineStats] = {}

    def progress(stats: PipelineStats) -> None:
        last[options.role] = stats
        screen.update(last)

    try:
        with Screen() as screen:
            logging.basicConfig(handlers=[screen.handler()], level=logging.INFO)
            return _run_role(topology, options, progress)
    finally:
        screen.summary(last)


def _run_for_launcher(options: argparse.Namespace) -> int:
    die_with_parent()
    logging.basicConfig(format="%(levelname)s: %(message)s", level=logging.INFO)
    with Reporter(options.report_to) as reporter:
        try:
            code = _run_role(load_checked(options), options, reporter.progress)
        except (RunError, ConfigError, StuckError) as error:
            reporter.error(explain(error).splitlines()[0])
            raise
        if code == 0:
            reporter.done()
    return code


def _run_role(topology: Topology, options: argparse.Namespace, progress: Callable[[PipelineStats], None]) -> int:
    role = topology.role(options.role)
    if not 0 <= options.replica < role.replicas:
        raise ConfigError(f"--replica {options.replica}: {role.name} has {role.replicas}, numbered from 0")
    pipeline = topology.pipeline(role.name, options.replica)
    try:
        with termination():
            run(pipeline, progress)
    except Terminated:
        return 143
    except StuckError:
        raise
    except Exception as error:
        raise RunError from error
    return 0

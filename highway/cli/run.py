"""``highway run``: run one role of a topology in this process, or several roles in processes on this machine.

For several processes, ``highway run`` is a *launcher*: it starts the processes, which also use this module. The processes show nothing to
users, so all code for output is in ``run_here``.
"""

from __future__ import annotations

import argparse
import logging
import re
import signal

from highway.cli.command import RunError, explain
from highway.cli.files import add_file_options, allow_plugins
from highway.cli.run_role import run_role
from highway.errors import ConfigError, StuckError
from highway.process import interrupt
from highway.run.launcher import DRAIN
from highway.run.report import Reporter
from highway.topology.components import Components
from highway.topology.process_spec import ProcessSpec
from highway.topology.registry import Registry
from highway.wire import tally

log = logging.getLogger("highway")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_file_options(parser)
    add_role_options(parser)


def add_role_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of a run on this machine."""
    add = parser.add_argument
    add("--role", metavar="ROLE", help="run only this role; by default, each role runs in its own process")
    add("--replica", type=int, metavar="I", help="the number of this process within the role, from 0")
    add("--host", metavar="NAME", help="run the processes that the file assigns to this host")
    add("--local", action="store_true", help="use this machine in place of all hosts of the file (the default without --role and --host)")
    add(
        "--any-order",
        action="store_true",
        help="start even if names of other hosts have no addresses yet, and retry until they have addresses",
    )
    add(
        "--rendezvous",
        metavar="folder:PATH",
        help="find the addresses of the other roles in a folder that all hosts see, instead of at the hosts of the file",
    )
    add(
        "--address",
        metavar="HOST",
        default="",
        help="the address at which other hosts reach this host, with --rendezvous; default: the address of the host name",
    )
    add_run_options(parser)
    add("--wait", type=_seconds, metavar="S", help="end a role if no sender has been connected to it for S seconds")
    add(
        "--stay",
        action="store_true",
        help="with --role: after a normal end, wait for SIGTERM, for service managers that restart each process that ends",
    )
    for descriptor in ("--report-to", "--count-in", "--spec-from"):  # options with which the launcher starts processes
        add(descriptor, type=int, metavar="FD", help=argparse.SUPPRESS)
    add("--end-with-launcher", action="store_true", help=argparse.SUPPRESS)


def add_run_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of all runs, on this machine or elsewhere."""
    add = parser.add_argument
    add(
        "--metrics",
        metavar="[ADDRESS:]PORT",
        help="serve the state of the run over HTTP; 0 selects a free port; default address: 127.0.0.1",
    )
    add_dashboard_option(parser)
    drain = f"after SIGTERM, wait at most S seconds until all items in flight have arrived; 0 stops immediately; default: {DRAIN:g}"
    add("--drain-timeout", type=_seconds, default=DRAIN, metavar="S", help=drain)
    add("--json", action="store_true", help="print the final summary as JSON, and the output of the processes on standard error")


def add_dashboard_option(parser: argparse.ArgumentParser) -> None:
    """Add the option of all commands that serve a page about their run."""
    about = "serve a page about the run for browsers; default: 127.0.0.1, and the port of --metrics or a free port"
    parser.add_argument("--dashboard", metavar="[ADDRESS:]PORT", nargs="?", const="", type=_address, help=about)


def _address(text: str) -> str:
    if text and not re.fullmatch(r"(.*:)?\d+(-\d+)?", text):
        raise argparse.ArgumentTypeError(f"{text!r} is not PORT or ADDRESS:PORT; for a free port, write --dashboard as the last option")
    return text


def _seconds(text: str) -> float:
    seconds = float(text)
    if not 0 <= seconds < float("inf"):
        raise ValueError
    return seconds


_seconds.__name__ = "number of seconds"  # argparse's messages show this name


def run(options: argparse.Namespace) -> int:
    """Run the roles that the options select, and return the exit code."""
    interrupt.end_at_once()  # Ctrl-C then also ends slow imports; no process has been started yet
    if options.wait is not None:
        from highway.wire import receiver  # imported here, because a role without links needs no sockets

        receiver.wait_for_senders = options.wait
    if options.rendezvous is not None:
        from highway.wire import rendezvous

        rendezvous.join(options.rendezvous, options.address)
    if options.report_to is not None:
        return _run_for_launcher(options)
    from highway.cli.run_here import run_here  # imported here, because a launched process has no terminal

    return run_here(options)


def _run_for_launcher(options: argparse.Namespace) -> int:
    # With --end-with-launcher, the launcher is an agent on this host. If the agent is killed, `highway launch` can restart this process on
    # another host. If this process drained instead, its receivers would expect no more items. Outside Linux, it ends at its next report.
    interrupt.die_with_parent(signal.SIGKILL if options.end_with_launcher else signal.SIGTERM)
    tally.share(options.count_in)
    logging.basicConfig(format="%(levelname)s: %(message)s", level=logging.INFO)
    with Reporter(options.report_to) as reporter:
        try:
            with open(options.spec_from, encoding="utf-8") as handed:
                spec = ProcessSpec.from_json(handed.read())
            allow_plugins(options.plugin)
            components = Components(options.plugin)
            components.import_plugins()
            code = run_role(spec, Registry(components), options.drain_timeout, reporter)
        except (RunError, ConfigError, StuckError) as error:
            reporter.error(explain(error).splitlines()[0])
            raise
    return code

"""``highway run``: one role of a topology here, or all of them on this machine."""

from __future__ import annotations

import argparse
import contextlib
import logging
import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Protocol

from highway.cli.files import add_file_options, load_checked
from highway.cli.messages import RunError, explain
from highway.cli.screen import Screen
from highway.cli.summary import losses, to_json
from highway.engine.stats import PipelineStats
from highway.errors import ConfigError, StuckError
from highway.observe.state import Phase, ReplicaState
from highway.parameters.location import did_you_mean
from highway.process import interrupt
from highway.process.cores import ONE_THREAD
from highway.run import role
from highway.run.control import ControlServer
from highway.run.preflight import preflight
from highway.run.role import Reporter, Terminated, die_with_parent
from highway.run.supervise import DRAIN, Result, Watcher, launch
from highway.topology import Topology
from highway.topology.address import parse_metrics
from highway.topology.plan import Process
from highway.wire import receiver, tally

log = logging.getLogger("highway")

INTERRUPTED = interrupt.CODE


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add its options to a parser."""
    add_file_options(parser)
    parser.add_argument("--role", metavar="ROLE", help="run only this role; without it, every role in a process of its own")
    parser.add_argument("--replica", type=int, metavar="I", help="which of the role's processes this is, from 0")
    parser.add_argument("--host", metavar="NAME", help="run what the file places on this host")
    parser.add_argument("--local", action="store_true", help="let all hosts be this machine (without --role and --host they are)")
    parser.add_argument(
        "--metrics", metavar="[ADDRESS:]PORT", help="answer over HTTP for the state of what runs; 0 is any free port; address: 127.0.0.1"
    )
    parser.add_argument(
        "--drain-timeout",
        type=_seconds,
        default=DRAIN,
        metavar="S",
        help=f"seconds that what is in flight may take to arrive after SIGTERM, or 0 to stop at once; default: {DRAIN:g}",
    )
    parser.add_argument(
        "--wait", type=_seconds, metavar="S", help="end a role to which for S seconds nobody is connected that could send it something"
    )
    parser.add_argument("--json", action="store_true", help="print the closing summary as JSON, and what processes print on standard error")
    parser.add_argument("--report-to", type=int, metavar="FD", help=argparse.SUPPRESS)  # how the launcher starts processes
    parser.add_argument("--count-in", type=int, metavar="FD", help=argparse.SUPPRESS)


def _seconds(text: str) -> float:
    seconds = float(text)
    if not 0 <= seconds < float("inf"):
        raise ValueError
    return seconds


_seconds.__name__ = "number of seconds"  # as argparse calls it in messages


def run(options: argparse.Namespace) -> int:
    """Run what the options name, and return the exit code."""
    interrupt.leave_quietly()  # nothing runs yet that would have to end in order
    receiver.wait_for_senders = options.wait
    if options.report_to is not None:
        return _run_for_launcher(options)
    topology = _load(options)
    processes = _chosen(topology, options)
    preflight(topology, processes)
    if options.role is not None and len(processes) == 1:
        return _run_here(topology, processes[0], options)
    return _run_processes(topology, processes, options)


def _load(options: argparse.Namespace) -> Topology:
    topology = load_checked(options, look_only=False)
    return topology.on_this_machine() if options.local or (options.role is None and options.host is None) else topology


def _chosen(topology: Topology, options: argparse.Namespace) -> list[Process]:
    """Return the processes that the options name."""
    if options.role is None:
        if options.replica is not None:
            raise ConfigError("--replica without --role; which role's?")
        return topology.processes(options.host)
    if options.host is not None and options.host not in topology.plan.hosts:
        raise ConfigError(f"{topology.path}: no host {options.host!r}{did_you_mean(options.host, topology.plan.hosts)}")
    role = topology.role(options.role)
    processes = [Process(role.name, replica, role.host(replica)) for replica in range(role.replicas)]
    if not role.stages:
        raise ConfigError(f"{topology.path}: {role.name} is external and has no stages; it cannot be run from here")
    if options.replica is not None:
        if not 0 <= options.replica < role.replicas:
            numbers = f"{role.replicas} processes, numbered 0 to {role.replicas - 1}" if role.replicas > 1 else "one process, number 0"
            raise ConfigError(f"--replica {options.replica}: {role.name} has {numbers}")
        return [processes[options.replica]]
    if options.host is None:
        return processes[:1]
    here = [process for process in processes if process.host == options.host]
    if not here:
        raise ConfigError(f"{topology.path} does not place {role.name} on {options.host}; to have it join from there, leave out --host")
    return here


def _run_processes(topology: Topology, processes: Sequence[Process], options: argparse.Namespace) -> int:
    passed = [f"--{name}={value}" for name in ("set", "plugin") for value in getattr(options, name)]
    passed += [flag for flag, given in (("--traceback", options.traceback), ("--local", topology.plan.local)) if given]
    passed.append(f"--drain-timeout={options.drain_timeout}")
    passed += [] if options.wait is None else [f"--wait={options.wait}"]
    screen = Screen(keep_output=options.json)
    interrupt.raise_again()
    try:
        with _endpoint(topology, processes, options, screen) as watchers, screen:
            result = launch(topology, processes, [*options.files, *passed], screen, watchers, options.drain_timeout)
        _conclude(screen, result, options.json)
        for sentence in filter(None, [*losses(result), result.message]):
            screen.say(f"highway: {sentence}")
        return result.code
    finally:
        screen.finish()


def _conclude(screen: Screen, result: Result, as_json: bool) -> None:
    """Print what a run has done."""
    if as_json:
        screen.print(to_json(result))
    else:
        screen.summary(result.states, result.links)


def _run_here(topology: Topology, process: Process, options: argparse.Namespace) -> int:
    role = topology.roles[process.role]
    environment = {**dict.fromkeys(ONE_THREAD, "1"), **os.environ, **role.env}
    if environment != os.environ:  # libraries read theirs when they are imported: begin again
        with interrupt.Withheld():
            os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:]], environment)
    state = ReplicaState(process.role, process.replica, process.host, "starting", single=role.replicas == 1)
    screen = Screen(keep_output=options.json)
    here = _Here(state, [screen])
    code, message = INTERRUPTED, "interrupted"
    interrupt.raise_again()
    try:
        with _endpoint(topology, [process], options, screen) as watchers, screen, screen.output():
            here.watchers += watchers
            logging.basicConfig(handlers=[screen.handler()], format="%(message)s", level=logging.INFO)
            code = _run_role(topology, process, options.drain_timeout, here)
            message = "terminated" if code else ""
            return code
    except RunError as error:
        code, message = 1, explain(error)
        raise
    finally:
        if here.state.stats:  # it began
            _conclude(screen, Result(code, message, [here.state]), options.json)
        screen.finish()


@contextlib.contextmanager
def _endpoint(topology: Topology, processes: Sequence[Process], options: argparse.Namespace, screen: Screen) -> Iterator[Sequence[Watcher]]:
    """Open the endpoint that the option or the file asks for, if one does."""
    spec = parse_metrics(options.metrics, topology.plan.metrics) if options.metrics else topology.plan.metrics
    if spec is None:
        yield []
        return
    from highway.observe.endpoint import Endpoint  # here, since only runs with metrics need an HTTP server

    with Endpoint(topology, processes, spec) as endpoint:
        screen.say(f"metrics at {endpoint.url}/metrics")
        yield [endpoint]


def _run_for_launcher(options: argparse.Namespace) -> int:
    die_with_parent()
    tally.share(options.count_in)
    logging.basicConfig(format="%(levelname)s: %(message)s", level=logging.INFO)
    with Reporter(options.report_to) as reporter:
        try:
            topology = _load(options)
            code = _run_role(topology, _chosen(topology, options)[0], options.drain_timeout, reporter)
        except (RunError, ConfigError, StuckError) as error:
            reporter.error(explain(error).splitlines()[0])
            raise
        if code == 0:
            reporter.done()
    return code


class _Told(Protocol):
    """Who is told how the role of this process goes."""

    def progress(self, stats: PipelineStats) -> None: ...
    def draining(self) -> None: ...


class _Here:
    """Tells watchers how the role of this process goes.

    Args:
        state: How it is now.
        watchers: Whom to tell.
    """

    def __init__(self, state: ReplicaState, watchers: list[Watcher]) -> None:
        self.state, self.watchers = state, watchers

    def progress(self, stats: PipelineStats) -> None:
        phase: Phase = "running" if self.state.phase == "starting" else self.state.phase
        self._become(replace(self.state, phase=phase, stats=stats, counts=tally.counts()))

    def draining(self) -> None:
        self._become(replace(self.state, phase="draining"))

    def _become(self, state: ReplicaState) -> None:
        self.state = state
        for watcher in self.watchers:
            watcher.update([state])


def _run_role(topology: Topology, process: Process, drain_timeout: float, told: _Told) -> int:
    pipeline = topology.pipeline(process.role, process.replica)
    with ControlServer(topology.plan, topology.roles[process.role], process.replica, told.draining) as control:
        if control.number not in (None, process.replica):
            log.info(
                "another %s runs here as number %d; `highway drain` calls this one number %d", process.role, process.replica, control.number
            )
        code, complete = 0, True
        try:
            role.run(pipeline, told.progress, drain_timeout=drain_timeout, control=control)
        except Terminated as terminated:
            code, complete = 143, terminated.drained
        except StuckError:
            raise
        except Exception as error:
            raise RunError from error
        control.answer(pipeline.stats().items, complete)
    return code

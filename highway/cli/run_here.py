"""``highway run`` for users: run the selected roles, with output on the terminal."""

from __future__ import annotations

import argparse
import contextlib
import gc
import logging
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from highway.cli.command import INTERRUPTED, exit_code, explain
from highway.cli.files import load_checked
from highway.cli.run_role import run_role
from highway.cli.screen import LogHandler, Screen
from highway.cli.summary import document_of_errors, losses, to_json
from highway.engine.stats import PipelineStats
from highway.errors import ConfigError
from highway.observe.accounts import Departure
from highway.observe.snapshot import find_ends
from highway.observe.state import Phase, ReplicaState
from highway.process import interrupt
from highway.process.cores import ONE_THREAD
from highway.run.engines import Show
from highway.run.launcher import Launcher, file_arguments
from highway.run.launchers.local import LocalLauncher
from highway.run.preflight import preflight
from highway.run.role import stay
from highway.run.supervise import Result, Watcher, launch
from highway.topology import Topology
from highway.topology.plan import Process
from highway.topology.spec import MetricsSpec, parse_metrics
from highway.topology.wiring import Wiring
from highway.wire import tally

if TYPE_CHECKING:
    from highway.observe.endpoint import Endpoint

Connect = Callable[[Wiring, argparse.Namespace, Show], Launcher]


def run_here(options: argparse.Namespace) -> int:
    """Run the roles that the options select, and return the exit code."""
    with document_of_errors(options.json):
        wiring = _prepare(options)
        if options.role is None or len(wiring.processes) > 1:
            if options.stay:
                raise ConfigError("--stay needs a --role with one process on this machine, which then waits")
            passed = [f"--wait={options.wait}"] if options.wait is not None else []
            passed += ["--local"] if wiring.topology.plan.local else []
            passed += [f"--rendezvous={options.rendezvous}", f"--address={options.address}"] if options.rendezvous is not None else []
            return run_processes(wiring, options, lambda _, __, show: LocalLauncher(show), passed)
    return _run_role(wiring, options)


def _prepare(options: argparse.Namespace) -> Wiring:
    """Return the processes to run, after a check that their ports are free."""
    topology = load_checked(options, look_only=False)
    if options.local or (options.role is None and options.host is None):
        topology = topology.on_this_machine()
    if options.rendezvous is not None:
        topology = topology.at_rendezvous()
    wiring = Wiring(topology, _chosen(topology, options))
    preflight(wiring.ends, options.any_order)
    return wiring


def _chosen(topology: Topology, options: argparse.Namespace) -> Sequence[Process]:
    """Return the processes that the options select."""
    if options.role is None:
        if options.replica is not None:
            raise ConfigError("--replica needs --role, because each role has its own numbers")
        return topology.processes(options.host)
    topology.check_host(options.host)
    role = topology.role(options.role)
    if not role.stages:
        raise ConfigError(f"{topology.path}: the role {role.name} is external and has no stages, so highway cannot run it")
    if options.replica is not None:
        if not 0 <= options.replica < role.most:
            numbers = f"{role.most} processes, numbered 0 to {role.most - 1}" if role.most > 1 else "one process, number 0"
            raise ConfigError(f"--replica {options.replica}: the role {role.name} has {numbers}")
        return [role.processes[options.replica]]
    if options.host is None:
        return role.processes[:1]
    here = [process for process in role.processes[: role.replicas] if process.host == options.host]
    if not here:
        raise ConfigError(
            f"{topology.path} does not assign {role.name} to the host {options.host}; to add a process on this machine, remove --host"
        )
    return here


def run_processes(wiring: Wiring, options: argparse.Namespace, connect: Connect, passed: Sequence[str] = ()) -> int:
    """Run processes until they have ended, show their state on the terminal, and return the exit code.

    Args:
        wiring: The processes.
        options: The options of ``highway run`` and ``highway launch``.
        connect: Function that returns a launcher, which starts the processes. The arguments are the processes, the options, and a function
            that shows printed lines.
        passed: Further arguments of ``highway run`` for each process.
    """
    given = [*file_arguments(options), *(["--traceback"] if options.traceback else [])]
    arguments = [*options.files, *given, f"--drain-timeout={options.drain_timeout}", *passed]
    screen = Screen(keep_output=options.json)
    gc.freeze()  # imported objects stay in memory, so the garbage collector need not scan them
    interrupt.raise_again()
    try:
        with _endpoint(wiring, options, screen) as watchers, screen:
            launcher = connect(wiring, options, screen.line)
            also = [launcher] if isinstance(launcher, Watcher) else []
            result = launch(wiring, launcher, arguments, screen, [*watchers, *also], options.drain_timeout)
        _conclude(screen, result, wiring, options.json)
        for sentence in filter(None, [*losses(result), result.message]):
            screen.say(f"highway: {sentence}")
        return result.code
    finally:
        screen.finish()


def _conclude(screen: Screen, result: Result, wiring: Wiring, as_json: bool) -> None:
    """Print the results of a run."""
    ends = find_ends(wiring)
    if as_json:
        screen.print(to_json(result, ends))
    else:
        screen.summary(result.states, result.links, ends)


def _run_role(wiring: Wiring, options: argparse.Namespace) -> int:
    (process,), topology = wiring.processes, wiring.topology
    spec = topology.process_spec(process.role, process.replica)
    environment = {**dict.fromkeys(ONE_THREAD, "1"), **os.environ, **spec.env}
    if environment != os.environ:  # libraries read the environment when they are imported, so start the program again
        with interrupt.Withheld():
            os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:]], environment)
    state = ReplicaState(process.role, process.replica, process.host, "starting", single=spec.key.replicas == 1)
    screen = Screen(keep_output=options.json)
    here = _Here(state, [screen])
    code, message = INTERRUPTED, "interrupted"

    def conclude() -> None:
        stats, how = here.state.stats, "was stopped" if code != 1 else "failed"
        departure = Departure(here.state.name, how, code == 1, tally.counts(), stats, unfinished=not here.complete)
        result = Result(code, message, [here.state], departures=[departure])
        _conclude(screen, result, wiring, options.json)
        for sentence in losses(result):
            screen.say(f"highway: {sentence}")

    interrupt.raise_again()
    try:
        with _endpoint(wiring, options, screen) as watchers, screen:
            here.watchers += watchers
            logging.basicConfig(handlers=[LogHandler(screen.console)], format="%(message)s", level=logging.INFO)
            code = run_role(spec, topology.registry, options.drain_timeout, here)
            message = "terminated" if code else ""
            if options.stay and code == 0:
                here.ended()
                stay(conclude)
            return code
    except (Exception, KeyboardInterrupt) as error:
        if not isinstance(error, KeyboardInterrupt):
            code, message = exit_code(error), explain(error)
        raise
    finally:
        if (here.state.stats or options.json) and here.state.phase != "ended":  # the role has begun, but its end was not shown
            conclude()
        screen.finish()


@contextlib.contextmanager
def _endpoint(wiring: Wiring, options: argparse.Namespace, screen: Screen) -> Iterator[Sequence[Watcher]]:
    """Open the endpoints that the options or the file request: for metrics, for the page, or one endpoint for both."""
    spec = parse_metrics(options.metrics, wiring.topology.plan.metrics) if options.metrics else wiring.topology.plan.metrics
    if spec is None and options.dashboard is None:
        yield []
        return
    from highway.observe.endpoint import Endpoint  # imported here, because only runs with metrics need an HTTP server

    with contextlib.ExitStack() as opened:
        found: list[Endpoint] = []
        if options.dashboard is not None:
            found.append(opened.enter_context(served(wiring, options.dashboard, None if options.dashboard else spec, screen)))
            screen.say(f"dashboard at {found[0].page}")
        if spec is not None:
            if options.dashboard != "":
                found.append(opened.enter_context(Endpoint(wiring, spec)))
            screen.say(f"metrics at {found[-1].url}/metrics")
        yield found


def served(wiring: Wiring, address: str, metrics: MetricsSpec | None, screen: Screen) -> Endpoint:
    """Return the endpoint that serves the page of a run.

    If ``metrics`` is given, the endpoint uses this address, and also serves metrics.
    """
    from highway.cli.check import sentences  # imported here, because only this endpoint needs the module
    from highway.observe.dashboard.local import OPTION, parse_address, site_of
    from highway.observe.endpoint import Endpoint

    site = site_of(wiring.topology, check=list(sentences(wiring.topology)), note="")
    try:
        endpoint = Endpoint(wiring, metrics, site) if metrics else Endpoint(wiring, parse_address(address), site, OPTION)
    except ConfigError:
        site.close()
        raise
    screen.listeners.append(site.line)
    return endpoint


class _Here:
    """Passes the state of this process's role to watchers."""

    def __init__(self, state: ReplicaState, watchers: list[Watcher]) -> None:
        self.state, self.watchers, self.complete = state, watchers, False

    def progress(self, stats: PipelineStats) -> None:
        phase: Phase = "running" if self.state.phase == "starting" else self.state.phase
        self._become(replace(self.state, phase=phase, stats=stats, counts=tally.counts()))

    def draining(self) -> None:
        self._become(replace(self.state, phase="draining"))

    def done(self) -> None:
        self.complete = True

    def ended(self) -> None:
        self._become(replace(self.state, phase="ended"))

    def _become(self, state: ReplicaState) -> None:
        self.state = state
        for watcher in self.watchers:
            watcher.update([state])

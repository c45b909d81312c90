"""``highway bench``: measure the rate of each stage alone, and print the bottleneck of each role and how many workers balance it.

A *role* is a pipeline of a topology file. A *replica* is one of its processes.

If a role receives from other roles in the file, ``bench`` first runs the stages of these roles. You do not have to start these roles. The
measured role gets the items of its first sender that yields items. Links are measured only with ``--json``.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Collection
from dataclasses import dataclass, replace

from rich.console import Console

from highway.cli import arguments, command
from highway.cli.files import add_file_options, load_checked
from highway.cli.measure.recorded import Roles, calibrate
from highway.cli.output import own_stdout
from highway.cli.tables import table
from highway.columns import Cell, number
from highway.engine.running import worker_count
from highway.engine.stats import BEYOND_CORES, FREE, one_thread
from highway.modules import ZMQSink, ZMQSource
from highway.observe.calibration import StageCost
from highway.process.cores import available_cores, machine_load
from highway.topology import Topology
from highway.topology.plan import Role


@dataclass(frozen=True)
class Balance:
    """How many workers balance the stages of a role.

    Args:
        rate: Items per second at the end of the role, with ``workers``.
        workers: Number of workers of each stage, so that no stage waits for other stages.
        limit: What limits the rate, in words.
    """

    rate: float
    workers: list[int]
    limit: str


def balance(costs: list[StageCost], cores: int) -> Balance:
    """Return how many workers balance the stages. The number of cores limits the rate, and so does each stage with only one thread."""
    total = sum(cost.cpu for cost in costs)
    if not total:
        return Balance(0.0, [cost.workers for cost in costs], "nothing was measured")
    rate, limit = cores / total, f"the {cores} cores" if cores > 1 else "the one core"
    for cost in costs:
        if cost.shape != "map" and cost.seconds and 1 / cost.seconds < rate:
            rate, limit = 1 / cost.seconds, f"{cost.name}: {one_thread(cost.shape)}"
    return Balance(rate, [max(1, math.ceil(rate * cost.seconds - 0.05)) if cost.shape == "map" else 1 for cost in costs], limit)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_file_options(parser)
    parser.add_argument("--role", metavar="ROLE", help="the role to measure; by default, all roles are measured one after another")
    add_measure_options(parser)
    parser.add_argument("--json", action="store_true", help="print JSON for `highway plan --from`; also measure the GIL and the links")


def add_measure_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of commands that measure roles to a parser."""
    parser.add_argument("--seconds", type=arguments.seconds, default=5.0, metavar="S", help="maximum seconds for each stage; default: 5")
    items = "maximum number of items from the source; default: 256"
    parser.add_argument("--items", type=arguments.positive, default=256, metavar="N", help=items)


def run(options: argparse.Namespace) -> int:
    """Measure the stages of each role and print tables. Each stage runs alone, with one worker, on the items of the previous stage."""
    topology = load_checked(options)
    if options.role:
        topology.role(options.role)
    roles = Roles(topology, options.items, options.seconds)
    if options.json:
        print(calibrate(roles, [options.role] if options.role else roles.known()).to_json(), file=own_stdout())
        return command.DONE
    console = Console(highlight=False, width=None if sys.stdout.isatty() else 120)
    cores = available_cores()
    if note := crowded(machine_load(cores), cores):
        console.print(note, soft_wrap=True)
    chosen = [options.role] if options.role else roles.in_order()
    rates = {}
    for role in chosen:
        if (urls := roles.outside(role)) and not options.role:
            why = f"no role in the file sends to {' and '.join(urls)}; start the sender, and pass --role {role}"
            console.print(f"{role}: not measured, because {why}", soft_wrap=True)
            continue
        console.print(f"{role}: each stage alone, with one worker, for at most {options.seconds:g} s", soft_wrap=True)
        stages, measured = roles.measure(role)
        costs = [replace(own, workers=worker_count(*stage)) for stage, own in zip(stages, measured.stages, strict=True)]
        links = [stage.label for stage, _ in stages if isinstance(stage.op, (ZMQSink, ZMQSource))]
        show(console, costs, cores, links, with_advice=not note)
        console.print()
        rates[role] = role_rate(costs, topology.roles[role], cores)
    _compare(console, topology, {role: rate for role, rate in rates.items() if rate})
    return command.DONE


def crowded(load: float, cores: int) -> str:
    """Return a warning if other programs use all cores, because a wait for a core then looks like a wait for a disk."""
    if load <= cores - FREE:
        return ""
    used = f"all {cores} cores" if cores > 1 else "the only core"
    return f"Other programs use {used}, so the rates are too low. Measure on a quiet machine to see how many workers balance the stages."


def role_rate(costs: list[StageCost], role: Role, cores: int) -> float:
    """Return the items per second of all replicas of a role, on machines like this machine; 0 if nothing was measured."""
    machines = len(set(role.hosts)) or 1
    return machines * min((cost.rate(cores, role.replicas / machines) for cost in costs if cost.seconds), default=0.0)


def _compare(console: Console, topology: Topology, rates: dict[str, float]) -> None:
    if len(rates) > 1:
        slowest = min(rates, key=rates.__getitem__)
        replicas = topology.roles[slowest].replicas
        subject = f"its {replicas} replicas yield" if replicas > 1 else "it yields"
        console.print(f"{slowest} is the slowest role: {subject} {rates[slowest]:,.1f} items/s at most.", soft_wrap=True)


def show(console: Console, costs: list[StageCost], cores: int, links: Collection[str] = (), with_advice: bool = True) -> None:
    """Print the possible rate of each stage, the bottleneck, and how many workers balance the stages.

    ``links`` are the stages that send or receive. Their rate depends on both ends of the link.
    """
    balanced = balance(costs, cores)
    rows = [list(map(Cell, ("stage", "shape", "items/s alone", "workers", "items/s with them", "balanced")))]
    for cost, workers in zip(costs, balanced.workers, strict=True):
        alone, together = (1 / cost.seconds, cost.rate(cores)) if cost.seconds else (None, None)
        first = Cell("link") if cost.name in links and not cost.seconds else number(alone, 1)
        rows.append([Cell(cost.name), Cell(cost.shape), first, number(cost.workers), number(together, 1)])
        rows[-1].append(number(workers) if with_advice else Cell("-"))
    console.print(table(rows, console.width))
    for cost in costs:
        if not cost.seconds and cost.name not in links:
            console.print(f"{cost.name} was not measured: no item passed it in time.", soft_wrap=True)
    measured = [cost for cost in costs if cost.seconds]
    if not measured:
        console.print("Nothing was measured, because no item arrived in time; check that the sender is running.", soft_wrap=True)
        return
    slowest = min(measured, key=lambda cost: cost.rate(cores))
    console.print(f"{slowest.name} is the bottleneck.", soft_wrap=True)
    if not with_advice:
        return
    console.print(
        f"With these numbers of workers, {balanced.rate:,.1f} items/s are possible at the end; the limit is {balanced.limit}.",
        soft_wrap=True,
    )
    changes = [
        f"num_workers={workers} for {cost.name}"
        for cost, workers in zip(costs, balanced.workers, strict=True)
        if cost.shape == "map" and workers != cost.workers
    ]
    console.print(f"Set {', '.join(changes)}." if changes else "The numbers of workers are already balanced.", soft_wrap=True)
    if not changes and slowest.shape == "map" and 1 < cores <= slowest.workers:
        console.print(f"{slowest.name}: {BEYOND_CORES}.", soft_wrap=True)

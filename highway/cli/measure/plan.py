"""``highway plan``: print the threads, processes, hosts, memory and network that a rate requires, and the first shortage.

A *role* is a pipeline of the topology file.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.console import Console

from highway.cli import arguments, command
from highway.cli.files import add_file_options, load_checked
from highway.cli.measure.bench import add_measure_options
from highway.cli.measure.recorded import Roles, as_in_file, calibrate
from highway.cli.output import own_stdout
from highway.cli.tables import table
from highway.columns import Cell, number
from highway.observe import calibration
from highway.observe.calibration import Calibration
from highway.observe.sizing import CORES, DISK, FULL, GPUS, IN, MEMORY, OUT, HostSize, RoleSize, Used, lookups, possible, size, together
from highway.process.cores import available_cores
from highway.process.memory import available_memory
from highway.topology import Topology
from highway.topology.graph import graph
from highway.topology.plan import names

NETWORK = Path("/sys/class/net")
MANY_NAMES = 10_000  # names per second that are too many for a rendezvous folder, in which each name is a file on a shared disk


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_file_options(parser)
    add = parser.add_argument
    rate = (
        "required samples per second of each role that sends to no other role. If a link publishes to the role, N is the rate of each "
        "process; otherwise, of all processes together"
    )
    add("--images-per-second", type=arguments.rate, required=True, metavar="N", help=rate)
    add(
        "--from",
        dest="figures",
        metavar="FILE.json",
        help="the output of `highway bench FILE --json`; by default, this command measures all roles",
    )
    add("--cores", type=arguments.positive, metavar="N", help="number of cores of each host; default: the cores of this machine")
    add(
        "--memory-gb",
        type=arguments.rate,
        metavar="GB",
        help="memory of each host for processes; default: the available memory of this machine",
    )
    add(
        "--gbit",
        type=arguments.rate,
        metavar="G",
        help="Gbit/s of a network interface in each direction; default: the fastest interface of this machine",
    )
    add("--nics", type=arguments.positive, default=1, metavar="N", help="number of network interfaces of each host; default: %(default)s")
    add(
        "--disk-mb",
        type=arguments.rate,
        metavar="MB",
        help="megabytes per second that each host can read from files; default: no limit",
    )
    add("--gpus", type=arguments.positive, metavar="N", help="number of GPUs of each host, for roles that need GPUs; default: no limit")
    add_measure_options(parser)
    add("--json", action="store_true", help="print the result as JSON")


def run(options: argparse.Namespace) -> int:
    """Measure the roles or read earlier measurements, and print what the rate requires."""
    topology = load_checked(options)
    memory_mb = 1e3 * options.memory_gb if options.memory_gb else available_memory() / 1e6
    host = HostSize(
        options.cores or available_cores(), memory_mb, options.gbit or fastest_here(), options.nics, options.disk_mb, options.gpus
    )
    roles = Roles(topology, options.items, options.seconds)
    measured = calibration.read(options.figures) if options.figures else calibrate(roles, roles.known())
    given = as_in_file(measured, topology, host.cores)
    sizes = size(topology.plan, given, host, options.images_per_second)
    now = possible(topology.plan, given, host)
    notes, asked = list(_notes(topology, given, host, sizes)), lookups(topology.plan, sizes)
    if options.json:
        print(
            json.dumps(_plain(options.images_per_second, host, sizes, now, notes) | {"rendezvous": asked._asdict()}, indent=2),
            file=own_stdout(),
        )
        return command.DONE
    console = Console(highlight=False, width=None if sys.stdout.isatty() else 140)
    _show(console, host, sizes)
    for sentence in [*_short(options.images_per_second, host, sizes), *([_as_it_is(now, host)] if now else []), *notes]:
        console.print(sentence, soft_wrap=True)
    if asked.names > MANY_NAMES:
        what = f"{asked.questions:,.0f} queries per second for {asked.names:,.0f} names"
        console.print(
            f"With `highway launch`, the rendezvous must answer {what}. A rendezvous folder is too slow for this; connect fewer processes "
            "to each other.",
            soft_wrap=True,
        )
    return command.DONE


def fastest_here(root: Path = NETWORK) -> float | None:
    """Return the Gbit/s of the fastest network interface of this machine; ``None`` if no interface reports its speed."""
    found = []
    for path in root.glob("*/speed"):
        try:
            found.append(int(path.read_text()) / 1e3)  # Mbit/s; the loopback interface and interfaces that are down have no speed
        except (OSError, ValueError):
            continue
    return max([speed for speed in found if speed > 0], default=None)


def _show(console: Console, host: HostSize, sizes: Sequence[RoleSize]) -> None:
    """Print what each role requires."""
    memory = f", {host.memory_mb / 1e3:,.1f} GB" if host.memory_mb else ""
    network = f", {f'{host.nics} x ' if host.nics > 1 else ''}{host.gbit:g} Gbit/s" if host.gbit else ", a network of unknown speed"
    console.print(
        f"On hosts with {_count(host.cores, 'core')}{memory}{network}; each role has its own hosts, "
        f"and uses at most {FULL:.0%} of their resources:"
    )
    heading = ("role", "samples/s", "hosts", "processes", "threads each", "cores", "GB", "Gbit/s in", "out", "MB/s read", "fullest", "")
    rows = [list(map(Cell, heading))]
    for each in sizes:
        nics = {what: each.host[what] / host.nics for what in (IN, OUT)}
        rows.append(
            [
                Cell(each.role),
                number(each.samples, 1),
                number(each.hosts),
                number(each.replicas),
                number(sum(each.threads.values())),
                number(each.host[CORES], 2),
                number(each.host[MEMORY] / 1e3, 2),
                number(nics[IN], 2),
                number(nics[OUT], 2),
                number(each.host[DISK], 1),
                Cell(each.fullest.what),
                Cell(f"{each.fullest.part:.0%}", style="red" if each.fullest.part > 1 else ""),
            ]
        )
    console.print(table(rows, console.width, left=(0, 10)))
    console.print("Cores, GB and MB/s are the sum on one host; Gbit/s are for each network interface.")
    for each in sizes:
        console.print(
            f"{each.role}: {', '.join(f'{count} x {name}' for name, count in each.threads.items())} in each process", soft_wrap=True
        )


def _short(rate: float, host: HostSize, sizes: Sequence[RoleSize]) -> Iterator[str]:
    """Yield sentences: each shortage, or else the first shortage at a higher rate, and whether all roles fit on one host."""
    if not sizes:
        yield "Nothing was measured."
        return
    over: dict[str, dict[str, float]] = {}
    for each in sizes:
        for used in each.used:
            if used.part > 1:
                over.setdefault(used.what, {})[each.role] = used.part
    for what, roles in over.items():
        way_out = next((way for begin, way in WAYS_OUT.items() if what.startswith(begin)), IN_PARTS)
        yield f"Shortage for {' and '.join(roles)}: {what}: {max(roles.values()):.0%} of the available amount is needed. {way_out}"
    if not over:
        first = max(sizes, key=lambda each: each.fullest.part)
        yield (
            f"If the rate grows, the first shortage is at {rate / first.fullest.part:,.0f} samples/s: {first.fullest.what} of {first.role}."
        )
    if (whole := max(together(sizes, host), key=lambda each: each.part)).part <= FULL:
        yield (
            f"All roles also fit on one such host, which then uses {whole.part:.0%} of its {whole.what}. This needs no network between "
            "hosts."
        )


IN_PARTS = (
    "More processes do not help: each process of the role gets all items, or the links of the role work only on one host. Set  kind: push  "
    "and  transport: tcp  for the links."
)
WAYS_OUT = {
    MEMORY: "Lower budget_mb of the links, or connect fewer processes to each other: each connection can use budget_mb at each end.",
    "autoscale": "Raise max in autoscale of the role.",
    GPUS: "No such host has as many GPUs as one process needs.",
}


def _as_it_is(now: Used, host: HostSize) -> str:
    cores = _count(host.cores, "core")
    return f"With the replicas and workers in the file and {cores} per host: at most {now.part:,.0f} samples/s, limited by {now.what}."


def _notes(topology: Topology, given: Calibration, host: HostSize, sizes: Sequence[RoleSize]) -> Iterator[str]:
    """Yield notes about costs that the estimate ignores, and about new processes that must read their own part of the data."""
    for name in topology.roles:
        if name not in given.roles:
            yield f"The plan ignores {name}, which was not measured, because no role in the file sends its input."
    for name, cost in given.roles.items():
        if missing := [stage.name for stage in cost.stages if not stage.seconds and stage.shape != "source"]:
            yield (
                f"{name}: the plan ignores {' and '.join(missing)}, because no item passed during the measurement; measure longer, with "
                "--seconds."
            )
    for edge in graph(topology).edges:
        if not edge.name and {edge.source, edge.target} <= set(topology.roles):
            yield (
                f"{edge.source} sends to {edge.target} at a URL, and the plan ignores this traffic; define a link in the file instead of "
                "the URL."
            )
    if host.gbit is None:
        yield "The speed of the network is unknown, so the plan ignores the network; pass --gbit."
    for each in sizes:
        role = topology.roles[each.role]
        if each.replicas > role.replicas and not any(each.role in names(spec, "to") for spec in topology.plan.links.values()):
            yield (
                f"{each.role} needs {each.replicas} processes. Each process must read its own part of the data: select the part by "
                f"${{replica}}."
            )


def _plain(rate: float, host: HostSize, sizes: Sequence[RoleSize], now: Used | None, notes: Sequence[str]) -> dict[str, Any]:
    """Return the results as plain values; docs/howto/plan.md describes them."""
    roles = {
        each.role: {**asdict(each), "used": {used.what: used.part for used in each.used}, "fullest": each.fullest.what} for each in sizes
    }
    first = max(sizes, key=lambda each: each.fullest.part, default=None)
    return {
        "samples_per_second": rate,
        "host": asdict(host),
        "roles": roles,
        "first_short": {"role": first.role, "what": first.fullest.what, "used": first.fullest.part} if first else None,
        "as_it_is": {"samples_per_second": now.part, "first_short": now.what} if now else None,
        "notes": list(notes),
    }


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"

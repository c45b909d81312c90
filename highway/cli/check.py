"""``highway check``: print a description of a topology file, or the errors of the file."""

from __future__ import annotations

import argparse
from collections.abc import Iterator

from highway.cli.files import add_file_options, load_checked
from highway.run.launchers.table import ENGINES
from highway.safe_text import for_terminal
from highway.topology import Topology
from highway.topology.checking import labels, lonely_urls, not_imported, other_ranks
from highway.topology.limits import loss, memory
from highway.topology.plan import names


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_file_options(parser)
    parser.add_argument(
        "--on",
        choices=ENGINES,
        metavar="ENGINE",
        help=f"also check whether the topology can be launched on this engine: {', '.join(ENGINES)}",
    )


def run(options: argparse.Namespace) -> int:
    """Check a topology file, print a description of the file, and return the exit code."""
    topology = load_checked(options)
    if options.on:
        ENGINES[options.on].check(topology)
    for sentence in sentences(topology, options.on):
        print(for_terminal(sentence))
    return 0


def sentences(topology: Topology, on: str | None = None) -> Iterator[str]:
    """Yield the lines that describe a valid topology. If the name of an engine is given as ``on``, it was also checked for this engine."""
    plan = topology.plan
    for role in plan.roles.values():
        where = f" on {', '.join(role.hosts)}" if role.hosts else ""
        count = f" x {role.replicas}" if role.replicas > 1 else ""
        stages = " -> ".join(labels(topology, role.name)) or "(no stages in this file)"
        yield f"role {role.name}{count}{where}{' (external)' if role.external else ''}: {stages}"
        if needs := other_ranks(topology, role.name):
            yield f"  {needs}"
    for link, spec in plan.links.items():
        ends = f"{' and '.join(names(spec, 'from'))} to {' and '.join(names(spec, 'to'))}"
        yield f"link {link}: {ends}, {spec.kind} over {spec.transport}, {spec.delivery}"
        yield from (f"  {sentence}" for sentence in loss(plan, link))
    for host in plan.hosts:
        if needed := memory(plan, host):
            parts = ", ".join(f"{link} {megabytes:,g}" for link, megabytes in needed.items())
            yield f"host {host}: the buffers of the links can use {sum(needed.values()):,g} MB ({parts})"
    yield from (passed_over := not_imported(topology))
    warnings = list(lonely_urls(topology))
    yield from (f"warning: {sentence}" for sentence in warnings)
    where = f", also for {on}" if on else ""
    yield (
        f"{topology.path}: no errors{' in the checked parts' if passed_over else ''}{where}{'; see the warnings above' if warnings else ''}"
    )

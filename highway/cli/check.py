"""``highway check``: what is in a topology file, or what is wrong with it."""

from __future__ import annotations

import argparse

from highway.cli.files import add_file_options, load_checked
from highway.run.launchers.table import ENGINES
from highway.safe_text import for_terminal
from highway.topology.checking import labels, lonely_urls, not_imported
from highway.topology.limits import loss, memory
from highway.topology.plan import names


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_file_options(parser)
    parser.add_argument("--on", choices=ENGINES, metavar="ENGINE", help=f"look whether it can be launched there, too: {', '.join(ENGINES)}")


def run(options: argparse.Namespace) -> int:
    """Check a file, print what it describes, and return the exit code."""
    topology = load_checked(options)
    if options.on:
        ENGINES[options.on].check(topology)
    plan = topology.plan
    for role in plan.roles.values():
        where = f" on {', '.join(role.hosts)}" if role.hosts else ""
        count = f" x {role.replicas}" if role.replicas > 1 else ""
        stages = " -> ".join(labels(topology, role.name)) or "(no stages here)"
        _say(f"role {role.name}{count}{where}{' (external)' if role.external else ''}: {stages}")
    for link, spec in plan.links.items():
        ends = f"{' and '.join(names(spec, 'from'))} to {' and '.join(names(spec, 'to'))}"
        _say(f"link {link}: {ends}, {spec.kind} over {spec.transport}, {spec.delivery}")
        for sentence in loss(plan, link):
            _say(f"  {sentence}")
    for host in plan.hosts:
        if needed := memory(plan, host):
            parts = ", ".join(f"{link} {megabytes:,g}" for link, megabytes in needed.items())
            _say(f"host {host}: links may hold {sum(needed.values()):,g} MB there ({parts})")
    passed_over = not_imported(topology)
    for sentence in passed_over:
        _say(sentence)
    warnings = list(lonely_urls(topology))
    for sentence in warnings:
        _say(f"warning: {sentence}")
    where = f", also on {options.on}" if options.on else ""
    _say(f"{topology.path}: nothing wrong{' in what was checked' if passed_over else ''}{where}{', but see above' if warnings else ''}")
    return 0


def _say(text: str) -> None:
    print(for_terminal(text))

"""``highway top``: show a whole topology live in a terminal, with the processes on all machines."""

from __future__ import annotations

import argparse
import os
import re
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.text import Text

from highway.cli import arguments
from highway.cli.files import add_file_options, load_checked, put_in
from highway.cli.tables import table
from highway.columns import Cell, number, percent
from highway.engine.stats import Rate
from highway.errors import ConfigError
from highway.observe.bottleneck import bottleneck
from highway.observe.poll import Poller, PollTarget, Sample, View, targets
from highway.observe.traffic import Traffic, traffic
from highway.topology import Topology
from highway.topology.spec import parse_metrics
from highway.wire.counters import FAULTS, faults

WIDE = 200  # maximum characters in a line of a table if there is no terminal

_PHASES = {"running": "green", "failed": "red", "waiting": "yellow", "starting": "yellow"}
_REPLICAS = ("role", "host", "phase", "items/s", "MB/s", "busiest stage", "busy", "queues", "gaps", "errors", "restarts")
_LINKS = ("link", "sent", "received", "not received", "items/s", "MB/s", *FAULTS)
_LEFT = ("role", "host", "phase", "busiest stage", "link")
_SHORT = {"not received": "missing", "duplicates": "repeats", "malformed": "bad"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = "Show a running topology live. You can pass endpoints (http://host:port) in place of FILE."
    add_file_options(parser)
    add_watch_options(parser, interval=1.0)
    parser.add_argument("-o", "--output", metavar="PATH", help="with --once: also write the picture to this .svg file")


def add_watch_options(parser: argparse.ArgumentParser, interval: float) -> None:
    """Add the options of all commands that view a running topology to a parser."""
    add = parser.add_argument
    add("--metrics", metavar="PORT", help="the port of the endpoints, or a range of ports; default: the port in the file")
    add("--host", metavar="NAME", help="show only this host of the file")
    add("--once", action="store_true", help="show the state once and end; the rates are measured over one interval")
    add("--interval", type=arguments.seconds, default=interval, metavar="S", help=f"seconds between two updates; default: {interval:g}")


def poller(topology: Topology, options: argparse.Namespace) -> Poller:
    """Return a poller for a topology. The ports of the endpoints come from the options of :func:`add_watch_options` or from the file.

    Raises:
        ConfigError: neither the file nor the options give the port of the endpoints, or the host does not exist.
    """
    plan = topology.plan
    topology.check_host(options.host)
    spec = parse_metrics(options.metrics, plan.metrics) if options.metrics else plan.metrics
    if spec is None:
        raise ConfigError(
            f"{topology.path} has no key metrics with the address of the run; pass the same --metrics PORT as to `highway run`"
        )
    return Poller(targets(topology, spec, options.host), plan.name, list(topology.roles), options.host)


def polls(poller: Poller, options: argparse.Namespace) -> Iterator[View]:
    """Yield a view at every interval. With ``--once``, yield only the second view, because the first view has no rates."""
    view = poller.poll()
    if not options.once:
        yield view
    while True:
        time.sleep(options.interval)  # polls are periodic until Ctrl-C
        yield poller.poll()
        if options.once:
            return


def run(options: argparse.Namespace) -> int:
    if options.output and not (options.once and options.output.endswith(".svg")):
        raise ConfigError(f"-o {options.output}: expected --once, and a name that ends in .svg")
    name, poller = _poller(options)
    if options.once:
        (view,) = polls(poller, options)
        console = Console(width=None if os.isatty(1) or "COLUMNS" in os.environ else WIDE, highlight=False, record=bool(options.output))
        console.print(render(name, view, console.width))
        if options.output:
            with put_in(options.output) as part:
                picture = console.export_svg(title=f"highway top {name}")
                Path(part).write_text(re.sub(r"@font-face {.*?}", "", picture, flags=re.S))  # remove fonts that come from a website
        return 0 if view.samples else 1
    with Live(auto_refresh=False, screen=os.isatty(1)) as live:
        try:
            for view in polls(poller, options):
                live.update(render(name, view, live.console.width), refresh=True)
        except KeyboardInterrupt:  # Ctrl-C is the normal end
            pass
    return 0


def _poller(options: argparse.Namespace) -> tuple[str, Poller]:
    if urls := endpoints(options):
        return ", ".join(target.url for target in urls), Poller(urls)
    topology = load_checked(options)
    return topology.plan.name, poller(topology, options)


def endpoints(options: argparse.Namespace) -> list[PollTarget]:
    """Return the endpoints that the arguments give instead of a file; empty if the arguments give a file.

    Raises:
        ConfigError: the arguments have both endpoints and a file, or endpoints and ``--metrics`` or ``--host``.
    """
    urls = [url.rstrip("/") for url in options.files if url.startswith("http://")]
    if urls and (len(urls) < len(options.files) or options.metrics or options.host):
        raise ConfigError("endpoints (http://host:port) cannot be combined with FILE, --metrics or --host")
    return [PollTarget(url, url.removeprefix("http://")) for url in urls]


def render(name: str, view: View, width: int = WIDE) -> RenderableType:
    """Return a view of a topology as text: a table of replicas, a table of links, silent endpoints, and the bottleneck.

    Args:
        name: The name of the topology.
        view: The view of the topology.
        width: Width of the terminal in characters. The tables fit this width.
    """
    parts: list[RenderableType] = [Text(f"{name}  {time.strftime('%H:%M:%S')}", style="dim"), _replicas(view, width)]
    if links := traffic(view.samples):
        parts += ["", _links(links, width)]
    parts += ["", *(Text(sentence, style="red") for sentence in view.silent)]
    parts += [Text(f"{one.state.name} failed {one.state.error}", style="red") for one in view.samples if one.state.error]
    lost = [f"{one.state.name}, {line}" for one in view.samples if one.state.stats for line in one.state.stats.lost_workers]
    parts += [Text(line, style="red") for line in lost]
    last = bottleneck(view.samples) if view.samples else "No endpoint answers; `highway run` opens one with --metrics."
    return Group(*parts, Text(last, style="bold"))


def _replicas(view: View, width: int) -> RenderableType:
    rows = [list(map(Cell, _REPLICAS))]
    for one in view.samples:
        state = one.state
        found = sum(faults(state.stats.stages[0].counters).values()) if state.stats else 0
        errors = sum(stage.errors for stage in state.stats.stages) if state.stats else 0
        phase = Cell(state.phase, style=_PHASES.get(state.phase, "dim"))
        alarms = map(_alarm, (found, errors, state.restarts))
        rows.append([Cell(state.name), Cell(one.machine), phase, *_figures(one), *alarms])
    return table(rows, width, _columns(_REPLICAS, "queues", "MB/s", "host", "restarts", "busiest stage"), _columns(_REPLICAS, *_LEFT))


def _figures(one: Sample) -> list[Cell]:
    """Return the cells of a replica: rates, the busiest stage with the busy fraction, and the levels of all queues."""
    if not one.runs or not one.recent:
        return [Cell("-")] * 5
    busiest = max(one.recent.stages, key=lambda stage: stage.share(stage.busy))
    queues = " ".join(f"{stage.queued}/{stage.capacity}" for stage in one.recent.stages if stage.capacity)
    return [*_rates(one.rate(-1)), Cell(busiest.name), Cell(percent(busiest.share(busiest.busy))), Cell(queues or "-")]


def _links(links: list[Traffic], width: int) -> RenderableType:
    rows = [[Cell(heading, _SHORT.get(heading, "")) for heading in _LINKS]]
    for link in links:
        rate = link.sending if link.received is None else link.receiving
        counts = map(number, (link.sent, link.received, link.missing))
        rows.append([Cell(link.link), *counts, *_rates(rate), *map(_alarm, link.faults.values())])
    return table(rows, width, _columns(_LINKS, "MB/s", "received", "sent"), _columns(_LINKS, *_LEFT))


def _columns(headings: Sequence[str], *names: str) -> list[int]:
    return [headings.index(name) for name in names if name in headings]


def _rates(rate: Rate) -> list[Cell]:
    return [number(value, 1) for value in rate]


def _alarm(count: int) -> Cell:
    return number(count, style="red" if count else "")

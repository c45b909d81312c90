"""``highway top``: a whole topology live in a terminal, wherever its roles run."""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Iterator
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from highway.cli.catalogue import file_options, load_checked
from highway.errors import ConfigError
from highway.place import did_you_mean
from highway.tools import command
from highway.topology import Topology
from highway.topology.bottleneck import bottleneck
from highway.topology.endpoint import parse_metrics
from highway.topology.survey import Seen, Survey, Target, View, targets
from highway.topology.traffic import Flow, Traffic, traffic

WIDE = 200  # columns that a table may take where there is no terminal

_PHASES = {"running": "green", "failed": "red", "waiting": "yellow", "starting": "yellow"}
_REPLICAS = ("role", "host", "phase", "items/s", "MB/s", "busiest stage", "busy", "queues", "gaps", "errors", "restarts")
_LINKS = ("link", "sent", "received", "under way or lost", "items/s", "MB/s", "gaps", "duplicates", "malformed")
_LEFT = ("role", "host", "phase", "busiest stage", "link")


def add_commands(commands: Any, common: argparse.ArgumentParser) -> None:
    """Add the command of this module to the command line."""
    parser = commands.add_parser(
        "top",
        parents=[common, file_options(), watch_options(1.0)],
        help="show a running topology live: rates, queues, gaps, the bottleneck",
        description="Show a running topology live. In place of FILE, endpoints may be given: http://host:port",
    )
    parser.set_defaults(command=_top)


def watch_options(interval: float) -> argparse.ArgumentParser:
    """Return the options of all commands that look at a running topology."""
    options = argparse.ArgumentParser(add_help=False)
    options.add_argument("--metrics", metavar="PORT", help="the port of the endpoints, or a range; by default what the file says")
    options.add_argument("--host", metavar="NAME", help="look only at this host of the file")
    options.add_argument("--once", action="store_true", help="look twice, an interval apart, show that, and end")
    options.add_argument(
        "--interval", type=command.seconds, default=interval, metavar="S", help=f"seconds between two looks; default: {interval:g}"
    )
    return options


def survey(topology: Topology, options: argparse.Namespace) -> Survey:
    """Return what looks at a topology, where the file and :func:`watch_options` say.

    Raises:
        ConfigError: neither says at which port the endpoints are, or there is no such host.
    """
    plan = topology.plan
    if options.host is not None and options.host not in plan.hosts:
        raise ConfigError(f"{topology.path}: no host {options.host!r}{did_you_mean(options.host, plan.hosts)}")
    spec = parse_metrics(options.metrics, plan.metrics) if options.metrics else plan.metrics
    if spec is None:
        raise ConfigError(f"{topology.path} has no key metrics, which says where to ask; give --metrics PORT, as `highway run` was given")
    return Survey(targets(topology, spec, options.host), plan.name, list(topology.roles), options.host)


def looks(surveyed: Survey, options: argparse.Namespace) -> Iterator[View]:
    """Yield a look at every interval; with ``--once`` the second one alone, which knows rates."""
    view = surveyed.look()
    if not options.once:
        yield view
    while True:
        time.sleep(options.interval)
        yield surveyed.look()
        if options.once:
            return


def _top(options: argparse.Namespace) -> int:
    name, surveyed = _survey(options)
    if options.once:
        (view,) = looks(surveyed, options)
        console = Console(width=None if os.isatty(1) else WIDE, highlight=False)
        console.print(render(name, view))
        return 0 if view.seen else 1
    with Live(auto_refresh=False, screen=os.isatty(1)) as live:
        try:
            for view in looks(surveyed, options):
                live.update(render(name, view), refresh=True)
        except KeyboardInterrupt:  # how one leaves it
            pass
    return 0


def _survey(options: argparse.Namespace) -> tuple[str, Survey]:
    urls = [url.rstrip("/") for url in options.files if url.startswith("http://")]
    if not urls:
        topology = load_checked(options)
        return topology.plan.name, survey(topology, options)
    if len(urls) < len(options.files) or options.metrics or options.host:
        raise ConfigError("endpoints (http://host:port) stand alone: no FILE, --metrics or --host beside them")
    return ", ".join(urls), Survey([Target(url, url.removeprefix("http://")) for url in urls])


def render(name: str, view: View) -> RenderableType:
    """Return a look at a topology as text: a table of its replicas, one of its links, who is silent, and the bottleneck."""
    parts: list[RenderableType] = [Text(f"{name}  {time.strftime('%H:%M:%S')}", style="dim"), _replicas(view)]
    if links := traffic(view.seen):
        parts += ["", _links(links)]
    parts += ["", *(Text(sentence, style="red") for sentence in view.silent)]
    parts += [Text(f"{one.state.name} failed {one.state.error}", style="red") for one in view.seen if one.state.error]
    parts.append(Text(bottleneck(view.seen) if view.seen else "No endpoint answers; `highway run` opens one with --metrics.", style="bold"))
    return Group(*parts)


def _replicas(view: View) -> Table:
    table = _table(_REPLICAS)
    for one in view.seen:
        state = one.state
        counters = state.stats.stages[0].counters if state.stats else {}
        faults = sum(int(counters.get(name, 0)) for name in ("gaps", "duplicates", "malformed"))
        errors = sum(stage.errors for stage in state.stats.stages) if state.stats else 0
        phase = Text(state.phase, style=_PHASES.get(state.phase, "dim"))
        table.add_row(state.name, one.machine, phase, *_rates(one), *_levels(one), *map(_alarm, (faults, errors, state.restarts)))
    return table


def _rates(one: Seen) -> tuple[str, str]:
    if not one.runs or not one.recent:
        return "-", "-"
    return _flow(Flow.of(one.recent, one.recent.stages[-1]))


def _levels(one: Seen) -> tuple[str, str, str]:
    """The busiest stage, how busy it is, and the levels of all queues."""
    if not one.runs or not one.recent:
        return "-", "-", "-"
    busiest = max(one.recent.stages, key=lambda stage: stage.share(stage.busy))
    queues = " ".join(f"{stage.queued}/{stage.capacity}" for stage in one.recent.stages if stage.capacity)
    return busiest.name, f"{100 * busiest.share(busiest.busy):.0f}%", queues or "-"


def _links(links: list[Traffic]) -> Table:
    table = _table(_LINKS)
    for link in links:
        counts = (f"{number:,}" if number is not None else "-" for number in (link.sent, link.received, link.missing))
        flow = link.sending if link.received is None else link.receiving
        table.add_row(link.link, *counts, *_flow(flow), *map(_alarm, (link.gaps, link.duplicates, link.malformed)))
    return table


def _table(headings: tuple[str, ...]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in headings:
        table.add_column(heading, no_wrap=True, justify="left" if heading in _LEFT else "right")
    return table


def _flow(flow: Flow) -> tuple[str, str]:
    return f"{flow.items:,.1f}", f"{flow.megabytes:,.1f}"


def _alarm(count: int) -> Text:
    return Text(f"{count:,}", style="red" if count else "")

"""``highway graph``: draw a topology, from the file or with the rates and levels of a run."""

from __future__ import annotations

import argparse
from pathlib import Path

from highway.cli.files import add_file_options, load_checked, put_in
from highway.cli.top import add_watch_options, poller, polls
from highway.errors import ConfigError
from highway.observe.annotate import annotate
from highway.topology.draw import png, svg
from highway.topology.graph import Graph, dot, graph, mermaid
from highway.topology.layout import layout

KINDS = (".svg", ".png", ".dot", ".mmd")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_file_options(parser)
    add_watch_options(parser, interval=2.0)
    add = parser.add_argument
    add("-o", "--output", metavar="PATH", help="the file to write: .svg, .png, .dot or .mmd (Mermaid); by default, Mermaid is printed")
    add(
        "--live",
        action="store_true",
        help="draw rates, queue levels and gaps from the endpoints of a running topology, again at every interval until Ctrl-C",
    )


def run(options: argparse.Namespace) -> int:
    """Draw a topology and return the exit code."""
    path = Path(options.output) if options.output else None
    if path and path.suffix not in KINDS:
        raise ConfigError(f"-o {path}: expected a name that ends in .svg, .png, .dot or .mmd")
    topology = load_checked(options)
    drawn = graph(topology)
    if not options.live:
        if options.once or options.metrics or options.host:
            raise ConfigError("--once, --metrics and --host need --live, which shows a running topology")
        _put(drawn, path)
        return 0
    try:
        for view in polls(poller(topology, options), options):
            _put(annotate(drawn, view), path)
    except KeyboardInterrupt:  # Ctrl-C is the normal end
        return 130 if options.once else 0
    return 0


def _put(drawn: Graph, path: Path | None) -> None:
    """Print a graph, or write the graph to a file."""
    if path is None:
        print(mermaid(drawn), end="", flush=True)
        return
    with put_in(path) as part:
        if path.suffix == ".png":
            png(layout(drawn)).save(part, "png")
        else:
            text = svg(layout(drawn)) if path.suffix == ".svg" else dot(drawn) if path.suffix == ".dot" else mermaid(drawn)
            Path(part).write_text(text)

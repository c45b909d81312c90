"""Add the statistics of a running topology to its graph.

A *role* is a pipeline of a topology file. A *replica* is one of its processes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import reduce

from highway.columns import percent
from highway.engine.stats import Rate, StageStats
from highway.observe.bottleneck import bottleneck
from highway.observe.figures import share
from highway.observe.poll import Sample, View
from highway.observe.traffic import Traffic, traffic
from highway.topology.graph import Edge, Graph, Node


def annotate(graph: Graph, view: View) -> Graph:
    """Return the graph with rates, queue levels and faults. The caption names the bottleneck, and HTTP endpoints that do not answer."""
    links = {link.link: link for link in traffic(view.samples)}
    nodes = [_node(node, [one for one in view.samples if one.state.role == node.name]) for node in graph.nodes]
    edges = [_edge(edge, links, view.samples) for edge in graph.edges]
    return Graph(tuple(nodes), tuple(edges), (bottleneck(view.samples), *view.silent))


def _node(node: Node, samples: Sequence[Sample]) -> Node:
    if not samples:
        return node if node.outside else replace(node, figures=("not seen",))
    running = [one for one in samples if one.runs]
    phases = [one.state.phase for one in samples]
    figures = [", ".join(f"{phases.count(phase)} {phase}" if len(samples) > 1 else phase for phase in dict.fromkeys(phases))]
    if running:
        figures.append(_rate_text([one.rate(-1) for one in running]))
    stages = [one.recent.stages for one in samples if one.recent]
    columns = list(zip(*stages)) if len({len(column) for column in stages}) == 1 else []
    counts = {
        "restart": sum(one.state.restarts for one in samples),
        "error": sum(stage.errors for one in samples if one.state.stats for stage in one.state.stats.stages),
    }
    return replace(
        node,
        stages=tuple(column[0].name for column in columns) or node.stages,
        levels=tuple(_level(column) for column in columns),
        figures=tuple(figures),
        alarms=tuple(f"{number:,} {what}{'s' if number > 1 else ''}" for what, number in counts.items() if number),
    )


def _level(stages: Sequence[StageStats]) -> tuple[str, str]:
    """Return two texts: how busy the workers of a stage are, and how full the queues after the stage are, over all replicas."""
    busy, capacity = f"{percent(share(stages, 'busy'))} busy", sum(stage.capacity for stage in stages)
    return busy, f"{sum(stage.queued for stage in stages)}/{capacity}" if capacity else ""


def _edge(edge: Edge, links: Mapping[str, Traffic], samples: Sequence[Sample]) -> Edge:
    link = links.get(edge.link)
    if link is None:
        return edge
    figures = [_rate_text(_rates(edge, samples))]
    if link.missing:
        figures.append(f"{link.missing:,} not received")
    alarms = tuple(f"{count:,} {what if count > 1 else what.removesuffix('s')}" for what, count in link.faults.items() if count)
    return replace(edge, figures=tuple(figures), alarms=alarms)


def _rates(edge: Edge, samples: Sequence[Sample]) -> list[Rate]:
    """Return the rates at one end of an edge.

    A link with several roles has several edges. If only this edge leads to the receivers, return the rates of the receivers. Otherwise,
    return the rates of the senders.
    """
    senders = [one for one in samples if one.ends.sends == edge.link and one.runs]
    into = [one for one in samples if one.ends.receives == edge.link and one.runs and one.state.role == edge.target]
    if into and {one.state.role for one in senders} <= {edge.source}:
        return [one.rate(0) for one in into]
    return [one.rate(-1) for one in senders if one.state.role == edge.source]


def _rate_text(rates: Sequence[Rate]) -> str:
    total = reduce(Rate.plus, rates, Rate())
    return f"{total.items:,.1f} items/s, {total.megabytes:,.1f} MB/s"

"""Compute the current content of the page, as plain values, from the statistics of the replicas (processes).

A *role* is a pipeline of a topology file. A *replica* is one of its processes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from highway.engine.stats import PipelineStats
from highway.observe.bottleneck import slowest
from highway.observe.figures import Part, Recent, load, share
from highway.observe.poll import Sample, View
from highway.observe.traffic import Traffic, traffic
from highway.observe.wait import MINUTE, waiting
from highway.topology.graph import Edge, Graph, Node

_PARTS: tuple[Part, ...] = ("busy", "starved", "blocked")

Values = dict[str, Any]


class Minute:
    """The statistics of each replica over the last minute. Add a view every few seconds."""

    def __init__(self) -> None:
        self._recent = Recent(MINUTE)
        self._last: dict[tuple[str, str], PipelineStats] = {}

    def add(self, view: View) -> View:
        """Add a view. Return the view with the statistics of the last minute in place of the last seconds."""
        self._last = {}
        for one in view.samples:
            if one.state.stats:
                key = one.machine, one.state.name
                self._last[key] = self._recent.add(key, one.state.stats)
        self._recent.keep(self._last)
        return self.over(view)

    def over(self, view: View) -> View:
        """Return ``view`` with the statistics of the minute before the last added view."""
        samples = [replace(one, recent=self._last.get((one.machine, one.state.name), one.recent)) for one in view.samples]
        return replace(view, samples=samples)


def document(view: View, minute: View, graph: Graph | None = None) -> Values:
    """Return the content of the page.

    Args:
        view: A view, with the rates of the last seconds.
        minute: The same view, with the statistics of the last minute.
        graph: The roles and links of the file. Default: the roles and links in ``view``.
    """
    graph = graph or seen_graph(view.samples)
    links = {link.link: link for link in traffic(view.samples)}
    slow = slowest(minute.samples)
    return {
        "wait": waiting(minute.samples)._asdict(),
        "phases": Counter(one.state.phase for one in view.samples),
        "problems": [*view.silent, *(f"{one.state.name}: {one.state.error}" for one in view.samples if one.state.error)],
        "roles": [_role(node, [one for one in view.samples if one.state.role == node.name], slow) for node in graph.nodes],
        "links": [_edge(edge, links.get(edge.link), view) for edge in graph.edges],
        "replicas": [_replica(one) for one in view.samples],
    }


def seen_graph(samples: Sequence[Sample]) -> Graph:
    """Return the graph of the roles and links of the samples."""
    roles = {one.state.role: one.ends for one in samples}
    nodes = [Node(role, replicas=sum(one.state.role == role for one in samples)) for role in roles]
    edges = [
        Edge(source, target, ends.sends, "", ends.publishes)
        for source, ends in roles.items()
        for target, other in roles.items()
        if ends.sends and ends.sends == other.receives
    ]
    for role, ends in roles.items():
        for link, sends in ((ends.sends, True), (ends.receives, False)):
            if link and not any(edge.name == link for edge in edges):
                nodes.append(Node(link, outside=True))
                edges.append(Edge(role, link, link, "") if sends else Edge(link, role, link, ""))
    return Graph(tuple(dict.fromkeys(nodes)), tuple(edges))


def points(shown: Values) -> Iterator[tuple[str, float]]:
    """Yield the names and values of the statistics that the page draws as curves over the last hour."""
    if shown["wait"]["share"] is not None:
        yield "wait", shown["wait"]["share"]
    for role in shown["roles"]:
        yield from ((f"role/{role['name']}/{what}", role[what]) for what in ("rate", "mb", "running"))
        for stage in role["stages"]:
            yield from ((f"stage/{role['name']}/{stage['name']}/{part}", stage[part]) for part in _PARTS)
            if stage["capacity"]:
                yield f"stage/{role['name']}/{stage['name']}/full", stage["queued"] / stage["capacity"]
    for name, link in {link["name"]: link for link in shown["links"]}.items():
        yield from ((f"link/{name}/{what}", link[what]) for what in ("rate", "mb"))
        if link["missing"] is not None:
            yield f"link/{name}/missing", link["missing"]


def _role(node: Node, samples: Sequence[Sample], slow: tuple[str, str] | None) -> Values:
    running = [one for one in samples if one.runs]
    last = [one.state.stats for one in samples if one.state.stats]
    recent = [one.recent for one in running if one.recent]
    sources = [stats.stages[0].counters for stats in last]
    progress = [float(counters["progress"]) for counters in sources if "progress" in counters]
    epochs = [float(counters["epochs_done"]) for counters in sources if "epochs_done" in counters]
    rates = [one.rate(-1) for one in running]
    names = dict.fromkeys(stage.name for stats in last for stage in stats.stages) or dict.fromkeys(node.stages)
    return {
        "name": node.name,
        "outside": node.outside,
        "replicas": len(samples) or node.replicas,
        "running": len(running),
        "phases": Counter(one.state.phase for one in samples),
        "machines": sorted({one.machine for one in samples if one.machine}),
        "rate": sum(rate.items for rate in rates),
        "mb": sum(rate.megabytes for rate in rates),
        "restarts": sum(one.state.restarts for one in samples),
        "cores": sum(stats.cores_used for stats in recent),
        "memory": sum(stats.resident for stats in recent),
        "progress": sum(progress) / len(progress) if progress else None,
        "epochs": min(epochs) if epochs else None,
        "notes": [line for stats in last for line in stats.progress][:3],
        "stages": [_stage(name, last, recent, slow == (node.name, name)) for name in names],
    }


def _stage(name: str, last: Sequence[PipelineStats], recent: Sequence[PipelineStats], is_slowest: bool) -> Values:
    total, late = ([stage for stats in all_of for stage in stats.stages if stage.name == name] for all_of in (last, recent))
    seconds = max((stats.seconds for stats in recent), default=0.0) or 1.0
    return {
        "name": name,
        "workers": sum(stage.num_workers for stage in total),
        **{count: sum(getattr(stage, count) for stage in total) for count in ("items", "errors", "queued", "capacity")},
        "rate": sum(stage.items for stage in late) / seconds,
        **{part: share(late, part) for part in _PARTS},
        "error": next((stage.error for stage in reversed(total) if stage.error), ""),
        "slowest": is_slowest,
    }


def _edge(edge: Edge, link: Traffic | None, view: View) -> Values:
    link = link or Traffic(edge.link)
    rate = link.sending if link.received is None else link.receiving
    return {
        "name": edge.link,
        "source": edge.source,
        "target": edge.target,
        "about": edge.about,
        "rate": rate.items,
        "mb": rate.megabytes,
        "sent": link.sent,
        "received": link.received,
        "missing": link.missing,
        "lost": view.losses[edge.link].lost if edge.link in view.losses else None,
        "faults": link.faults,
    }


def _replica(one: Sample) -> list[Any]:
    """Return the row of a replica in the table of its role. ``page`` defines the columns."""
    state, stats, recent = one.state, one.state.stats, one.recent if one.runs else None
    busiest = max(recent.stages, key=lambda stage: stage.share(stage.busy)) if recent else None
    return [
        state.role,
        state.name,
        one.machine,
        state.phase,
        state.restarts,
        stats.items if stats else 0,
        one.rate(-1).items,
        busiest.name if busiest else "",
        busiest.share(busiest.busy) if busiest else 0.0,
        load(recent) if recent else 0.0,
        sum(stage.errors for stage in stats.stages) if stats else 0,
        recent.cores_used if recent else 0.0,
        stats.resident if stats else 0,
        state.error,
    ]

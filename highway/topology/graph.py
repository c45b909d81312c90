"""A topology as a graph of roles (its pipelines) and links, and the graph as text: Mermaid and DOT."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from highway.safe_text import for_markup, for_terminal
from highway.topology.checking import LinkEnd, explicit_ends, labels
from highway.topology.model import Topology
from highway.topology.plan import names


@dataclass(frozen=True)
class Node:
    """A role of the file, or an address outside the file.

    Args:
        name: The role's name, or the address.
        where: A text with the hosts; empty if the file names no hosts.
        outside: Whether other software starts the node, not ``highway run``.
        levels: For each stage, two texts: the busy fraction, and the level of the queue after the stage. Empty if not measured.
        figures: Lines with measured numbers.
        alarms: Lines with problems.
    """

    name: str
    stages: tuple[str, ...] = ()
    replicas: int = 1
    where: str = ""
    outside: bool = False
    levels: tuple[tuple[str, str], ...] = ()
    figures: tuple[str, ...] = ()
    alarms: tuple[str, ...] = ()

    @property
    def title(self) -> str:
        """The name of the node, and the number of replicas if the node has several."""
        return self.name if self.replicas == 1 else f"{self.name} x {self.replicas}"

    @property
    def lines(self) -> list[str]:
        """All lines except the title."""
        levels = self.levels or (("", ""),) * len(self.stages)
        stages = (" ".join(filter(None, (stage, *level))) for stage, level in zip(self.stages, levels, strict=True))
        return [line for line in (self.where, *self.figures, *stages, *self.alarms) if line]


@dataclass(frozen=True)
class Edge:
    """A link from one node to another.

    Args:
        source, target: The names of the nodes that send and receive.
        name: The link's name; empty for a URL.
        about: A text with kind, transport and port.
        publish: Whether every receiver gets every item.
        binds_target: Whether the receiving end opens the port, not the sending end.
        figures: Lines with measured numbers.
        alarms: Lines with problems.
    """

    source: str
    target: str
    name: str
    about: str
    publish: bool = False
    binds_target: bool = False
    figures: tuple[str, ...] = ()
    alarms: tuple[str, ...] = ()

    @property
    def link(self) -> str:
        """The name of the link in statistics: the name in the file, or the address in the URL."""
        return self.name or self.about.partition(" ")[2]

    @property
    def lines(self) -> list[str]:
        """The lines of the edge's label."""
        return [line for line in (self.name, self.about, *self.figures, *self.alarms) if line]


@dataclass(frozen=True)
class Graph:
    """Nodes and edges, in the order of the file, and sentences for the caption."""

    nodes: tuple[Node, ...]
    edges: tuple[Edge, ...]
    caption: tuple[str, ...] = ()


def graph(topology: Topology) -> Graph:
    """Return the graph of a topology. The topology must have no errors."""
    roles = topology.roles.values()
    nodes = []
    for role in roles:
        hosts = f"on {', '.join(dict.fromkeys(role.hosts))}" if role.hosts else ""
        where = " ".join(filter(None, (hosts, "(external)" if role.external else "")))
        nodes.append(Node(role.name, labels(topology, role.name), role.replicas, where, role.external))
    edges = list(_named(topology))
    for edge in _matched(explicit_ends(topology)):
        edges.append(edge)
        known = {node.name for node in nodes}
        nodes += [Node(name, outside=True) for name in (edge.source, edge.target) if name not in known]
    return Graph(tuple(nodes), tuple(edges))


def _named(topology: Topology) -> Iterator[Edge]:
    for name, spec in topology.plan.links.items():
        about = " ".join(filter(None, [spec.kind, spec.transport, str(spec.port) if spec.over.has_port else ""]))
        for source in names(spec, "from"):
            for target in names(spec, "to"):
                yield Edge(source, target, name, about, spec.fans_out, spec.bind == "to")


def _matched(found: list[LinkEnd]) -> Iterator[Edge]:
    """Yield the edges of URLs in stages. Two roles with the same address are connected. Any other address is outside the file."""
    for end in found:
        for address in end.link.addresses:
            others = [other for other in found if other.direction != end.direction and address in other.link.addresses]
            about, publish = f"{end.link.kind} {address}", end.link.fans_out
            if end.direction == "send":
                for target in [other.process.role for other in others] or [address]:
                    yield Edge(end.process.role, target, "", about, publish, not end.link.bind)
            elif not others:
                yield Edge(address, end.process.role, "", about, publish, end.link.bind)


def mermaid(graph: Graph) -> str:
    """Return the graph in Mermaid's language, which GitHub and others render in Markdown."""
    lines = ["---", f"title: {json.dumps(for_terminal(' '.join(graph.caption)), ensure_ascii=False)}", "---"] if graph.caption else []
    lines.append("flowchart LR")
    for number, node in enumerate(graph.nodes):
        text = "<br>".join((f"<b>{_plain(node.title)}</b>", *map(_plain, node.lines)))
        before, behind = ('(["', '"])') if node.outside else ('["', '"]')
        lines.append(f"  n{number}{before}{text}{behind}")
    numbers = {node.name: number for number, node in enumerate(graph.nodes)}
    for edge in graph.edges:
        arrow = "-.->" if edge.publish else "-->"
        binder = edge.target if edge.binds_target else edge.source
        text = "<br>".join(map(_plain, [*edge.lines, f"{binder} binds"]))  # Mermaid has no arrows with a dot at the binding end
        lines.append(f'  n{numbers[edge.source]} {arrow}|"{text}"| n{numbers[edge.target]}')
    return "\n".join(lines) + "\n"


def dot(graph: Graph) -> str:
    """Return the graph in Graphviz's language."""
    lines = ["digraph topology {", '  rankdir=LR; node [shape=box, style=rounded, fontname="sans-serif"]; edge [fontname="sans-serif"];']
    for node in graph.nodes:
        label = _label([node.title, *node.lines])
        style = ', style="rounded,dashed"' if node.outside else ""
        lines.append(f'  "{_quoted(node.name)}" [label="{label}"{style}{_alarm(node.alarms)}];')
    for edge in graph.edges:
        label = _label(edge.lines)
        end = "dir=both, arrowtail=none, arrowhead=normaldot" if edge.binds_target else "dir=both, arrowtail=dot"
        style = ", style=dashed" if edge.publish else ""
        lines.append(f'  "{_quoted(edge.source)}" -> "{_quoted(edge.target)}" [label="{label}", {end}{style}{_alarm(edge.alarms)}];')
    if graph.caption:
        lines.append(f'  labelloc=b; label="{_label(graph.caption)}";')
    return "\n".join([*lines, "}", ""])


def _label(lines: Sequence[str]) -> str:
    return "\\n".join(map(_quoted, lines))


def _alarm(alarms: tuple[str, ...]) -> str:
    return ", fontcolor=red" if alarms else ""


def _plain(text: str) -> str:
    return for_markup(text).replace("&quot;", "#quot;")


def _quoted(text: str) -> str:
    return for_terminal(text).replace("\\", "\\\\").replace('"', '\\"')

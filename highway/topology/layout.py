"""The layout of a drawn topology: roles are boxes in columns, and links are curves around the boxes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import pairwise

from PIL import ImageFont

from highway.topology.graph import Edge, Graph, Node

Point = tuple[float, float]

INK, FAINT, LINE, BOX, SHADOW, ALARM = "#1c1c1e", "#6b6b70", "#3a6ea5", "#f4f6f9", "#dfe5ee", "#c0262d"
MARGIN, GAP_X, GAP_Y, PAD, ROW, TITLE, SMALL = 24.0, 120.0, 28.0, 12.0, 17.0, 15, 12  # pixels
QUEUE = 45.0  # width of a queue's level in pixels


@dataclass
class Shape:
    """A shape to draw: a box, a curve, an arrow, a dot or a text."""

    points: list[Point]
    color: str
    kind: str  # box, curve, arrow, dot, text
    text: str = ""
    size: int = SMALL
    fill: str = ""
    dashed: bool = False
    anchor: str = "start"  # which part of a text is at the point: start, middle or end


@dataclass
class Picture:
    """Shapes within a width and height."""

    width: float
    height: float
    shapes: list[Shape] = field(default_factory=list)


@dataclass(frozen=True)
class Area:
    """The area of a box. An area of width 0 is the place where a line passes a column."""

    left: float
    top: float
    width: float
    height: float

    @property
    def corners(self) -> list[Point]:
        """The upper left and lower right corners."""
        return [(self.left, self.top), (self.left + self.width, self.top + self.height)]

    @property
    def middle(self) -> float:
        """The y coordinate of the middle."""
        return self.top + self.height / 2


def layout(graph: Graph) -> Picture:
    """Return all shapes with their positions. Senders are to the left of receivers. Lines pass around the boxes between their ends."""
    columns = _columns(graph)
    depth = {node.name: number for number, column in enumerate(columns) for node in column}
    labels = max([text_width(text, SMALL) for edge in graph.edges for text in edge.lines], default=0)
    gap_x = max(GAP_X, labels + 5 * PAD)
    gap_y = max([GAP_Y, *(ROW * (len(edge.lines) + 3) for edge in graph.edges if edge.figures)])
    at: dict[str, list[Edge]] = {node.name: [] for node in graph.nodes}
    for edge in graph.edges:
        for name in {edge.source, edge.target}:
            at[name].append(edge)
    cells = [{node.name: _size(node, at[node.name]) for node in column} for column in columns]
    routes = []
    for number, edge in enumerate(graph.edges):
        between = range(depth[edge.source] + 1, depth[edge.target])
        routes.append([edge.source, *(f"{number} in {column}" for column in between), edge.target])
        for column in between:
            cells[column][f"{number} in {column}"] = (0.0, ROW * (len(edge.lines) + 1))
    heights = [sum(height for _, height in cell.values()) + gap_y * (len(cell) - 1) for cell in cells]
    picture = Picture(MARGIN, max(heights) + 2 * MARGIN)
    areas: dict[str, Area] = {}
    for cell, total in zip(cells, heights, strict=True):
        top, widest = (picture.height - total) / 2, max(width for width, _ in cell.values())
        for name, (width, height) in cell.items():
            areas[name] = Area(picture.width, top, width or widest, height)
            top += height + gap_y
        picture.width += widest + gap_x
    picture.width += MARGIN - gap_x
    for node in graph.nodes:
        picture.shapes += _box(node, areas[node.name])
    texts: list[Shape] = []
    taken = [areas[node.name].corners for node in graph.nodes]  # areas of boxes and of placed texts
    ends = _ends(routes, areas)
    for edge, route, (start, end) in zip(graph.edges, routes, ends, strict=True):
        curves = _curves(start, end, [areas[name] for name in route[1:-1]])
        picture.shapes += _arrow(edge, curves)
        own = _texts(edge, curves[0], taken)
        taken += map(_extent, own)
        texts += own
    picture.shapes += texts  # texts come last, so that they are above all lines
    for line in _wrapped(graph.caption, picture.width - 2 * MARGIN):
        picture.shapes.append(Shape([(MARGIN, picture.height)], INK, "text", line))
        picture.height += ROW
    return picture


def _wrapped(sentences: Sequence[str], width: float) -> list[str]:
    """Break sentences into lines of at most ``width`` pixels. A word that is longer than this gets its own line."""
    lines: list[str] = []
    for sentence in sentences:
        lines.append("")
        for word in sentence.split():
            longer = f"{lines[-1]} {word}".lstrip()
            if lines[-1] and text_width(longer, SMALL) > width:
                lines.append(word)
            else:
                lines[-1] = longer
    return lines


def _columns(graph: Graph) -> list[list[Node]]:
    """Return the nodes of each column. A node's column is the length of the longest path from a source to the node."""
    depth = {node.name: 0 for node in graph.nodes}
    for _ in range(len(graph.nodes)):
        is_settled = True
        for edge in graph.edges:
            if depth[edge.target] <= depth[edge.source] < len(graph.nodes) - 1:
                depth[edge.target], is_settled = depth[edge.source] + 1, False
        if is_settled:
            break
    columns: dict[int, list[Node]] = {}
    for node in graph.nodes:
        columns.setdefault(depth[node.name], []).append(node)
    return [columns[level] for level in sorted(columns)]


def _size(node: Node, edges: Sequence[Edge]) -> Point:
    """Return the width and height of a node's box. ``edges`` are the edges that begin or end at the node."""
    rows, twins = _rows(node), Counter((edge.source, edge.target) for edge in edges)
    lines = max((len(edge.lines) for edge in edges), default=0)
    room = (max(twins.values()) + 1) * ROW * (lines + 1.5) if max(twins.values(), default=0) > 1 else 0.0
    widest = max(text_width(text, size) + (PAD + text_width("100% busy", SMALL) + QUEUE if level else 0) for text, level, size, _ in rows)
    return widest + 2 * PAD, max(len(rows) * ROW + 2 * PAD, room)


def _rows(node: Node) -> list[tuple[str, tuple[str, ...], int, str]]:
    """Return the rows of a box. A row has a text on the left, texts on the right, a size and a color."""
    levels = node.levels or ((),) * len(node.stages)
    return [
        (node.title, (), TITLE, INK),
        *([(node.where, (), SMALL, LINE)] if node.where else []),
        *((text, (), SMALL, INK) for text in node.figures),
        *((stage, level, SMALL, FAINT) for stage, level in zip(node.stages, levels, strict=True)),
        *((text, (), SMALL, ALARM) for text in node.alarms),
    ]


def _box(node: Node, area: Area) -> list[Shape]:
    shapes = []
    for behind in range(min(node.replicas - 1, 2), -1, -1):
        x, y = area.left + 5 * behind, area.top + 5 * behind
        fill = SHADOW if behind else BOX
        shapes.append(Shape([(x, y), (x + area.width, y + area.height)], FAINT, "box", fill=fill, dashed=node.outside))
    for number, (text, level, size, color) in enumerate(_rows(node)):
        base, right = area.top + PAD + ROW * (number + 0.75), area.left + area.width - PAD
        shapes.append(Shape([(area.left + PAD, base)], color, "text", text, size))
        shapes += [Shape([(x, base)], INK, "text", part, size, anchor="end") for part, x in zip(level, (right - QUEUE, right)) if part]
    return shapes


def _ends(routes: Sequence[Sequence[str]], areas: Mapping[str, Area]) -> list[tuple[Point, Point]]:
    """Return the start point and the end point of each edge. The edges at one side of a box are sorted to avoid crossings."""
    out, into = ({name: list[tuple[float, int]]() for name in areas} for _ in range(2))
    for number, route in enumerate(routes):
        out[route[0]].append((areas[route[1]].middle, number))
        into[route[-1]].append((areas[route[-2]].middle, number))
    height: dict[tuple[str, int], float] = {}
    for side, numbers in (("out", out), ("into", into)):
        for name, edges in numbers.items():
            for place, (_, number) in enumerate(sorted(edges)):
                height[side, number] = areas[name].top + areas[name].height * (place + 1) / (len(edges) + 1)
    return [
        ((areas[route[0]].left + areas[route[0]].width, height["out", number]), (areas[route[-1]].left, height["into", number]))
        for number, route in enumerate(routes)
    ]


def _curves(start: Point, end: Point, passed: Sequence[Area]) -> list[list[Point]]:
    """Return the curves of an edge. The edge passes through the areas in ``passed``."""
    points = [start, *(point for area in passed for point in ((area.left, area.middle), (area.left + area.width, area.middle))), end]
    bends = [max(40.0, abs(second[0] - first[0]) / 2) for first, second in pairwise(points)]
    return [[a, (a[0] + bend, a[1]), (b[0] - bend, b[1]), b] for (a, b), bend in zip(pairwise(points), bends)]


def _arrow(edge: Edge, curves: Sequence[list[Point]]) -> list[Shape]:
    shapes = [Shape(curve, LINE, "curve", dashed=edge.publish) for curve in curves]
    start, end = curves[0][0], curves[-1][-1]
    shapes.append(Shape([end], LINE, "arrow"))
    shapes.append(Shape([(end[0] - 14, end[1]) if edge.binds_target else start], LINE, "dot"))
    return shapes


def _texts(edge: Edge, curve: Sequence[Point], taken: Sequence[Sequence[Point]]) -> list[Shape]:
    """Return the texts of an edge: the name above the line, all other texts below. The texts avoid the line and the areas in ``taken``."""
    below = [(text, color) for text, color in ((edge.about, FAINT), *((text, INK) for text in edge.figures)) if text]
    below += [(text, ALARM) for text in edge.alarms]
    points = [bezier(curve, step / 60) for step in range(61)]
    middle, _ = points[30]
    highest, _ = _reach(points, middle, text_width(edge.name, SMALL) / 2 + 2)
    name = [Shape([(middle, highest - 8)], INK, "text", edge.name, anchor="middle")] if edge.name else []
    _, lowest = _reach(points, middle, max((text_width(text, SMALL) for text, _ in below), default=0) / 2 + 2)
    rest = [Shape([(middle, lowest + 17 + ROW * row)], color, "text", text, anchor="middle") for row, (text, color) in enumerate(below)]
    half = max((text_width(text.text, SMALL) for text in (*name, *rest)), default=0) / 2
    taken = [one for one in taken if one[0][0] < middle + half and middle - half < one[1][0]]  # texts move only up and down
    name = _moved(name, -4.0, taken)
    return name + _moved(rest, 4.0, [*taken, *map(_extent, name)])


def _moved(texts: list[Shape], step: float, taken: Sequence[Sequence[Point]]) -> list[Shape]:
    """Move texts up or down in steps until they overlap no area in ``taken``. If no nearby place is free, do not move the texts."""
    for number in range(30):
        moved = [replace(text, points=[(x, y + number * step) for x, y in text.points]) for text in texts]
        if not any(_overlap(extent, other) for extent in map(_extent, moved) for other in taken):
            return moved
    return texts


def _extent(text: Shape) -> list[Point]:
    """Return two opposite corners of the area that a centred text covers."""
    (x, base), half = text.points[0], text_width(text.text, SMALL) / 2
    return [(x - half, base - SMALL), (x + half, base + 4)]


def _overlap(first: Sequence[Point], second: Sequence[Point]) -> bool:
    (left, top), (right, bottom) = first
    (other_left, other_top), (other_right, other_bottom) = second
    return left < other_right and other_left < right and top < other_bottom and other_top < bottom


def _reach(points: Sequence[Point], middle: float, half: float) -> tuple[float, float]:
    """Return the minimum and maximum y of a curve's points between ``middle - half`` and ``middle + half``."""
    heights = [y for x, y in points if abs(x - middle) <= half]
    return min(heights), max(heights)


def bezier(curve: Sequence[Point], t: float) -> Point:
    """Return the point of a cubic curve, given by its four control points, at ``t`` from 0 to 1."""
    weights = ((1 - t) ** 3, 3 * t * (1 - t) ** 2, 3 * t * t * (1 - t), t**3)
    return sum(w * x for w, (x, _) in zip(weights, curve, strict=True)), sum(w * y for w, (_, y) in zip(weights, curve, strict=True))


@cache
def text_width(text: str, size: int) -> float:
    """Return the width of a text in pixels, in the font ``size``."""
    return float(font(size).getlength(text))


@cache
def font(size: float) -> ImageFont.FreeTypeFont | ImageFont.ImageFont:
    """Return the font of all texts, ``size`` pixels high."""
    return ImageFont.load_default(size)

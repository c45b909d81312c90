"""A topology drawn: a layout in columns, and the same picture as SVG and as PNG."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from html import escape

from PIL import Image, ImageDraw, ImageFont

from highway.topology.graph import Edge, Graph, Node

Point = tuple[float, float]

PAPER, INK, FAINT, LINE, BOX, SHADOW, ALARM = "#ffffff", "#1c1c1e", "#6b6b70", "#3a6ea5", "#f4f6f9", "#dfe5ee", "#c0262d"
MARGIN, GAP_X, GAP_Y, PAD, ROW, TITLE, SMALL = 24.0, 120.0, 28.0, 12.0, 17.0, 15, 12  # pixels
ANCHORS = {"start": "ls", "middle": "ms", "end": "rs"}  # SVG's -> Pillow's
SCALE, SMOOTH = 2, 2  # pixels of a PNG for each of an SVG; times as many are drawn, and then averaged


@dataclass
class Shape:
    """A thing to draw: a box, a curve, a dot or a text."""

    points: list[Point]
    color: str
    kind: str  # box, curve, arrow, dot, text
    text: str = ""
    size: int = SMALL
    fill: str = ""
    dashed: bool = False
    anchor: str = "start"  # which part of a text is at its point: start, middle, end


@dataclass
class Picture:
    """Shapes within a width and height."""

    width: float
    height: float
    shapes: list[Shape] = field(default_factory=list)


def layout(graph: Graph) -> Picture:
    """Return where everything stands: senders to the left of receivers."""
    columns = _columns(graph)
    sizes = {node.name: _size(node) for node in graph.nodes}
    labels = max([_width(text, SMALL) for edge in graph.edges for text in edge.lines], default=0)
    gap = max(GAP_X, labels + 3 * PAD)
    gap_y = max([GAP_Y, *(ROW * (len(edge.figures) + len(edge.alarms) + 3) for edge in graph.edges if edge.figures)])
    heights = [sum(sizes[node.name][1] for node in column) + gap_y * (len(column) - 1) for column in columns]
    picture = Picture(MARGIN, max(heights) + 2 * MARGIN)
    at: dict[str, Point] = {}
    for column, height in zip(columns, heights, strict=True):
        y = (picture.height - height) / 2
        for node in column:
            at[node.name] = (picture.width, y)
            y += sizes[node.name][1] + gap_y
        picture.width += max(sizes[node.name][0] for node in column) + gap
    picture.width += MARGIN - gap
    for node in graph.nodes:
        picture.shapes += _box(node, at[node.name], sizes[node.name])
    for edge in graph.edges:
        picture.shapes += _arrow(graph, edge, at, sizes)
    for line in _wrapped(graph.caption, picture.width - 2 * MARGIN):
        picture.shapes.append(Shape([(MARGIN, picture.height)], INK, "text", line))
        picture.height += ROW
    return picture


def _wrapped(sentences: Sequence[str], width: float) -> list[str]:
    """Sentences in lines that fit a width, as far as their words do."""
    lines: list[str] = []
    for sentence in sentences:
        lines.append("")
        for word in sentence.split():
            longer = f"{lines[-1]} {word}".lstrip()
            if lines[-1] and _width(longer, SMALL) > width:
                lines.append(word)
            else:
                lines[-1] = longer
    return lines


def _columns(graph: Graph) -> list[list[Node]]:
    """The nodes by their longest way from a source; a circle of links is cut where it is met again."""
    depth = {node.name: 0 for node in graph.nodes}
    for _ in range(len(graph.nodes)):
        for edge in graph.edges:
            if depth[edge.target] <= depth[edge.source] < len(graph.nodes) - 1:
                depth[edge.target] = depth[edge.source] + 1
    levels = sorted(set(depth.values()))
    return [[node for node in graph.nodes if depth[node.name] == level] for level in levels]


def _size(node: Node) -> Point:
    rows = _rows(node)
    widest = max(_width(text, size) + (_width(level, size) + 2 * PAD if level else 0) for text, level, size, _ in rows)
    return widest + 2 * PAD, len(rows) * ROW + 2 * PAD


def _rows(node: Node) -> list[tuple[str, str, int, str]]:
    """What stands in a box, line by line: a text on the left, one on the right, size and color."""
    levels = node.levels or ("",) * len(node.stages)
    return [
        (node.title, "", TITLE, INK),
        *([(node.where, "", SMALL, LINE)] if node.where else []),
        *((text, "", SMALL, INK) for text in node.figures),
        *((stage, level, SMALL, FAINT) for stage, level in zip(node.stages, levels, strict=True)),
        *((text, "", SMALL, ALARM) for text in node.alarms),
    ]


def _box(node: Node, at: Point, size: Point) -> list[Shape]:
    (x, y), (width, height) = at, size
    shapes = []
    for behind in range(min(node.replicas - 1, 2), -1, -1):
        corner = (x + 5 * behind, y + 5 * behind)
        fill = SHADOW if behind else BOX
        shapes.append(Shape([corner, (corner[0] + width, corner[1] + height)], FAINT, "box", fill=fill, dashed=node.outside))
    for number, (text, level, points, color) in enumerate(_rows(node)):
        base = y + PAD + ROW * (number + 0.75)
        shapes.append(Shape([(x + PAD, base)], color, "text", text, points))
        if level:
            shapes.append(Shape([(x + width - PAD, base)], INK, "text", level, points, anchor="end"))
    return shapes


def _arrow(graph: Graph, edge: Edge, at: Mapping[str, Point], sizes: Mapping[str, Point]) -> list[Shape]:
    out = [other for other in graph.edges if other.source == edge.source]
    into = [other for other in graph.edges if other.target == edge.target]
    start = (at[edge.source][0] + sizes[edge.source][0], _slot(at[edge.source][1], sizes[edge.source][1], out.index(edge), len(out)))
    end = (at[edge.target][0], _slot(at[edge.target][1], sizes[edge.target][1], into.index(edge), len(into)))
    bend = max(40.0, abs(end[0] - start[0]) / 2)
    curve = [start, (start[0] + bend, start[1]), (end[0] - bend, end[1]), end]
    middle = _bezier(curve, 0.5)
    shapes = [Shape(curve, LINE, "curve", dashed=edge.publish), Shape([end], LINE, "arrow")]
    shapes.append(Shape([(end[0] - 14, end[1]) if edge.binds_target else start], LINE, "dot"))
    below = [(edge.about, FAINT), *((text, INK) for text in edge.figures), *((text, ALARM) for text in edge.alarms)]
    for text, color, base in [(edge.name, INK, -8.0), *((text, color, 17 + ROW * row) for row, (text, color) in enumerate(below))]:
        if text:
            half = _width(text, SMALL) / 2 + 2
            behind = [(middle[0] - half, middle[1] + base - SMALL), (middle[0] + half, middle[1] + base + 4)]
            shapes.append(Shape(behind, PAPER, "box", fill=PAPER))
            shapes.append(Shape([(middle[0], middle[1] + base)], color, "text", text, anchor="middle"))
    return shapes


def _slot(top: float, height: float, number: int, count: int) -> float:
    return top + height * (number + 1) / (count + 1)


def _bezier(curve: Sequence[Point], t: float) -> Point:
    weights = ((1 - t) ** 3, 3 * t * (1 - t) ** 2, 3 * t * t * (1 - t), t**3)
    return sum(w * x for w, (x, _) in zip(weights, curve, strict=True)), sum(w * y for w, (_, y) in zip(weights, curve, strict=True))


def _width(text: str, size: int) -> float:
    return float(_font(size).getlength(text))


def _font(size: float) -> ImageFont.FreeTypeFont | ImageFont.ImageFont:
    return ImageFont.load_default(size)


def svg(picture: Picture) -> str:
    """Return the picture as SVG."""
    size = f'width="{picture.width:.0f}" height="{picture.height:.0f}" viewBox="0 0 {picture.width:.0f} {picture.height:.0f}"'
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="Aileron, Helvetica, Arial, sans-serif">']
    parts.append(f'<rect width="100%" height="100%" fill="{PAPER}"/>')
    for shape in picture.shapes:
        (x, y), dash = shape.points[0], ' stroke-dasharray="6 4"' if shape.dashed else ""
        if shape.kind == "box":
            width, height = shape.points[1][0] - x, shape.points[1][1] - y
            box = f'x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" rx="6"'
            parts.append(f'<rect {box} fill="{shape.fill}" stroke="{shape.color}"{dash}/>')
        elif shape.kind == "curve":
            path = "M {:.1f} {:.1f} C {:.1f} {:.1f}, {:.1f} {:.1f}, {:.1f} {:.1f}".format(
                *(value for point in shape.points for value in point)
            )
            parts.append(f'<path d="{path}" fill="none" stroke="{shape.color}" stroke-width="1.5"{dash}/>')
        elif shape.kind == "arrow":
            corners = " ".join(f"{px:.1f},{py:.1f}" for px, py in _head(x, y))
            parts.append(f'<polygon points="{corners}" fill="{shape.color}"/>')
        elif shape.kind == "dot":
            parts.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" fill="{shape.color}"/>')
        else:
            anchor, weight = (
                f' text-anchor="{shape.anchor}"' if shape.anchor != "start" else "",
                ' font-weight="600"' if shape.size == TITLE else "",
            )
            parts.append(
                f'<text x="{x:.1f}" y="{y:.1f}" font-size="{shape.size}" fill="{shape.color}"{anchor}{weight}>{escape(shape.text)}</text>'
            )
    return "\n".join([*parts, "</svg>", ""])


def png(picture: Picture) -> Image.Image:
    """Return the picture as an image, with two pixels for each of the SVG's."""
    by = SCALE * SMOOTH
    image = Image.new("RGB", (round(picture.width) * by, round(picture.height) * by), PAPER)
    draw = ImageDraw.Draw(image)
    for shape in picture.shapes:
        points = [(x * by, y * by) for x, y in shape.points]
        if shape.kind == "box":
            draw.rounded_rectangle((*points[0], *points[1]), 6 * by, shape.fill, shape.color, by)
        elif shape.kind == "curve":
            steps = [_bezier(points, step / 60) for step in range(61)]
            for first in range(0, 60, 2 if shape.dashed else 1):
                draw.line([steps[first], steps[first + 1]], shape.color, round(1.5 * by), "curve")
        elif shape.kind == "arrow":
            draw.polygon([(x * by, y * by) for x, y in _head(*shape.points[0])], shape.color)
        elif shape.kind == "dot":
            draw.circle(points[0], 4 * by, shape.color)
        else:
            draw.text(points[0], shape.text, shape.color, _font(shape.size * by), anchor=ANCHORS[shape.anchor])
    return image.reduce(SMOOTH)


def _head(x: float, y: float) -> list[Point]:
    return [(x, y), (x - 9, y - 4.5), (x - 9, y + 4.5)]

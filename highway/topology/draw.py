"""Draw a layout as SVG or PNG. This module does not use Graphviz, because pip cannot install it."""

from __future__ import annotations

from PIL import Image, ImageDraw

from highway.errors import ConfigError
from highway.safe_text import for_markup
from highway.topology.layout import TITLE, Picture, Point, bezier, font

PAPER = "#ffffff"
ANCHORS = {"start": "ls", "middle": "ms", "end": "rs"}  # maps SVG's anchor of a text to Pillow's anchor
LARGEST = 100_000_000  # maximum number of pixels; each pixel has three bytes
SCALE, SMOOTH = 2, 2  # a PNG is SCALE times as large as the SVG; it is drawn SMOOTH times larger and then reduced, for smooth edges


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
            start, *rest = (f"{px:.1f} {py:.1f}" for px, py in shape.points)
            parts.append(f'<path d="M {start} C {", ".join(rest)}" fill="none" stroke="{shape.color}" stroke-width="1.5"{dash}/>')
        elif shape.kind == "arrow":
            corners = " ".join(f"{px:.1f},{py:.1f}" for px, py in _head(x, y))
            parts.append(f'<polygon points="{corners}" fill="{shape.color}"/>')
        elif shape.kind == "dot":
            parts.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" fill="{shape.color}"/>')
        else:
            style = f'font-size="{shape.size}" fill="{shape.color}"'
            style += f' text-anchor="{shape.anchor}"' if shape.anchor != "start" else ""
            style += ' font-weight="600"' if shape.size == TITLE else ""
            parts.append(f'<text x="{x:.1f}" y="{y:.1f}" {style}>{for_markup(shape.text)}</text>')
    return "\n".join([*parts, "</svg>", ""])


def png(picture: Picture) -> Image.Image:
    """Return the picture as an image. The image has twice the width and height of the SVG.

    Raises:
        ConfigError: the image would have too many pixels.
    """
    by = SCALE * SMOOTH
    if (pixels := picture.width * by * picture.height * by) > LARGEST:
        raise ConfigError(f"a picture of so many roles needs {pixels:,.0f} pixels; the maximum is {LARGEST:,}, so write .svg instead")
    image = Image.new("RGB", (round(picture.width) * by, round(picture.height) * by), PAPER)
    draw = ImageDraw.Draw(image)
    for shape in picture.shapes:
        points = [(x * by, y * by) for x, y in shape.points]
        if shape.kind == "box":
            draw.rounded_rectangle((*points[0], *points[1]), 6 * by, shape.fill, shape.color, by)
        elif shape.kind == "curve":
            steps = [bezier(points, step / 60) for step in range(61)]
            for first in range(0, 60, 2 if shape.dashed else 1):
                draw.line([steps[first], steps[first + 1]], shape.color, round(1.5 * by), "curve")
        elif shape.kind == "arrow":
            draw.polygon([(x * by, y * by) for x, y in _head(*shape.points[0])], shape.color)
        elif shape.kind == "dot":
            draw.circle(points[0], 4 * by, shape.color)
        else:
            draw.text(points[0], shape.text, shape.color, font(shape.size * by), anchor=ANCHORS[shape.anchor])
    return image.reduce(SMOOTH)


def _head(x: float, y: float) -> list[Point]:
    return [(x, y), (x - 9, y - 4.5), (x - 9, y + 4.5)]

"""The pictures of the documentation: ``python docs/pictures.py`` draws them anew.

- ``explanation/map.svg``: the rooms, the imports of their files, and the path of a sample, from the code and the lists of ``map.md``.
- ``tutorial/quickstart.svg``: the topology of the quickstart, as ``highway graph`` draws it.
- ``howto/top.svg``: ``highway top`` beside a run of the quickstart.
"""

from __future__ import annotations

import ast
import os
import re
import shutil
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path

from highway.safe_text import for_markup
from highway.topology import load
from highway.topology.draw import svg
from highway.topology.graph import graph
from highway.topology.layout import layout

DOCS = Path(__file__).parent
CODE = DOCS.parent / "highway"
QUICKSTART = CODE / "data" / "quickstart.yaml"
MAP = DOCS / "explanation" / "map.md"
ON_TOP = ("adapters", "cli")  # they may import every room
WIDTH, HEIGHT, GAP, STEP = 184, 76, 20, 116  # pixels: a box, the gap between boxes, and from one row to the next
Spot = str | tuple[str, str, int]  # a room, or where an arrow passes a row
INK, FAINT, LINE, BOX = "#1c1c1e", "#5c5c61", "#3a6ea5", "#f4f6f9"


def imports() -> dict[str, set[str]]:
    """Return the rooms of the map that each room imports, from the imports of all its files."""
    rows = _rows()
    found: dict[str, set[str]] = {}
    for room in [*rows, *ON_TOP]:
        allowed = re.findall(r"\w+", rows[room][1]) if room in rows else rows  # the engine opens what is built on it, as three methods
        files = (CODE / room).rglob("*.py") if (CODE / room).is_dir() else [CODE / f"{room}.py"]
        nodes = [node for file in files for node in ast.walk(ast.parse(file.read_text())) if isinstance(node, ast.ImportFrom)]
        names = {name for node in nodes for name in re.findall(r"^highway\.(\w+)", node.module or "")}
        found[room] = names & set(allowed)
    return found


def _rows() -> dict[str, tuple[str, str]]:
    """Return what each room holds and may import, from the table of the map."""
    rows = re.findall(r"^\| `(\w+)` \| ([^|]+) \| ([\w, ]*)\|$", MAP.read_text(), re.M)
    return {room: (holds.replace("`", ""), imported) for room, holds, imported in rows}


def reduced(imported: Mapping[str, set[str]]) -> dict[str, set[str]]:
    """Return the imports without those that also lead through another room."""

    def below(room: str) -> set[str]:
        return imported[room].union(*(below(other) for other in imported[room]))

    return {room: others - set().union(*(below(other) for other in others)) for room, others in imported.items()}


def architecture() -> str:
    """Return the drawing of the rooms: each in a row above those that it imports, with the steps of a sample as numbers."""
    imported = imports()
    ways = _ways(imported, levels(imported))
    place = _places(levels(imported), ways)
    width, height = max(x for x, _ in place.values()) + WIDTH / 2 + GAP, max(y for _, y in place.values()) + HEIGHT + GAP
    size = f'viewBox="0 0 {width:.0f} {height:.0f}" width="{width:.0f}" height="{height:.0f}"'
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="Helvetica, sans-serif">']
    parts.append('<rect width="100%" height="100%" fill="#ffffff"/>')
    for way in ways:
        for above, below in pairwise(way):
            (x, y), (to_x, to_y) = place[above], place[below]
            y, to_y, end = y + HEIGHT, to_y - 6 * isinstance(below, str), to_y if isinstance(below, str) else to_y + HEIGHT
            curve = f"M {x:.1f} {y} C {x:.1f} {(y + to_y) / 2}, {to_x:.1f} {(y + to_y) / 2}, {to_x:.1f} {to_y} V {end}"
            parts.append(f'<path d="{curve}" fill="none" stroke="{LINE}" stroke-width="1.5"/>')
        parts.append(f'<path d="M {to_x:.1f} {end} l -4 -8 h 8 z" fill="{LINE}"/>')
    steps = path_of_a_sample()
    for room, (middle, y) in place.items():
        if not isinstance(room, str):
            continue
        x = middle - WIDTH / 2
        parts.append(f'<rect x="{x}" y="{y}" width="{WIDTH}" height="{HEIGHT}" rx="6" fill="{BOX}" stroke="{FAINT}"/>')
        parts.append(_text(room, x + 10, y + 20, 15, INK, "600"))
        parts += [_text(text, x + 10, y + 37 + 14 * line, 11, FAINT) for line, text in enumerate(_about(room))]
        for number, step in enumerate(sorted(steps.get(room, ()), reverse=True)):
            at = x + WIDTH - 16 - 22 * number
            parts.append(f'<circle cx="{at}" cy="{y + 15}" r="9" fill="{LINE}"/>')
            parts.append(_text(str(step), at, y + 19, 11, "#ffffff", "600", "middle"))
    return "\n".join([*parts, "</svg>", ""])


def _ways(imported: Mapping[str, set[str]], rows: Sequence[Sequence[str]]) -> list[list[Spot]]:
    """Return the arrows: from a room past the rows between, in each of which it has a spot, to a room that it imports."""
    row = {room: number for number, rooms in enumerate(rows) for room in rooms}
    arrows = [(room, other) for room, others in reduced(imported).items() for other in sorted(others, key=list(row).index)]
    return [[room, *((room, other, number) for number in range(row[room] + 1, row[other])), other] for room, other in arrows]


def _places(rows: Sequence[Sequence[str]], ways: Sequence[Sequence[Spot]]) -> dict[Spot, tuple[float, float]]:
    """Return the upper middle of each spot: below the spots that lead to it, and rows in the middle of the picture."""
    place: dict[Spot, tuple[float, float]] = {}
    for number, rooms in enumerate(rows):
        spots: list[Spot] = [*rooms, *(spot for way in ways for spot in way if not isinstance(spot, str) and spot[2] == number)]
        above = {spot: [place[one][0] for way in ways for one, other in pairwise(way) if other == spot] for spot in spots}
        spots.sort(key=lambda spot: sum(above[spot]) / len(above[spot]) if above[spot] else WIDTH)
        widths = [WIDTH if isinstance(spot, str) else GAP for spot in spots]
        x = -(sum(widths) + GAP * (len(widths) - 1)) / 2
        for spot, width in zip(spots, widths, strict=True):
            place[spot] = x + width / 2, GAP + STEP * number
            x += width + GAP
    left = min(x for spot, (x, _) in place.items()) - WIDTH / 2 - GAP
    return {spot: (x - left, y) for spot, (x, y) in place.items()}


def levels(imported: Mapping[str, set[str]]) -> list[list[str]]:
    """Return the rooms in rows, by the longest chain of imports below them, those with the longest first."""
    order = [*_rows(), *(room for room in imported if room not in _rows())]
    level: dict[str, int] = {}
    for room in order:
        level[room] = max((level[other] + 1 for other in imported[room]), default=0)
    return [[room for room in order if level[room] == number] for number in range(max(level.values()), -1, -1)]


def path_of_a_sample() -> dict[str, list[int]]:
    """Return the steps of the map's path of a sample that lead through each room."""
    steps: dict[str, list[int]] = {}
    for step, text in re.findall(r"^(\d+)\. (.*)$", MAP.read_text(), re.M):
        for room in re.findall(r"`(\w+)/[\w/]+\.py`", text):
            if int(step) not in steps.setdefault(room, []):
                steps[room].append(int(step))
    return steps


def _about(room: str) -> list[str]:
    holds = _rows()[room][0] if room in _rows() else re.findall(rf"`{room}` \((.+?)\)", MAP.read_text())[0]
    return textwrap.wrap(holds.split(";")[0], 29, max_lines=3, placeholder=" ...")


def _text(text: str, x: float, y: float, size: int, color: str, weight: str = "400", anchor: str = "start") -> str:
    style = f'font-size="{size}" font-weight="{weight}" fill="{color}" text-anchor="{anchor}"'
    return f'<text x="{x}" y="{y}" {style}>{for_markup(text)}</text>'


def topology() -> str:
    """Return the drawing of the quickstart's topology."""
    return svg(layout(graph(load(QUICKSTART))))


def top() -> str:
    """Run the quickstart, and return what ``highway top`` shows of it, as SVG."""
    highway = [sys.executable, "-m", "highway"]
    endless = ["--metrics", "0", "--set", "epochs=1000000", "--set", "transport=ipc"]
    with tempfile.TemporaryDirectory() as folder:
        file = shutil.copy(QUICKSTART, folder)  # its own, as are the names of its sockets: another run of the quickstart is not met
        run = subprocess.Popen([*highway, "run", file, *endless], cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        try:
            assert run.stdout is not None
            port = next(found[1] for line in run.stdout if (found := re.search(r"http://\S+:(\d+)/metrics", line)))
            command = [*highway, "top", file, "--metrics", port, "--once", "--interval", "10", "-o", "top.svg"]
            subprocess.run(command, cwd=folder, check=True, env={**os.environ, "COLUMNS": "110"})
            return (Path(folder) / "top.svg").read_text()
        finally:
            run.terminate()
            run.communicate()


PICTURES = {"explanation/map.svg": architecture, "tutorial/quickstart.svg": topology, "howto/top.svg": top}

if __name__ == "__main__":
    for name in sys.argv[1:] or PICTURES:
        (DOCS / name).write_text(PICTURES[name]())

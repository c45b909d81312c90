"""Draw the recorded tables as bars. ``--plots`` of each script reads the figures from README.md and measures nothing.

A picture has one part for each table of rates. highway's bars are dark, bars of bounds are hollow, and a dashed line marks each bound and
target.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator, Sequence
from html import escape
from pathlib import Path
from typing import Any

RECORDED = Path(__file__).resolve().with_name("README.md")
FOLDER = RECORDED.with_name("plots")
WIDTH, LEFT, BARS, ROW = 860, 270, 450, 22  # pixels: the picture, where bars begin, the longest bar, from one bar to the next
OURS, OTHERS, LIMIT, INK = "#3a6ea5", "#b9c2cf", "#c0262d", "#1c1c1e"
TABLE = re.compile(r"^\*\*(.+)\*\*\n\n\| (?:case|loader) +\| +([^|]+?) +\|.*\n\|[-:| ]+\n((?:\|.*\n)+)", re.M)


class Plots(argparse.Action):
    """The option ``--plots``: draw, and end."""

    def __call__(self, parser: argparse.ArgumentParser, *_: Any) -> None:
        written = write(Path(parser.prog).stem)
        parser.exit(message=f"{written}\n" if written else f"{parser.prog}: no table of rates is recorded\n")


def write(name: str) -> Path | None:
    """Draw the recorded tables of a script, and return the file; ``None`` if there are none of rates."""
    if not (picture := draw(RECORDED.read_text(), name)):
        return None
    FOLDER.mkdir(exist_ok=True)
    file = FOLDER / f"{name}.svg"
    if not file.exists() or file.read_text() != picture:
        file.write_text(picture)
    return file


def draw(recorded: str, name: str) -> str:
    """Return the tables of a script as SVG; empty if there are none of rates."""
    part = re.search(f"<!-- {name} -->(.*?)<!-- end of {name} -->", recorded, re.S)
    tables = TABLE.findall(part[1]) if part else []
    parts: list[str] = []
    height = 10
    for title, unit, rows in tables:
        cells = [[cell.strip() for cell in row.split("|")[1:3]] for row in rows.splitlines()]
        rates = [(case, float(rate.replace(",", ""))) for case, rate in cells]
        parts += _part(f"{title}: {unit}", rates, _target(title), height)
        height += ROW * (len(rates) + 2)
    if not parts:
        return ""
    size = f'width="{WIDTH}" height="{height}" viewBox="0 0 {WIDTH} {height}"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="Helvetica, sans-serif" font-size="13">'
    return "\n".join([head, '<rect width="100%" height="100%" fill="#ffffff"/>', *parts, "</svg>", ""])


def _target(title: str) -> list[float]:
    return [float(found.replace(",", "")) for found in re.findall(r"\(target[^:]*: ([\d,.]*\d)", title)]


def _part(title: str, rates: Sequence[tuple[str, float]], targets: Sequence[float], top: float) -> Iterator[str]:
    """Yield the title, the bars and the lines of one table."""
    limits = [*targets, *(rate for case, rate in rates if case.startswith("bound"))]
    largest = max([*(rate for _, rate in rates), *targets])
    yield _text(title, 10, top + 16, weight="600")
    for limit in limits:
        x = LEFT + BARS * limit / largest
        yield f'<path d="M {x:.1f} {top + ROW + 2} V {top + ROW * (len(rates) + 1) + 4}" stroke="{LIMIT}" stroke-dasharray="4 3"/>'
    for row, (case, rate) in enumerate(rates, start=1):
        y, length = top + ROW * row + 6, BARS * rate / largest
        fill = "none" if case.startswith("bound") else OURS if case.startswith("highway") else OTHERS
        yield _text(case, LEFT - 8, y + 12, anchor="end")
        line = INK if fill == "none" else fill
        yield f'<rect x="{LEFT}" y="{y}" width="{max(length, 1):.1f}" height="{ROW - 6}" fill="{fill}" stroke="{line}"/>'
        yield _text(f"{rate:,.0f}" if rate >= 100 else f"{rate:g}", LEFT + length + 6, y + 12)


def _text(text: str, x: float, y: float, weight: str = "400", anchor: str = "start") -> str:
    style = f'font-weight="{weight}" text-anchor="{anchor}" fill="{INK}" stroke="#ffffff" stroke-width="3" paint-order="stroke"'
    return f'<text x="{x:.1f}" y="{y:.1f}" {style}>{escape(text)}</text>'

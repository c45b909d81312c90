"""Fit texts and tables into a width: shorten numbers with units, drop columns, and cut long names."""

from __future__ import annotations

import shutil
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass, field

from highway.safe_text import for_terminal

WIDTH = 80  # characters per line if there is no terminal
GAP = 2  # spaces between two columns, if there is room
SHORTEST_NAME = 8  # minimum length of a cut name

_UNITS = ("", "k", "M", "G", "T")


@dataclass(frozen=True)
class Cell:
    """A cell of a table.

    Args:
        full: The text.
        short: The text if there is little room. By default, the full text.
        style: The style in a terminal, such as ``"red"``.
    """

    full: str
    short: str = ""
    style: str = ""

    def text(self, is_short: bool) -> str:
        """Return the full or the short text."""
        return self.short or self.full if is_short else self.full


def number(value: float | None, digits: int = 0, style: str = "") -> Cell:
    """Return a cell with a number, or ``-`` for ``None``. Large numbers get a unit, such as ``12k`` for 12,345.

    >>> number(1234567).full, number(1234567).short
    ('1,234,567', '1.2M')
    """
    return Cell("-") if value is None else Cell(f"{value:,.{digits}f}", _with_unit(value, digits), style)


def terminal_width() -> int:
    """Return the width of the terminal in characters. The environment variable ``COLUMNS`` overrides it. Without a terminal: 80."""
    return shutil.get_terminal_size((WIDTH, 0)).columns


def wrapped(text: str, width: int, indent: str = "") -> str:
    """Break a text into lines between words. All lines except the first line begin with ``indent``.

    >>> print(wrapped("- give it more workers", 16, "  "))
    - give it more
      workers
    """
    made = textwrap.TextWrapper(max(width, 20), subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)
    return "\n".join(made.fill(line) for line in text.splitlines())


def percent(part: float) -> str:
    """Return a fraction from 0 to 1 as a percentage."""
    return f"{100 * min(part, 1.0):.0f}%"


def _with_unit(value: float, digits: int) -> str:
    if abs(value) < 999.5:
        return f"{value:.{digits if abs(value) < 99.95 else 0}f}"
    power = next((n for n in range(1, len(_UNITS)) if abs(value) < 999.5 * 1000**n), len(_UNITS) - 1)
    value /= 1000**power
    return f"{value:.{0 if abs(value) >= 9.95 else 1}f}{_UNITS[power]}"


@dataclass
class Fitted:
    """A table that is adapted to a width as far as possible.

    Args:
        columns: Indices of the remaining columns.
        rows: The texts of these columns, row by row. They are made safe for a terminal.
        styles: The styles of the texts, row by row.
        gap: Spaces between two columns.
    """

    columns: list[int]
    rows: list[list[str]]
    styles: list[list[str]] = field(default_factory=list)
    gap: int = GAP

    def __post_init__(self) -> None:
        self.rows = [list(map(for_terminal, row)) for row in self.rows]

    @property
    def widths(self) -> list[int]:
        """The width of each column in characters."""
        return [max(map(len, column)) for column in zip(*self.rows, strict=True)]

    def text(self, left: Sequence[int] = (0,)) -> str:
        """Return the table as lines. The columns ``left`` are left-aligned, and the other columns are right-aligned."""
        aligned = [(str.ljust if column in left else str.rjust, width) for column, width in zip(self.columns, self.widths, strict=True)]
        rows = ([align(text, width) for (align, width), text in zip(aligned, row, strict=True)] for row in self.rows)
        return "\n".join((" " * self.gap).join(row).rstrip() for row in rows)


def fit(rows: Sequence[Sequence[Cell]], width: int, drop: Sequence[int] = (), names: Sequence[int] = (0,)) -> Fitted:
    """Return a table whose lines have at most ``width`` characters, if possible.

    Args:
        rows: The cells. The first row contains the headings.
        width: Maximum number of characters of a line.
        drop: Columns that can be dropped, the least important first.
        names: Columns with texts that can be cut.
    """
    kept = list(range(len(rows[0])))
    for is_short, gap, left_out in [(False, GAP, 0), (True, GAP, 0), *((True, 1, count) for count in range(len(drop) + 1))]:
        kept = [column for column in range(len(rows[0])) if column not in drop[:left_out]]
        texts = [[row[column].text(is_short) for column in kept] for row in rows]
        fitted = Fitted(kept, texts, [[row[column].style for column in kept] for row in rows], gap)
        if _total(fitted) <= width:
            return fitted
    _cut_names(fitted, width, [kept.index(column) for column in names if column in kept])
    return fitted


def _total(fitted: Fitted) -> int:
    return sum(fitted.widths) + fitted.gap * (len(fitted.columns) - 1)


def _cut_names(fitted: Fitted, width: int, names: Sequence[int]) -> None:
    """Cut the longest names until the table fits, if possible."""
    while (over := _total(fitted) - width) > 0:
        widths = fitted.widths
        longest = max(names, key=lambda column: widths[column], default=None)
        if longest is None or widths[longest] <= SHORTEST_NAME:
            return
        others = [widths[column] for column in names if column != longest]
        most = max(SHORTEST_NAME, widths[longest] - over, max(others, default=0) - 1)
        for row in fitted.rows:
            if len(name := row[longest]) > most:  # keep the beginning and the end, which identify a name better than the beginning alone
                row[longest] = f"{name[: most // 2]}…{name[len(name) - (most - 1 - most // 2) :]}"

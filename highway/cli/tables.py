"""Tables that fit the width of a terminal."""

from __future__ import annotations

from collections.abc import Sequence

from rich.table import Table
from rich.text import Text

from highway.columns import Cell, fit


def table(rows: Sequence[Sequence[Cell]], width: int, drop: Sequence[int] = (), left: Sequence[int] = (0,)) -> Table:
    """Return cells as a table of at most ``width`` characters, if possible.

    The columns ``left`` are left-aligned. If the table is too wide, columns are omitted, in the order of ``drop``. If the table is still
    too wide, texts in the columns ``left`` are cut.
    """
    fitted = fit(rows, width, drop, left)
    made = Table(box=None, pad_edge=False, padding=(0, fitted.gap, 0, 0), header_style="bold")
    for column, heading in zip(fitted.columns, fitted.rows[0], strict=True):
        made.add_column(heading, no_wrap=True, justify="left" if column in left else "right")
    for texts, styles in zip(fitted.rows[1:], fitted.styles[1:], strict=True):
        made.add_row(*map(Text, texts, styles))
    return made

"""Show pipelines and their statistics in notebooks, and make a notebook release an object that it has shown."""

from __future__ import annotations

import html
import sys
import weakref
from collections.abc import Sequence
from typing import Any

_LAST = ("_", "__", "___")  # IPython's names for the last three outputs


def table(rows: Sequence[Sequence[str]], *sentences: str) -> str:
    """Return an HTML table, and below it some sentences. The first row is the heading of the table."""
    first, *others = rows
    head, body = _row(first, "th"), "".join(_row(row, "td") for row in others)
    return f"<table><thead>{head}</thead><tbody>{body}</tbody></table>{''.join(map(paragraph, sentences))}"


def paragraph(sentence: str) -> str:
    """Return a sentence in HTML.

    >>> paragraph("a -> b")
    '<p>a -&gt; b</p>'
    """
    return f"<p>{html.escape(sentence)}</p>"


def _row(cells: Sequence[str], tag: str) -> str:
    sides = ["left", *("right" for _ in cells[1:])]
    aligned = (f"<{tag} style='text-align: {side}'>{html.escape(cell)}</{tag}>" for cell, side in zip(cells, sides))
    return f"<tr>{''.join(aligned)}</tr>"


def release(shown: object) -> None:
    """Make IPython keep the ``repr()`` of a displayed object in its output history, not the object.

    Otherwise, ``Out`` and ``_`` would keep a pipeline and its threads alive until the session ends. Without IPython, do nothing.
    """
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython else None
    if shell is None:
        return
    text, reference = repr(shown), weakref.ref(shown)

    def replace() -> None:
        shell.events.unregister("post_execute", replace)
        if (value := reference()) is not None:
            outputs: dict[Any, Any] = shell.user_ns.get("_oh", {})
            numbered = [f"_{number}" for number, output in outputs.items() if output is value]
            outputs.update({number: text for number, output in outputs.items() if output is value})
            for names in (shell.user_ns, shell.user_ns_hidden):
                names.update({name: text for name in (*_LAST, *numbered) if names.get(name) is value})
            for name in _LAST:
                if getattr(shell.displayhook, name, None) is value:
                    setattr(shell.displayhook, name, text)

    shell.events.register("post_execute", replace)  # the output enters the history after it was shown

"""What a notebook shows of pipelines and their statistics, and how it lets go of what it has shown."""

from __future__ import annotations

import html
import sys
import weakref
from collections.abc import Sequence
from typing import Any

_LAST = ("_", "__", "___")  # IPython's names for the last three outputs


def table(rows: Sequence[Sequence[str]], *sentences: str) -> str:
    """Return a table in HTML, whose first row is its heading, with sentences below it."""
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
    """Have IPython keep the ``repr()`` of a displayed object in its history of outputs, and not the object itself.

    Else ``Out`` and ``_`` would hold it until the session ends, and a pipeline's threads with it. Without IPython nothing is done.
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

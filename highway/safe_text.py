"""Make texts from other processes, files and servers safe for display.

Such texts can contain escape sequences that control a terminal, line breaks that forge lines of a log, and characters that XML does not
allow. All code that shows such texts calls :func:`for_terminal` or :func:`for_markup`.
"""

from __future__ import annotations

import html
import logging
from collections.abc import Mapping
from typing import Any


def for_terminal(text: object) -> str:
    r"""Return a text as one line. Each character that is not printable is replaced by its Python escape sequence.

    >>> for_terminal("a\x1b[2J\nb")
    'a\\x1b[2J\\nb'
    """
    shown = str(text)
    if shown.isprintable():
        return shown
    return "".join(one if one.isprintable() else one.encode("unicode_escape").decode() for one in shown)


def for_markup(text: object) -> str:
    r"""Return a text for XML and HTML: the result of :func:`for_terminal`, in which entities such as ``&lt;`` replace markup characters.

    >>> for_markup("<b>\x00")
    '&lt;b&gt;\\x00'
    """
    return html.escape(for_terminal(text))


class _Shown:
    """An argument of a log message. Formatting makes it safe."""

    def __init__(self, value: object) -> None:
        self._value = value

    def __str__(self) -> str:
        return for_terminal(self._value)

    def __repr__(self) -> str:
        return for_terminal(repr(self._value))


def _make_safe(record: logging.LogRecord) -> bool:
    """Make the arguments of a log message safe for all handlers."""
    if isinstance(record.args, Mapping):  # logging unpacks a mapping that is the only argument
        record.args = (record.args,)
    if isinstance(record.args, tuple):
        record.args = tuple(argument if isinstance(argument, (int, float)) else _Shown(argument) for argument in record.args)
    return True


def guard_log(name: str) -> None:
    """Make each message of a logger a single line without escape sequences."""
    logger: Any = logging.getLogger(name)
    if _make_safe not in logger.filters:
        logger.addFilter(_make_safe)

"""Ctrl-C in a script: exit with code 130 and without a traceback, while pipelines wait for the script to end.

:mod:`highway.engine.script` registers these pipelines. Elsewhere in a script, in programs with their own signal handler, in notebooks and
in libraries, Ctrl-C has its usual effect in Python.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from types import FrameType, TracebackType
from typing import Any

from highway.process.interrupt import CODE

lost = False
"""Whether an interrupt came at a moment when it could not be raised. The next code that can end the program must end it."""

_raising: list[Any] = [signal.default_int_handler]  # handlers that raise KeyboardInterrupt; this module replaces no other handler
_quiet: list[Callable[[], bool]] = []  # each function returns whether an interrupt at this moment needs no traceback


def is_script() -> bool:
    """Return whether the interpreter runs a script, not an interactive session."""
    return hasattr(sys.modules.get("__main__"), "__file__") and not (hasattr(sys, "ps1") or sys.flags.interactive)


def quiet_while(wanted: Callable[[], bool], runs: Callable[[FrameType | None], bool]) -> None:
    """Make Ctrl-C end the script without a traceback while ``wanted()`` is true.

    Args:
        wanted: Function that returns whether to omit the traceback at this moment.
        runs: Function of the interrupted frame that returns whether the script is still running. After the script has ended, an exception
            would be lost in the interpreter's code, so :data:`lost` is set instead.
    """
    _quiet.append(wanted)

    def hear(number: int, frame: FrameType | None) -> None:
        global lost
        if wanted() and not runs(frame):
            lost = True
        else:
            signal.default_int_handler(number, frame)

    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        with suppress(ValueError):
            signal.signal(signal.SIGINT, hear)
            _raising.append(hear)
            sys.excepthook, sys.unraisablehook = partial(_uncaught, sys.excepthook), partial(_unraisable, sys.unraisablehook)


@contextmanager
def held() -> Iterator[Callable[[], bool]]:
    """Delay Ctrl-C until the end of the ``with`` block, because an exception inside the block could leave a lock held.

    Yields:
        A function that returns whether Ctrl-C came.
    """
    came: list[int] = []
    if signal.getsignal(signal.SIGINT) not in _raising:
        yield lambda: False
        return
    try:
        before = signal.signal(signal.SIGINT, lambda number, _: came.append(number))
    except ValueError:  # this is not the main thread, and only the main thread is interrupted
        yield lambda: False
        return
    try:
        yield lambda: bool(came)
    finally:
        signal.signal(signal.SIGINT, before if before is not None else signal.SIG_DFL)
        if came:
            signal.raise_signal(signal.SIGINT)


def _uncaught(before: Callable[..., Any], kind: type[BaseException], value: BaseException, trace: TracebackType | None) -> None:
    """A ``sys.excepthook`` that exits with code 130 after an interrupt that needs no traceback."""
    if kind is KeyboardInterrupt and any(wanted() for wanted in _quiet):
        raise SystemExit(CODE)
    before(kind, value, value.__traceback__)


def _unraisable(before: Callable[..., Any], unraisable: Any) -> None:
    """A ``sys.unraisablehook`` that remembers an interrupt in a destructor or a callback."""
    global lost
    if unraisable.exc_type is KeyboardInterrupt and any(wanted() for wanted in _quiet):
        lost = True
    else:
        before(unraisable)

"""Ctrl-C in a script: exit code 130 and no traceback while pipelines wait for it to end.

These pipelines are those of :mod:`highway.engine.script`. In all else that a script does, in programs with a handler of their own, in
notebooks and in libraries, Python decides what Ctrl-C does.
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
"""Whether an interrupt came where it could not be raised, so that whoever comes next has to end the program."""

_raising: list[Any] = [signal.default_int_handler]  # handlers that raise; who ignores Ctrl-C, or has another handler, keeps it
_quiet: list[Callable[[], bool]] = []  # say whether an interrupt of the script now needs no traceback


def is_script() -> bool:
    """Say whether the interpreter runs a script, rather than an interactive session."""
    return hasattr(sys.modules.get("__main__"), "__file__") and not (hasattr(sys, "ps1") or sys.flags.interactive)


def quiet_while(wanted: Callable[[], bool], runs: Callable[[FrameType | None], bool]) -> None:
    """Have Ctrl-C end the script without a traceback while ``wanted()``.

    Args:
        wanted: Says whether that is so now.
        runs: Says of the frame that was interrupted whether the script still runs. When it has ended, an exception would be lost in the
            interpreter's own code: then :data:`lost` is set instead.
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
    """Note Ctrl-C in the block instead of raising it, since an exception could leave a lock held; it is raised behind the block.

    Yields:
        What says whether it came.
    """
    came: list[int] = []
    if signal.getsignal(signal.SIGINT) not in _raising:
        yield lambda: False
        return
    try:
        before = signal.signal(signal.SIGINT, lambda number, _: came.append(number))
    except ValueError:  # off the main thread, which is the one that is interrupted
        yield lambda: False
        return
    try:
        yield lambda: bool(came)
    finally:
        signal.signal(signal.SIGINT, before if before is not None else signal.SIG_DFL)
        if came:
            signal.raise_signal(signal.SIGINT)


def _uncaught(before: Callable[..., Any], kind: type[BaseException], value: BaseException, trace: TracebackType | None) -> None:
    """``sys.excepthook``: an interrupt that is to be quiet ends the script with the code."""
    if kind is KeyboardInterrupt and any(wanted() for wanted in _quiet):
        raise SystemExit(CODE)
    before(kind, value, value.__traceback__)


def _unraisable(before: Callable[..., Any], unraisable: Any) -> None:
    """``sys.unraisablehook``: an interrupt in a destructor or a callback is not lost."""
    global lost
    if unraisable.exc_type is KeyboardInterrupt and any(wanted() for wanted in _quiet):
        lost = True
    else:
        before(unraisable)

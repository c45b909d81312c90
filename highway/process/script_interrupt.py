"""Ctrl-C in a script: exit code 130 and no traceback while it imports highway, and while pipelines wait for it to end.

Those are of :mod:`highway.engine.script`. In all else that a script does, and in programs with a handler of their own, in notebooks and in
libraries, Ctrl-C is what Python makes of it.
"""

from __future__ import annotations

import os
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

_PACKAGE = "highway"
_raising: list[Any] = [signal.default_int_handler]  # handlers that raise; who ignores Ctrl-C, or has another handler, keeps it
_quiet: list[Callable[[], bool]] = []  # say whether an interrupt of the script now needs no traceback


def begin_imports() -> None:
    """Have Ctrl-C end the import of highway quietly, if a script imports it."""
    if signal.getsignal(signal.SIGINT) is not signal.default_int_handler or not is_script():
        return
    with suppress(ValueError):  # off the main thread
        signal.signal(signal.SIGINT, _note)
        sys.excepthook, sys.unraisablehook = partial(_uncaught, sys.excepthook), partial(_unraisable, sys.unraisablehook)


def end_imports() -> None:
    """Raise an interrupt that came while highway was imported. Called once, at the end of the package.

    In the middle of it numpy would take one for an import that has failed.
    """
    global lost
    if signal.getsignal(signal.SIGINT) is _note:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        if lost:
            lost = False
            raise KeyboardInterrupt


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
    """``sys.excepthook``: an interrupt ends the script with the code, if it came while highway was imported, or is to be quiet."""
    if kind is KeyboardInterrupt and (any(wanted() for wanted in _quiet) or any(map(_is_ours, _frames(trace)))):
        raise SystemExit(CODE)
    before(kind, value, value.__traceback__)


def _unraisable(before: Callable[..., Any], unraisable: Any) -> None:
    """``sys.unraisablehook``: an interrupt in a destructor or a callback is not lost."""
    global lost
    if unraisable.exc_type is KeyboardInterrupt and any(wanted() for wanted in _quiet):
        lost = True
    elif unraisable.exc_type is KeyboardInterrupt and any(map(_is_ours, _callers(sys._getframe()))):
        os._exit(CODE)
    else:
        before(unraisable)


def _frames(trace: TracebackType | None) -> Iterator[FrameType]:
    while trace is not None:
        yield trace.tb_frame
        trace = trace.tb_next


def _callers(frame: FrameType | None) -> Iterator[FrameType]:
    while frame is not None:
        yield frame
        frame = frame.f_back


def _is_ours(frame: FrameType) -> bool:
    """Say whether a frame imports one of highway's modules, or constructs a component or pipeline: what needs no traceback."""
    module, function = str(frame.f_globals.get("__name__")), frame.f_code.co_name
    if (module, function) == ("importlib._bootstrap", "_find_and_load"):
        module, function = str(frame.f_locals.get("name")), "<module>"  # which it looks for, or is about to execute
    if function == "<module>":
        return module.partition(".")[0] == _PACKAGE
    return (module.removeprefix(f"{_PACKAGE}."), function) in (
        ("engine.pipeline", "__init__"),
        ("parameters.checks", "__init__"),  # of each component
        ("lazy", "find"),
    )


def _note(number: int, frame: FrameType | None) -> None:
    global lost
    spec = sys.modules[_PACKAGE].__spec__ if _PACKAGE in sys.modules else None
    if not getattr(spec, "_initializing", False):  # the import has failed, and the script goes on without
        signal.default_int_handler(number, frame)
    lost = True

"""Ctrl-C while a command of highway begins or ends: exit code 130 at once, and no traceback; and the end of a process with its parent.

Python's ``KeyboardInterrupt`` would come out of the middle of an import, or of the interpreter's own end. While a command does its work it
gets that exception, which it expects there. Until the package itself is imported, Python decides what Ctrl-C does.
"""

from __future__ import annotations

import atexit
import os
import signal
import sys
import time
from _thread import get_ident, start_new_thread  # that of ``threading`` takes locks, which what is interrupted may hold
from collections.abc import Callable
from types import FrameType
from typing import Any

CODE = 130

_runs_command = False


def leave_quietly() -> None:
    """From now on Ctrl-C ends the process at once, with exit code 130; nothing may be under way that has to be cleaned up."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # else Ctrl-C is ignored, as in the background of a script
        signal.signal(signal.SIGINT, _leave)
        ignore_at_exit()
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])


def leave_quietly_again() -> None:
    """Do as :func:`leave_quietly` in a command that :func:`run_command` runs; other code that calls one keeps its Ctrl-C."""
    if _runs_command:
        leave_quietly()


def ignore_at_exit() -> None:
    """Have Ctrl-C do nothing when the interpreter is as good as gone: there it would be a signal without a handler, not an exit code."""
    atexit.unregister(_ignore)
    atexit.register(_ignore)


def raise_again() -> None:
    """From now on Ctrl-C raises ``KeyboardInterrupt``, as usual; in a destructor or a callback, which would drop it, a moment later."""
    if signal.getsignal(signal.SIGINT) is _leave:
        _except_for(_interrupt_again)
        signal.signal(signal.SIGINT, signal.default_int_handler)


def run_command(main: Callable[[], int]) -> int:
    """Run a command and return its exit code; before it calls :func:`raise_again`, and after it, Ctrl-C ends the process."""
    global _runs_command
    if signal.getsignal(signal.SIGINT) is not _leave:  # called by other code, or Ctrl-C is ignored
        return main()
    _runs_command = True
    try:
        try:
            return main()
        finally:
            leave_quietly()
    except KeyboardInterrupt:
        return CODE
    finally:
        exec("")  # an interrupt that came out of an exec (dataclasses have them) is remembered: ``python -m`` would die by the signal


def die_with_parent(number: int) -> None:
    """Have the kernel send this process a signal when the thread that started it ends, even by being killed; only on Linux."""
    if sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None).prctl(1, number)  # PR_SET_PDEATHSIG, linux/prctl.h


class Withheld:
    """Withhold Ctrl-C from the processes that are started in the block until they let it through: as :func:`leave_quietly` does."""

    def __enter__(self) -> None:
        self._before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])

    def __exit__(self, *_: object) -> None:
        signal.pthread_sigmask(signal.SIG_SETMASK, self._before)


def _except_for(handled: Callable[[Any], bool]) -> None:
    """Have ``handled`` see, and say whether it has dealt with, what ``sys.unraisablehook`` would otherwise print."""
    before = sys.unraisablehook

    def unraisable_hook(unraisable: Any) -> None:
        if not handled(unraisable):
            before(unraisable)

    sys.unraisablehook = unraisable_hook


def _interrupt_again(unraisable: Any) -> bool:
    """Say whether what was dropped is an interrupt, which then comes once more."""
    if unraisable.exc_type is not KeyboardInterrupt:
        return False
    start_new_thread(_interrupt_soon, (get_ident(),))
    return True


def _interrupt_soon(thread: int) -> None:
    time.sleep(0.01)  # behind the destructor or callback; if that takes longer, once more
    while _is_in_hook(sys._current_frames().get(thread)):  # where it would be dropped for good
        time.sleep(0.001)
    os.kill(os.getpid(), signal.SIGINT)


def _is_in_hook(frame: FrameType | None) -> bool:
    while frame is not None and not (frame.f_code.co_name == "unraisable_hook" and frame.f_globals is globals()):
        frame = frame.f_back
    return frame is not None


def _ignore() -> None:
    # What Python says of a signal that comes just before its handler is taken away: "Signal 2 ignored due to race condition".
    _except_for(lambda unraisable: unraisable.exc_type is OSError and "race condition" in str(unraisable.exc_value))
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _leave(number: int, frame: FrameType | None) -> None:
    for stream in (sys.stdout, sys.stderr):
        try:  # noqa: SIM105  # contextlib may be what is just being imported
            stream.flush()
        except Exception:  # it is in the middle of a write, or closed
            pass
    os._exit(CODE)

"""Ctrl-C while a highway command starts or ends: exit with code 130 immediately, without a traceback. Also: end a process with its parent.

Without this module, Python would raise ``KeyboardInterrupt`` in the middle of an import or of the interpreter's exit. While a command runs,
the command handles ``KeyboardInterrupt``. Before this package is imported, Ctrl-C has its usual effect in Python.
"""

from __future__ import annotations

import atexit
import os
import signal
import sys
import time
from _thread import get_ident, start_new_thread  # not ``threading``, whose locks the interrupted code may hold
from collections.abc import Callable
from types import FrameType
from typing import Any

CODE = 130

_is_program = False
_runs_command = False


def leave_quietly() -> None:
    """Make Ctrl-C end the process immediately with exit code 130. Only for a highway command that has nothing to clean up."""
    global _is_program
    _is_program = True
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # or Ctrl-C is ignored, as in the background of a script
        signal.signal(signal.SIGINT, _leave)
        ignore_at_exit()
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])


def leave_quietly_again() -> None:
    """Call :func:`leave_quietly` if :func:`run_command` runs the command. If other code calls the command, do nothing."""
    if _runs_command:
        leave_quietly()


def is_program() -> bool:
    """Return whether this process is a highway command, not a program that calls a command."""
    return _is_program


def ignore_at_exit() -> None:
    """Ignore Ctrl-C at the very end of the interpreter. At that time, Ctrl-C would kill the process by the signal, without an exit code."""
    atexit.unregister(_ignore)
    atexit.register(_ignore)


def raise_again() -> None:
    """Make Ctrl-C raise ``KeyboardInterrupt`` as usual. If it comes in a destructor or callback, raise it a moment later."""
    if signal.getsignal(signal.SIGINT) is _leave:
        _except_for(_interrupt_again)
        signal.signal(signal.SIGINT, signal.default_int_handler)


def run_command(main: Callable[[], int]) -> int:
    """Run a command and return its exit code. Before the command calls :func:`raise_again`, and after it ends, Ctrl-C ends the process."""
    global _runs_command
    if signal.getsignal(signal.SIGINT) is not _leave:  # other code has called the command, or Ctrl-C is ignored
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
        exec("")  # clear Python's memory of an interrupt in an exec (dataclasses use exec), or ``python -m`` dies by the signal


def die_with_parent(number: int) -> None:
    """Make the kernel send this process a signal when the thread that started this process ends, even by a kill. Linux only."""
    if sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None).prctl(1, number)  # PR_SET_PDEATHSIG, linux/prctl.h


def ignore_interrupts() -> None:
    """Ignore Ctrl-C in a child that was started in :class:`Withheld`. The parent also receives it, and ends its children if necessary."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])


class Withheld:
    """Block Ctrl-C in processes that are started in the ``with`` block, until they unblock Ctrl-C, as :func:`leave_quietly` does."""

    def __enter__(self) -> None:
        self._before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])

    def __exit__(self, *_: object) -> None:
        signal.pthread_sigmask(signal.SIG_SETMASK, self._before)


def _except_for(handled: Callable[[Any], bool]) -> None:
    """Pass errors to ``handled`` first. If it returns ``False``, pass them to ``sys.unraisablehook``, which prints them."""
    before = sys.unraisablehook

    def unraisable_hook(unraisable: Any) -> None:
        if not handled(unraisable):
            before(unraisable)

    sys.unraisablehook = unraisable_hook


def _interrupt_again(unraisable: Any) -> bool:
    """If the dropped error is an interrupt, soon send the interrupt again, and return ``True``."""
    if unraisable.exc_type is not KeyboardInterrupt:
        return False
    start_new_thread(_interrupt_soon, (get_ident(),))
    return True


def _interrupt_soon(thread: int) -> None:
    time.sleep(0.01)  # wait for the end of the destructor or callback; if it takes longer, the interrupt is sent once more
    while _is_in_hook(sys._current_frames().get(thread)):  # an interrupt in the hook itself would be lost
        time.sleep(0.001)
    os.kill(os.getpid(), signal.SIGINT)


def _is_in_hook(frame: FrameType | None) -> bool:
    while frame is not None and not (frame.f_code.co_name == "unraisable_hook" and frame.f_globals is globals()):
        frame = frame.f_back
    return frame is not None


def _ignore() -> None:
    # If a signal comes just before its handler is removed, Python prints "Signal 2 ignored due to race condition".
    _except_for(lambda unraisable: unraisable.exc_type is OSError and "race condition" in str(unraisable.exc_value))
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _leave(number: int, frame: FrameType | None) -> None:
    for stream in (sys.stdout, sys.stderr):
        try:  # noqa: SIM105  # contextlib may be in the middle of its import
            stream.flush()
        except Exception:  # the stream is closed, or in the middle of a write
            pass
    os._exit(CODE)

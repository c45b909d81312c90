"""Ctrl-C in highway's commands and in the processes that they start. Also: delay Ctrl-C in a script, and end a process with its parent."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

CODE = 130

_is_program = False


def begin_program() -> None:
    """Record that this process is a highway command, not a program that calls a command, and call :func:`end_at_once`."""
    global _is_program
    _is_program = True
    end_at_once()
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])


def is_program() -> bool:
    """Return whether this process is a highway command, not a program that calls a command."""
    return _is_program


def end_at_once() -> None:
    """If this process is a highway command, make Ctrl-C end it immediately with exit code 130.

    Call it before imports, because some libraries turn ``KeyboardInterrupt`` into another error. The process must have nothing to clean up.
    """
    if _is_program and signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # not if Ctrl-C is ignored
        signal.signal(signal.SIGINT, _end)


def raise_again() -> None:
    """Make Ctrl-C raise ``KeyboardInterrupt`` again after :func:`end_at_once`."""
    if signal.getsignal(signal.SIGINT) is _end:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _end(number: int, frame: FrameType | None) -> None:
    os._exit(CODE)


@contextmanager
def held() -> Iterator[Callable[[], bool]]:
    """Delay Ctrl-C until the end of the ``with`` block, because an exception inside the block could leave a lock held.

    If the program has its own handler of Ctrl-C, or outside of the main thread, this function does nothing.

    Yields:
        A function that returns whether Ctrl-C came and was delayed.
    """
    came: list[int] = []
    if signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield lambda: False
        return
    try:
        signal.signal(signal.SIGINT, lambda number, _: came.append(number))
    except ValueError:  # this is not the main thread, and only the main thread is interrupted
        yield lambda: False
        return
    try:
        yield lambda: bool(came)
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        if came:
            signal.raise_signal(signal.SIGINT)


class Withheld:
    """Block Ctrl-C in processes that are started in the ``with`` block, until they unblock Ctrl-C, as :func:`begin_program` does."""

    def __enter__(self) -> None:
        self._before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])

    def __exit__(self, *_: object) -> None:
        signal.pthread_sigmask(signal.SIG_SETMASK, self._before)


def ignore_interrupts() -> None:
    """Ignore Ctrl-C in a child that was started in :class:`Withheld`. The parent receives Ctrl-C, and ends its children if necessary."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])


def die_with_parent(number: int) -> None:
    """Make the kernel send this process a signal when the thread that started this process ends or is killed. Linux only."""
    if sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None).prctl(1, number)  # PR_SET_PDEATHSIG, linux/prctl.h

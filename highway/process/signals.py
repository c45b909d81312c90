"""Receive signals as data, and return their names."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Iterable, Iterator
from typing import Any


@contextlib.contextmanager
def received(numbers: Iterable[int]) -> Iterator[int]:
    """Receive signals as data instead of exceptions. An exception could leave a lock locked.

    Yields a descriptor from which to read the numbers of the signals. Only the main thread receives signals. In all other threads, the
    descriptor stays empty.
    """
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    before: dict[int, Any] = {}
    wakeup: int | None = None
    try:
        if are_heard():
            wakeup = signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
            for number in numbers:
                before[number] = signal.signal(number, lambda *_: None)  # this call raises KeyboardInterrupt if Ctrl-C came just before
        yield reading
    finally:
        if wakeup is not None:
            signal.set_wakeup_fd(wakeup)
        for number, handler in before.items():
            signal.signal(number, handler)
        os.close(reading)
        os.close(writing)


def name_of(number: int) -> str:
    """Return the name of a signal, or a description for realtime signals, which have no names."""
    return signal.Signals(number).name if number in set(signal.Signals) else f"signal {number}"


def are_heard() -> bool:
    """Return whether this thread is the main thread. Only the main thread receives signals."""
    return threading.current_thread() is threading.main_thread()

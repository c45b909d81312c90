"""Signals: their names, and signals as data."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Iterable, Iterator
from typing import Any


@contextlib.contextmanager
def received(numbers: Iterable[int]) -> Iterator[int]:
    """Receive signals as data instead of exceptions, because an exception while a lock is taken would leave it locked.

    Yields a descriptor to read their numbers from. In other threads than the main thread it stays empty, because they receive no signals.
    """
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    before: dict[int, Any] = {}
    wakeup: int | None = None
    try:
        if are_heard():
            wakeup = signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
            for number in numbers:
                before[number] = signal.signal(number, lambda *_: None)  # raises KeyboardInterrupt if Ctrl-C came just before
        yield reading
    finally:
        if wakeup is not None:
            signal.set_wakeup_fd(wakeup)
        for number, handler in before.items():
            signal.signal(number, handler)
        os.close(reading)
        os.close(writing)


def name_of(number: int) -> str:
    """Return the name of a signal; realtime signals have none."""
    return signal.Signals(number).name if number in set(signal.Signals) else f"signal {number}"


def are_heard() -> bool:
    """Return whether this is the main thread, which alone receives signals."""
    return threading.current_thread() is threading.main_thread()

"""A thread that constantly requests the GIL. While this thread waits for the GIL, other threads hold it."""

from __future__ import annotations

import time
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Self

AT_ONCE = 50  # steps of plain Python between two checks whether it is over


class Rival:
    """Runs plain Python beside the code in a ``with`` block.

    The thread works only while no other thread holds the GIL. So in the rest of the time, other threads hold the GIL. On a busy machine,
    the result is too small, because a thread that waits for a core and for the GIL counts as waiting for a core.

    Attributes:
        kept_out: Seconds in which this thread could not work; known at the end.
    """

    def __init__(self) -> None:
        self.kept_out = 0.0
        self._over = False
        self._begun: Future[None] = Future()

    def __enter__(self) -> Self:
        self._pool = ThreadPoolExecutor(1, "highway-rival")
        self._worked: Future[float] = self._pool.submit(self._work)
        self._begun.result()  # else it would miss the time before its thread runs
        return self

    def __exit__(self, *_: object) -> None:
        self._over = True
        self._pool.shutdown()
        self.kept_out = self._worked.result()

    def _work(self) -> float:
        began, could_have = time.perf_counter(), _working_or_waiting()
        self._begun.set_result(None)
        while not self._over:
            for _ in range(AT_ONCE):
                pass
        return max(0.0, time.perf_counter() - began - (_working_or_waiting() - could_have))


def _working_or_waiting() -> float:
    """Return the seconds in which this thread worked, or waited only for a core that other processes used: Linux reports both."""
    try:
        worked, waited, _ = Path("/proc/thread-self/schedstat").read_text().split()
    except (OSError, ValueError):
        return time.thread_time()
    return (int(worked) + int(waited)) / 1e9

"""The thread that runs all requests to stores: one thread for each process. A forked child creates a new thread.

Code that needs a store passes a coroutine to this thread and waits for the result. If the stage of the code is cancelled, all requests of
the coroutine are cancelled, and the waiting code raises an error within :data:`TICK`.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import os
import threading
import time
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator
from contextvars import ContextVar
from typing import Any, Generic, TypeVar

from highway.engine.cancel import check_cancelled
from highway.engine.context import here

T = TypeVar("T")

TICK = 0.1  # seconds between two checks whether the stage was cancelled
_PATIENCE = 2.0  # maximum seconds for requests to end when the process exits
_LOOKS, _LOOK_EVERY = 3, 0.002  # number of checks that must find all threads idle, and the seconds between two checks

_counts: ContextVar[Counter[str]] = ContextVar("counts")
_totals: Counter[str] = Counter()
_from_parent: list[object] = []  # objects of the parent process: neither used nor freed, because the parent's threads do not exist here


class StoreLoop(threading.Thread):
    """Runs an event loop until the process ends."""

    def __init__(self) -> None:
        super().__init__(name="highway-stores", daemon=True)
        self.loop = asyncio.new_event_loop()

    def run(self) -> None:
        asyncio.set_event_loop(self.loop)
        self.loop.run_forever()

    def stop(self) -> None:
        """Cancel all requests, so that no request returns to an interpreter that is exiting."""

        async def stop() -> None:
            others = asyncio.all_tasks() - {asyncio.current_task()}
            for task in others:
                task.cancel()
            await asyncio.wait(others, timeout=_PATIENCE) if others else None
            self.loop.stop()

        if self.is_alive():
            asyncio.run_coroutine_threadsafe(stop(), self.loop)
            self.join(_PATIENCE)
            _wait_for_tokio()


def _wait_for_tokio() -> None:
    """Wait until the threads of obstore are idle. A thread that drops an answer after the interpreter's end would abort the process."""
    until, resting = time.monotonic() + _PATIENCE, 0
    while resting < _LOOKS and time.monotonic() < until:
        time.sleep(_LOOK_EVERY)  # sleep() releases the GIL, which these threads need
        resting = 0 if any(state != "S" for state in _states("tokio")) else resting + 1


def _states(name: str) -> Iterator[str]:
    """Yield the states of this process's threads whose names begin with ``name``. A waiting thread has the state ``S``."""
    for thread in os.listdir("/proc/self/task"):
        with contextlib.suppress(OSError), open(f"/proc/self/task/{thread}/stat", encoding="utf-8", errors="replace") as file:
            about, _, state = file.read().rpartition(") ")
            if about.partition("(")[2].startswith(name):
                yield state[0]


class _OfProcess:
    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.thread: StoreLoop | None = None

    def loop(self) -> asyncio.AbstractEventLoop:
        with self.lock:
            if self.thread is None:
                self.thread = StoreLoop()
                self.thread.start()
                atexit.register(self.thread.stop)
            return self.thread.loop


_here = _OfProcess()


def _forked() -> None:
    global _here
    if _here.thread is not None:
        atexit.unregister(_here.thread.stop)
    _from_parent.append(_here)
    _here = _OfProcess()
    _totals.clear()


os.register_at_fork(after_in_child=_forked)


def keep_from_parent(what: object) -> None:
    """Keep an object of the parent process in a forked child, so that the object is neither used nor freed."""
    _from_parent.append(what)


class Started(Generic[T]):
    """A coroutine that runs on the thread of the stores.

    Args:
        coroutine: The coroutine to run.
        patience: Maximum seconds for the coroutine to undo its work after a cancellation.
    """

    def __init__(self, coroutine: Coroutine[Any, Any, T], patience: float = 0.0) -> None:
        self._counts: Counter[str] = Counter()
        self._patience, self._ended = patience, threading.Event()
        token = _counts.set(self._counts)  # the coroutine runs in a copy of this context
        try:
            self._future = asyncio.run_coroutine_threadsafe(self._ending(coroutine) if patience else coroutine, _here.loop())
        finally:
            _counts.reset(token)

    async def _ending(self, coroutine: Coroutine[Any, Any, T]) -> T:
        try:
            return await coroutine
        finally:
            self._ended.set()

    def result(self) -> T:
        """Wait for the result. If the stage of this thread is cancelled, or the thread is interrupted, cancel the coroutine.

        The counts of the coroutine (:func:`count`) are added to the counters of the stage.
        """
        try:
            while True:
                try:
                    return self._future.result(TICK)
                except TimeoutError:
                    if self._future.done():
                        raise
                    check_cancelled()
        finally:
            self.give_up()
            counted(self._counts)
            self._counts = Counter()

    def give_up(self) -> None:
        """If the coroutine has not finished, cancel it and its requests."""
        if self._future.cancel():
            self._ended.wait(self._patience)


def run(coroutine: Coroutine[Any, Any, T], patience: float = 0.0) -> T:
    """Run a coroutine on the thread of the stores, and return its result; see :class:`Started`."""
    return Started(coroutine, patience).result()


def count(name: str, number: int = 1) -> None:
    """Count an event, within a coroutine that :func:`run` runs."""
    _counts.get()[name] += number


def counted(counts: Counter[str]) -> None:
    """Add counts to the counters of this thread's stage, and to the counters of the process."""
    with _here.lock:
        _totals.update(counts)
    here().count_calls({f"store_{name}": number for name, number in counts.copy().items()})


def totals() -> dict[str, int]:
    """Return the total counts of this process: requests, bytes, retries, hedged requests, and cache hits."""
    with _here.lock:
        return dict(_totals)


async def in_thread(call: Callable[[], T]) -> T:
    """Run a blocking call on a new thread, and return the result. After a cancellation, no code waits for this thread."""
    loop, done = asyncio.get_running_loop(), asyncio.get_running_loop().create_future()

    def work() -> None:
        result, failure = None, None
        try:
            result = call()
        except BaseException as error:
            failure = error

        def tell() -> None:
            if not done.done():
                done.set_exception(failure) if failure is not None else done.set_result(result)

        if not loop.is_closed():
            loop.call_soon_threadsafe(tell)

    threading.Thread(target=work, name="highway-store-call", daemon=True).start()
    value: T = await done
    return value

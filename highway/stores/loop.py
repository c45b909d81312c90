"""The thread that runs all requests to object stores. Each process has one such thread. A forked child process creates a new thread.

Other threads pass a coroutine to this thread, and wait for the result. If the pipeline stage of the waiting thread is cancelled, the
coroutine and its requests are cancelled. The waiting thread then raises an error within :data:`TICK`.
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
from highway.process.threads import join_at_exit

T = TypeVar("T")

TICK = 0.1  # seconds between two checks for cancellation
_PATIENCE = 2.0  # maximum seconds to wait for requests when the process exits
_LOOKS, _LOOK_EVERY = 3, 0.002  # number of checks in which all threads must be idle; seconds between two checks

_counts: ContextVar[Counter[str]] = ContextVar("counts")
_totals: Counter[str] = Counter()
_from_parent: list[object] = []  # objects of the parent process, neither used nor freed, because their threads do not exist here


class StoreLoop(threading.Thread):
    """Runs an event loop until the process ends."""

    def __init__(self) -> None:
        super().__init__(name="highway-stores", daemon=True)
        self.loop = asyncio.new_event_loop()

    def run(self) -> None:
        asyncio.set_event_loop(self.loop)
        self.loop.run_forever()

    def stop(self) -> None:
        """Cancel all requests, because the process can abort if a request returns while the interpreter exits."""

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
    """Wait until the threads of obstore are idle. If such a thread frees an answer after the interpreter has ended, the process aborts."""
    until, resting = time.monotonic() + _PATIENCE, 0
    while resting < _LOOKS and time.monotonic() < until:
        time.sleep(_LOOK_EVERY)  # the threads need the GIL, which sleep() releases
        resting = 0 if any(state != "S" for state in _states("tokio")) else resting + 1


def _states(name: str) -> Iterator[str]:
    """Yield the state of each thread of this process whose name begins with ``name``. The state of an idle thread is ``S``."""
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
    """In a forked child process, keep an object of the parent process, so that the object is not freed."""
    _from_parent.append(what)


class Started(Generic[T]):
    """A coroutine that runs on the thread of this module.

    Args:
        coroutine: The coroutine to run.
        patience: Maximum seconds to wait for the coroutine after it was cancelled.
    """

    def __init__(self, coroutine: Coroutine[Any, Any, T], patience: float = 0.0) -> None:
        self._counts: Counter[str] = Counter()
        self._patience, self._ended = patience, threading.Event()
        token = _counts.set(self._counts)  # the coroutine gets a copy of this context
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
        """Wait for the result of the coroutine. If the waiting thread is cancelled or interrupted, cancel the coroutine.

        The counts of the coroutine (see :func:`count`) are added to the counters of the waiting pipeline stage.
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
        """Cancel the coroutine and its requests, if it has not finished."""
        if self._future.cancel():
            self._ended.wait(self._patience)


def run(coroutine: Coroutine[Any, Any, T], patience: float = 0.0) -> T:
    """Run a coroutine on the thread of this module, and return the result; see :class:`Started`."""
    return Started(coroutine, patience).result()


def count(name: str, number: int = 1) -> None:
    """Count an event. Only a coroutine that :func:`run` runs can call this function."""
    _counts.get()[name] += number


def counted(counts: Counter[str]) -> None:
    """Add counts to the counters of the pipeline stage to which this thread belongs, and to the counters of the process."""
    with _here.lock:
        _totals.update(counts)
    here().count_calls({f"store_{name}": number for name, number in counts.copy().items()})


def totals() -> dict[str, int]:
    """Return the counters of this process: requests, bytes, retries, requests that were sent twice, and cache hits."""
    with _here.lock:
        return dict(_totals)


async def in_thread(call: Callable[[], T]) -> T:
    """Run a blocking call on a new thread, and return the result. If the coroutine is cancelled, the thread finishes the call."""
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

    thread = threading.Thread(target=work, name="highway-store-call", daemon=True)
    join_at_exit(thread)
    thread.start()
    value: T = await done
    return value

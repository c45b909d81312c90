"""The thread on which requests wait for their answers: one per process, created again in a forked child.

Code that needs a store passes a coroutine to it and waits for the result. If the stage is cancelled, all requests of the coroutine are
cancelled, and the waiting code unwinds within :data:`TICK`.
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
_PATIENCE = 2.0  # seconds that requests may take to end at exit
_LOOKS, _LOOK_EVERY = 3, 0.002  # number of checks until idle threads count as resting, and the seconds between checks

_counts: ContextVar[Counter[str]] = ContextVar("counts")
_totals: Counter[str] = Counter()
_from_parent: list[object] = []  # of the parent process: never used nor freed, because its threads do not exist here


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
    """Wait until the threads of obstore rest. A thread that drops an answer after the interpreter has ended aborts the process."""
    until, resting = time.monotonic() + _PATIENCE, 0
    while resting < _LOOKS and time.monotonic() < until:
        time.sleep(_LOOK_EVERY)  # releases the GIL for them
        resting = 0 if any(state != "S" for state in _states("tokio")) else resting + 1


def _states(name: str) -> Iterator[str]:
    """Yield the states of this process's threads whose names begin with ``name``: ``S`` if they wait."""
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
    """Ensure that an object of the parent process is neither used nor freed in a forked child."""
    _from_parent.append(what)


class Started(Generic[T]):
    """A coroutine that runs on the thread of the stores.

    Args:
        coroutine: The coroutine to run.
        patience: Seconds that the coroutine may take to undo its work after a cancellation.
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
        """Wait for the result. The coroutine is cancelled if the stage of this thread is cancelled, or the thread is interrupted.

        Its counts (:func:`count`) are added to the stage's counters.
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
        """Cancel its requests, if it is not done."""
        if self._future.cancel():
            self._ended.wait(self._patience)


def run(coroutine: Coroutine[Any, Any, T], patience: float = 0.0) -> T:
    """Run a coroutine on the thread of the stores, and return its result; see :class:`Started`."""
    return Started(coroutine, patience).result()


def count(name: str, number: int = 1) -> None:
    """Count an event in a coroutine of :func:`run`."""
    _counts.get()[name] += number


def counted(counts: Counter[str]) -> None:
    """Add to the counters of this thread's stage, and to the counters of the process."""
    with _here.lock:
        _totals.update(counts)
    here().count_calls({f"store_{name}": number for name, number in counts.copy().items()})


def totals() -> dict[str, int]:
    """Return the totals of this process: requests, bytes, retries, hedged requests, and cache hits."""
    with _here.lock:
        return dict(_totals)


async def in_thread(call: Callable[[], T]) -> T:
    """Return the result of a blocking call, which runs on its own thread. After a cancellation, nobody waits for this thread."""
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

"""The thread on which requests wait for their answers: one for the process, made anew in a forked child.

Who needs something from a store hands a coroutine to it and waits, but not longer than the stage is wanted: then all requests of the
coroutine are given up, and what waits for them unwinds within :data:`TICK`.
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

TICK = 0.1  # seconds between two looks whether the stage is wanted still
_PATIENCE = 2.0  # seconds that requests have to end when the process does
_LOOKS, _LOOK_EVERY = 3, 0.002  # how often threads that do nothing are looked at before they count as at rest, and the seconds between

_counts: ContextVar[Counter[str]] = ContextVar("counts")
_totals: Counter[str] = Counter()
_from_parent: list[object] = []  # of the process that this one was forked from: never used nor freed, since its threads are not here


class StoreLoop(threading.Thread):
    """Runs an event loop until the process ends."""

    def __init__(self) -> None:
        super().__init__(name="highway-stores", daemon=True)
        self.loop = asyncio.new_event_loop()

    def run(self) -> None:
        asyncio.set_event_loop(self.loop)
        self.loop.run_forever()

    def stop(self) -> None:
        """Give up all requests, so that none comes back to an interpreter that ends."""

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
    """Wait until the threads of obstore rest. One that has an answer still to drop, and asks for an interpreter that has ended, aborts."""
    until, resting = time.monotonic() + _PATIENCE, 0
    while resting < _LOOKS and time.monotonic() < until:
        time.sleep(_LOOK_EVERY)  # which gives them the interpreter
        resting = 0 if any(state != "S" for state in _states("tokio")) else resting + 1


def _states(name: str) -> Iterator[str]:
    """Yield what the threads of this process do whose names begin like this: ``S`` if they wait."""
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
    """Have something that belongs to the parent of a forked process neither used nor freed."""
    _from_parent.append(what)


class Started(Generic[T]):
    """A coroutine that runs on the thread of the stores.

    Args:
        coroutine: What to run.
        patience: Seconds that it has to undo what it has begun, when it is given up.
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
        """Wait for what it returns; it is given up when the stage of this thread is cancelled, or the thread interrupted.

        What it counts (:func:`count`) is added to the stage's counters.
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
    """Return what a coroutine returns that runs on the thread of the stores; see :class:`Started`."""
    return Started(coroutine, patience).result()


def count(name: str, number: int = 1) -> None:
    """Count something that a coroutine in :func:`run` has done."""
    _counts.get()[name] += number


def counted(counts: Counter[str]) -> None:
    """Add to the counters of the stage that runs on this thread, and to those of the process."""
    with _here.lock:
        _totals.update(counts)
    here().count_calls({f"store_{name}": number for name, number in counts.copy().items()})


def totals() -> dict[str, int]:
    """Return what this process has asked stores for so far: requests, bytes, what was asked again or hedged, and the hits of the cache."""
    with _here.lock:
        return dict(_totals)


async def in_thread(call: Callable[[], T]) -> T:
    """Return what a call does that blocks: on a thread of its own, which nobody waits for if the request is given up."""
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

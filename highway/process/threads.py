"""The threads of this process: whether it can start more of them, what a thread does now, and which threads Python waits for at exit."""

from __future__ import annotations

import errno
import gc
import sys
import threading
import time
import weakref
from collections.abc import Iterable
from pathlib import Path
from types import FrameType

_reading = threading.Lock()
_joined_at_exit = weakref.WeakSet[threading.Thread]()


def check_threads(count: int) -> None:
    """Check that this process can start ``count`` more threads. Some C libraries end the process if they cannot start a thread.

    Raises:
        OSError: the process cannot start the threads.
    """
    gate, started = threading.Event(), list[threading.Thread]()
    try:
        for _ in range(count):
            thread = threading.Thread(target=gate.wait, name="highway:probe", daemon=True)
            thread.start()
            started.append(thread)
    except RuntimeError as error:
        if "shutdown" in str(error):  # since Python 3.12, only libraries can start threads after the end of the script
            return
        why = "this process cannot start more threads; raise the limit (ulimit -u, or the container's pids)"
        raise OSError(errno.EAGAIN, why) from None
    finally:
        gate.set()
        for thread in started:
            thread.join()


def frame_of(thread: threading.Thread) -> FrameType | None:
    """Return the current frame of a thread; ``None`` if the thread has not started or has ended.

    ``sys._current_frames`` creates objects while it holds an internal lock of the interpreter. Up to Python 3.11.8, this can start a
    garbage collection, which can release the GIL. A second thread that starts or ends then waits for the lock and keeps the GIL: a deadlock
    (https://github.com/python/cpython/issues/106883). Therefore no garbage is collected meanwhile.
    """
    with _reading:
        is_collecting = gc.isenabled()
        gc.disable()
        try:
            return sys._current_frames().get(thread.ident or 0)
        finally:
            if is_collecting:
                gc.enable()


def join_at_exit(thread: threading.Thread) -> None:
    """Let Python wait for a daemon thread before it exits, but only while the thread computes.

    A thread that returns from C++ code of libraries such as OpenCV while Python exits would abort the process.
    """
    _joined_at_exit.add(thread)


def _join_at_exit() -> None:
    if not threading.main_thread().is_alive():  # otherwise, os._exit() follows
        _join_busy(thread for thread in threading.enumerate() if thread in _joined_at_exit)


# At exit, finalizers run in reverse order of creation. This finalizer is older than the finalizers that stop pipelines.
weakref.finalize(_joined_at_exit, _join_at_exit)


def _join_busy(threads: Iterable[threading.Thread], timeout: float = 60.0) -> None:
    """Join threads for at most ``timeout`` seconds. Do not wait for a thread that needs no CPU time for a second."""
    deadline, before, busy = time.monotonic() + timeout, dict[threading.Thread, list[str]](), list(threads)
    while busy and time.monotonic() < deadline:
        now = {thread: _cpu_use(thread) for thread in busy}
        busy = [thread for thread in busy if thread.is_alive() and (now[thread] != before.get(thread) or now[thread][:1] == ["R"])]
        before, end = now, time.monotonic() + 1
        for thread in busy:
            thread.join(max(0.0, end - time.monotonic()))


def _cpu_use(thread: threading.Thread) -> list[str]:
    """Return the state of a thread, such as ``R`` (ready to run or running), and its CPU time; empty if they are unknown."""
    try:
        fields = Path(f"/proc/self/task/{thread.native_id}/stat").read_text(errors="replace").rpartition(")")[2].split()
    except OSError:
        return []
    return [fields[0], *fields[11:13]]

"""Check whether this process can start more threads."""

from __future__ import annotations

import errno
import threading


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

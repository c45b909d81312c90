"""A small program that kills the processes of a launcher if the launcher itself was killed.

It runs alone, without the rest of highway: ``python -I -S guard.py SECONDS KEEP``. Each line on its standard input names a process group,
``+GROUP`` when its first process has started and ``-GROUP`` before that process is reaped. When standard input ends, the remaining groups
have the given seconds to end by themselves. A group is killed at once when its first process has ended, because its other processes then
have no purpose. After that the program waits KEEP seconds, so that others can read the files whose descriptors it has inherited.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys
import time

LOOK = 0.1  # seconds between two checks of the processes


def main(seconds: float, keep: float) -> None:
    """Track the groups until standard input ends, and kill the remaining groups; if there are any, wait ``keep`` seconds after that."""
    groups: dict[int, int | None] = {}  # with a pidfd of the first process, if the system has them
    for line in sys.stdin:
        group = int(line[1:])
        if line[0] == "+":
            groups[group] = _descriptor(group)
        elif (descriptor := groups.pop(group)) is not None:
            os.close(descriptor)
    deadline, keep = time.monotonic() + seconds, keep if groups else 0.0
    while groups:
        for group in [group for group, process in groups.items() if time.monotonic() >= deadline or _has_ended(group, process)]:
            del groups[group]
            with contextlib.suppress(OSError):  # it has no processes any more
                os.killpg(group, signal.SIGKILL)
        time.sleep(LOOK if groups else 0)
    time.sleep(keep)


def _descriptor(process: int) -> int | None:
    try:
        return os.pidfd_open(process) if hasattr(os, "pidfd_open") else None
    except OSError:  # it has ended, or the kernel has no pidfds
        return None


def _has_ended(process: int, descriptor: int | None) -> bool:
    if descriptor is not None:
        poller = select.poll()
        poller.register(descriptor, select.POLLIN)
        return bool(poller.poll(0))
    try:
        os.kill(process, 0)
    except OSError:
        return True
    return False


if __name__ == "__main__":
    main(*map(float, sys.argv[1:]))

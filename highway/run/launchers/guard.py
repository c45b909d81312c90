"""A small program that kills the processes of a launcher (the process that started them) if the launcher was killed.

The program runs without the rest of highway: ``python -I -S guard.py SECONDS KEEP``. The launcher writes lines to the program's standard
input: ``+GROUP`` after the first process of a process group has started, and ``-GROUP`` before the launcher reaps this process.

When standard input ends, the launcher has ended. The first process of each remaining group then has SECONDS to end by itself. After its
end, or after SECONDS, the program kills the whole group. The program also kills descendants of the first process in other groups. It does
not kill daemons, whose parent has already ended.

Finally, the program waits KEEP seconds. During this time, other processes can read the memory whose descriptors the program has inherited.
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
    """Track the groups until standard input ends. Then kill the remaining groups, and wait ``keep`` seconds."""
    groups: dict[int, int | None] = {}  # by group: pidfd of the first process; None if the system has no pidfds
    for line in sys.stdin:
        group = int(line[1:])
        if line[0] == "+":
            groups[group] = _descriptor(group)
        elif (descriptor := groups.pop(group)) is not None:
            os.close(descriptor)
    deadline, keep = time.monotonic() + seconds, keep if groups else 0.0
    started: dict[int, dict[int, int]] = {group: {} for group in groups}  # by group: pidfds of descendants
    while groups:
        children = _children()
        for group, process in [*groups.items()]:
            if process is not None:
                _note(group, process, children, started[group])
            if time.monotonic() >= deadline or _has_ended(group, process):
                del groups[group]
                with contextlib.suppress(OSError):  # the group has no processes any more
                    os.killpg(group, signal.SIGKILL)
                for descriptor in started[group].values():
                    with contextlib.suppress(OSError):  # the descendant has ended
                        signal.pidfd_send_signal(descriptor, signal.SIGKILL)
        time.sleep(LOOK if groups else 0)
    time.sleep(keep)


def _children() -> dict[int, list[int]]:
    """Return the children of each process; empty if the system has no ``/proc``."""
    found: dict[int, list[int]] = {}
    with contextlib.suppress(OSError):
        for child in filter(str.isdigit, os.listdir("/proc")):
            found.setdefault(_parent(int(child)), []).append(int(child))
    return found


def _parent(process: int) -> int:
    """Return the parent of a process, or 0 if the process has ended."""
    try:
        with open(f"/proc/{process}/stat", "rb") as file:
            return int(file.read().rpartition(b")")[2].split()[1])
    except OSError:
        return 0


def _note(process: int, descriptor: int, children: dict[int, list[int]], started: dict[int, int]) -> None:
    """Add the pidfds of a process's descendants to ``started``. A pidfd never refers to a later process with the same number."""
    parents = [(process, descriptor)]
    while parents:
        parent, descriptor = parents.pop()
        if _has_ended(parent, descriptor):  # the children can belong to a later process with the same number
            continue
        for child in children.get(parent, ()):
            if child not in started and (found := _descriptor(child)) is not None:
                if _parent(child) == parent:
                    started[child] = found
                else:
                    os.close(found)
            if child in started:
                parents.append((child, started[child]))


def _descriptor(process: int) -> int | None:
    try:
        return os.pidfd_open(process) if hasattr(os, "pidfd_open") else None
    except OSError:  # the process has ended, or the kernel has no pidfds
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

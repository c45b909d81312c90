"""How much room there is, memory that this process may still use, and disk; and memory to hand to another process."""

from __future__ import annotations

import os
import re
import shutil
import sys
import tempfile
from pathlib import Path

from highway.process import cgroup


def available_memory(root: Path = cgroup.ROOT) -> int:
    """Return the bytes of memory that the machine and the control groups of this process leave to it.

    Where neither says, that is half of what the machine has.

    Args:
        root: Where ``proc`` and ``sys`` are.
    """
    on_machine = re.search(r"^MemAvailable: *(\d+) kB", cgroup.text(root / "proc/meminfo"), re.M)
    found = [int(on_machine[1]) * 1024] if on_machine else []
    if (in_groups := cgroup.free_memory(root)) is not None:
        found.append(in_groups)
    return min(found) if found else os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2


def free_disk(path: str) -> int:
    """Return the bytes that are free where ``path`` is, or is to be."""
    folder = os.path.abspath(path)
    while not os.path.exists(folder):
        folder = os.path.dirname(folder)
    return shutil.disk_usage(folder).free


def anonymous_file(name: str) -> int:
    """Return the descriptor of a new file that goes with its last descriptor: in memory on Linux, where ``name`` is seen in ``/proc``."""
    if sys.platform == "linux":
        descriptor = os.memfd_create(name)
    else:
        with tempfile.TemporaryFile() as file:
            descriptor = os.dup(file.fileno())
    return descriptor

"""Free memory and disk space for this process, and memory to pass to another process."""

from __future__ import annotations

import os
import re
import shutil
import sys
import tempfile
from pathlib import Path

from highway.process import cgroup


def available_memory(root: Path = cgroup.ROOT) -> int:
    """Return how many more bytes of memory this process can use: the minimum of the machine's free memory and the control groups' limits.

    If both are unknown, return half of the machine's memory.

    Args:
        root: Folder that holds ``proc`` and ``sys``.
    """
    on_machine = re.search(r"^MemAvailable: *(\d+) kB", cgroup.text(root / "proc/meminfo"), re.M)
    found = [int(on_machine[1]) * 1024] if on_machine else []
    if (in_groups := cgroup.free_memory(root)) is not None:
        found.append(in_groups)
    return min(found) if found else os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2


def free_disk(path: str) -> int:
    """Return the free bytes on the disk of ``path``, even if ``path`` does not exist yet."""
    folder = os.path.abspath(path)
    while not os.path.exists(folder):
        folder = os.path.dirname(folder)
    return shutil.disk_usage(folder).free


def anonymous_file(name: str) -> int:
    """Return the descriptor of a new file without a path. On Linux, the file is in memory, and ``/proc`` shows its ``name``."""
    if sys.platform == "linux":
        descriptor = os.memfd_create(name)
    else:
        with tempfile.TemporaryFile() as file:
            descriptor = os.dup(file.fileno())
    return descriptor

"""How much room there is: memory that this process may still use, and disk."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path

from highway.process import cgroup


def available_memory(root: Path = cgroup.ROOT) -> int:
    """Return the bytes of memory that the machine and the control groups of this process leave to it.

    Where neither says, that is half of what the machine has.

    Args:
        root: Where ``proc`` and ``sys`` are.
    """
    found = [limit for limit in (cgroup.free_memory(root), _on_machine(root / "proc/meminfo")) if limit is not None]
    return min(found) if found else os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2


def free_disk(path: str) -> int:
    """Return the bytes that are free where ``path`` is, or is to be."""
    folder = os.path.abspath(path)
    while not os.path.exists(folder):
        folder = os.path.dirname(folder)
    return shutil.disk_usage(folder).free


def _on_machine(meminfo: Path) -> int | None:
    found = re.search(r"^MemAvailable: *(\d+) kB", cgroup.text(meminfo), re.M)
    return int(found[1]) * 1024 if found else None

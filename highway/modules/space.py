"""How much room there is: memory that this process may still use, and disk."""

from __future__ import annotations

import os
import shutil
from pathlib import Path


def available_memory(cgroup: Path = Path("/sys/fs/cgroup"), meminfo: Path = Path("/proc/meminfo")) -> int:
    """Return the bytes of memory that the machine and the cgroup's limit leave; where neither says, half of what the machine has."""
    found = [limit for limit in (_in_cgroup(cgroup), _on_machine(meminfo)) if limit is not None]
    return min(found) if found else os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2


def free_disk(path: str) -> int:
    """Return the bytes that are free where ``path`` is, or is to be."""
    folder = os.path.abspath(path)
    while not os.path.exists(folder):
        folder = os.path.dirname(folder)
    return shutil.disk_usage(folder).free


def _in_cgroup(cgroup: Path) -> int | None:
    for limit, used in (("memory.max", "memory.current"), ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes")):
        if (cgroup / limit).is_file() and (cgroup / used).is_file():
            text = (cgroup / limit).read_text().strip()
            return None if text == "max" else max(0, int(text) - int((cgroup / used).read_text()))
    return None


def _on_machine(meminfo: Path) -> int | None:
    if not meminfo.is_file():
        return None
    for line in meminfo.read_text().splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    return None

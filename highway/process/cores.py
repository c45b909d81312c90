"""The number of cores that this process is allowed to use, and the CPU time and memory that it uses."""

from __future__ import annotations

import math
import os
import time
from pathlib import Path

from highway.process import cgroup

ONE_THREAD = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMEXPR_NUM_THREADS")
"""Environment variables for the number of threads of numerical libraries.

highway sets them to 1 in processes whose stages have threads, because these threads already use all cores.
"""


def available_cores(root: Path = cgroup.ROOT) -> int:
    """Return the number of cores that CPU affinity and the CPU quotas of control groups allow this process to use, at least 1.

    Args:
        root: Folder that holds ``proc`` and ``sys``.
    """
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    quota = cgroup.cpu_quota(root)
    return max(1, allowed if quota is None else min(allowed, math.ceil(quota)))


def machine_load(cores: int) -> float:
    """Return the average number of cores that all processes of the machine used in the last minute, or 0 if unknown."""
    try:
        return os.getloadavg()[0] * cores / (os.cpu_count() or 1)
    except OSError:
        return 0.0


def cpu_seconds() -> float:
    """Return the CPU seconds of this process and its children so far. Outside Linux, running children do not count."""
    return time.process_time() + sum(os.times()[2:4]) + sum(_cpu_of(child) for child in _children())  # process_time() is more precise


def resident_bytes() -> int:
    """Return the current memory of this process, without its children; 0 outside Linux."""
    pages = cgroup.text(Path("/proc/self/statm")).split()
    return int(pages[1]) * os.sysconf("SC_PAGE_SIZE") if pages else 0


def _children() -> list[str]:
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        return [pid for task in Path("/proc/self/task").iterdir() for pid in cgroup.text(task / "children").split()]
    except (AttributeError, OSError):  # the system has no waitid() or no /proc, or there are no children
        return []


def _cpu_of(pid: str) -> float:
    fields = cgroup.text(Path("/proc", pid, "stat")).rpartition(")")[2].split()
    return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK") if fields else 0.0

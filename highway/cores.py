"""How many cores this process may use."""

from __future__ import annotations

import math
import os
from pathlib import Path

ONE_THREAD = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMEXPR_NUM_THREADS")
"""Variables that tell numerical libraries, when they are imported, how many threads to use: 1 in processes whose stages have their own."""


def available_cores(cgroup: Path = Path("/sys/fs/cgroup")) -> int:
    """Return the cores that affinity and the cgroup's CPU quota leave to this process, at least 1.

    The quota is read from version 2's ``cpu.max`` or version 1's ``cpu.cfs_quota_us``.
    """
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    quota = _quota(cgroup)
    return max(1, allowed if quota is None else min(allowed, math.ceil(quota)))


def _quota(cgroup: Path) -> float | None:
    if (v2 := cgroup / "cpu.max").is_file():
        limit, period = v2.read_text().split()
        return None if limit == "max" else int(limit) / int(period)
    v1 = cgroup / "cpu" / "cpu.cfs_quota_us"
    if v1.is_file() and (limit_us := int(v1.read_text())) > 0:
        return limit_us / int(v1.with_name("cpu.cfs_period_us").read_text())
    return None

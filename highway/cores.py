"""How many cores this process may use."""

from __future__ import annotations

import math
import os
from pathlib import Path

from highway import cgroup

ONE_THREAD = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMEXPR_NUM_THREADS")
"""Variables that tell numerical libraries, when they are imported, how many threads to use: 1 in processes whose stages have their own."""


def available_cores(root: Path = cgroup.ROOT) -> int:
    """Return the cores that affinity and the CPU quotas of this process's control groups leave to it, at least 1.

    Args:
        root: Where ``proc`` and ``sys`` are.
    """
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    quota = cgroup.cpu_quota(root)
    return max(1, allowed if quota is None else min(allowed, math.ceil(quota)))

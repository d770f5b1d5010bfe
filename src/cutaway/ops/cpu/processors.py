"""The processors that this process may use: its affinity, and the quota of its control group.

In: nothing but the system's own files. Out: a number of processors.
"""

import math
import os
from pathlib import Path


def cgroup_quota(root: Path = Path("/sys/fs/cgroup")) -> float | None:
    """Processors that the control group's quota allows (cgroup v2, then v1), or None where there is no quota."""
    try:
        quota, period = (root / "cpu.max").read_text().split()
        return None if quota == "max" else int(quota) / int(period)
    except (OSError, ValueError, ZeroDivisionError):
        pass
    try:
        quota_us = int((root / "cpu" / "cpu.cfs_quota_us").read_text())
        period_us = int((root / "cpu" / "cpu.cfs_period_us").read_text())
        return None if quota_us <= 0 else quota_us / period_us
    except (OSError, ValueError, ZeroDivisionError):
        return None


def usable_processors(root: Path = Path("/sys/fs/cgroup")) -> int:
    """How many processors this process may use at once: the affinity mask, cut by the quota; at least 1."""
    available = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else (os.cpu_count() or 1)
    quota = cgroup_quota(root)
    return available if quota is None else max(1, min(available, math.floor(quota)))


def default_threads() -> int:
    """Members of a team where the user names no number."""
    return usable_processors()

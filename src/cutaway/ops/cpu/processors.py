"""The processors that this process may use: its affinity, and the quota of its control group.

In: nothing but the system's own files. Out: a number of processors.
"""

import math
import os
from pathlib import Path
from typing import Final

CGROUPS: Final = Path("/sys/fs/cgroup")
MEMBERSHIP: Final = Path("/proc/self/cgroup")


def cgroup_quota(root: Path = CGROUPS, membership: Path = MEMBERSHIP) -> float | None:
    """Processors that the process's control groups allow, or None where no group has a quota.

    A quota on any group above the process's own binds it too (cgroup v2, ``cpu.max``); in cgroup v1 the mount shows
    the group itself.
    """
    quotas = [quota for folder in _groups(root, membership) if (quota := _quota_of(folder)) is not None]
    return min(quotas, default=None)


def _groups(root: Path, membership: Path) -> list[Path]:
    """The process's group of cgroup v2 and all above it; only the root where that can't be read."""
    try:
        lines = membership.read_text().splitlines()
    except OSError:
        return [root]
    own = next((line.removeprefix("0::").strip("/") for line in lines if line.startswith("0::")), "")
    groups, folder = [root], root
    for part in own.split("/"):
        if part in ("", ".."):  # within a container the path may lead out of what is mounted
            break
        folder = folder / part
        groups.append(folder)
    return groups


def _quota_of(folder: Path) -> float | None:
    """The quota of one group."""
    try:
        quota, period = (folder / "cpu.max").read_text().split()
        return None if quota == "max" else int(quota) / int(period)
    except (OSError, ValueError, ZeroDivisionError):
        pass
    try:
        quota_us = int((folder / "cpu" / "cpu.cfs_quota_us").read_text())
        period_us = int((folder / "cpu" / "cpu.cfs_period_us").read_text())
        return None if quota_us <= 0 else quota_us / period_us
    except (OSError, ValueError, ZeroDivisionError):
        return None


def usable_processors(root: Path = CGROUPS, membership: Path = MEMBERSHIP) -> int:
    """How many processors this process may use at once: the affinity mask, cut by the quota; at least 1."""
    available = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else (os.cpu_count() or 1)
    quota = cgroup_quota(root, membership)
    return available if quota is None else max(1, min(available, math.floor(quota)))


def default_threads() -> int:
    """Members of a team where the user names no number."""
    return usable_processors()

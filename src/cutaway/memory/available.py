"""The memory that a new allocation can have: what the system calls available, cut by the limits of control groups.

In: /proc and the files of control groups, versions 1 and 2. Out: bytes.
"""

import os
from pathlib import Path
from typing import Final

from cutaway.errors import CapacityError

MEMINFO: Final = Path("/proc/meminfo")
MEMBERSHIP: Final = Path("/proc/self/cgroup")
CGROUPS: Final = Path("/sys/fs/cgroup")


def available_memory(meminfo: str) -> int | None:
    """MemAvailable of /proc/meminfo's text, in bytes."""
    return _kilobytes(meminfo, "MemAvailable")


def available_bytes(meminfo: Path = MEMINFO, membership: Path = MEMBERSHIP, cgroups: Path = CGROUPS) -> int:
    """Memory that this process can still have, swap left out."""
    free = available_memory(meminfo.read_text()) if meminfo.exists() else None
    free = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") if free is None else free
    return min([free, *(left for folder in _groups(membership, cgroups) if (left := _left_in(folder)) is not None)])


def check_free(needed: int, what: str, remedy: str) -> None:
    """Raises CapacityError where ``needed`` bytes are more than this process can still have: a system that promises
    more than it has would kill it when they are first written to. what: takes them, for the error.
    """
    free = available_bytes()
    if needed > free:
        raise CapacityError(f"{what} takes {needed:,} bytes, and {free:,} are available. {remedy}")


def _kilobytes(text: str, wanted: str) -> int | None:
    for line in text.splitlines():
        name, _, value = line.partition(":")
        if name == wanted:
            return int(value.split()[0]) * 1024
    return None


def _groups(membership: Path, cgroups: Path) -> list[Path]:
    """The process's groups that may limit its memory, and all above them; within a container, where the path may lead
    out of what is mounted, those that are there.
    """
    try:
        lines = membership.read_text().splitlines()
    except OSError:
        lines = []
    folders = [cgroups, cgroups / "memory"]
    for line in lines:
        _, controllers, path = line.split(":", 2)
        root = cgroups if not controllers else cgroups / "memory"
        if controllers in ("", "memory"):
            parts = [part for part in path.split("/") if part]
            folders += [root.joinpath(*parts[:depth]) for depth in range(1, len(parts) + 1)]
    return folders


def _left_in(folder: Path) -> int | None:
    """What a group's limit leaves: the page cache among its usage is given back when it is needed, so it is free; but
    shared memory and the files of a tmpfs, which are counted as cache, have no other place.
    """
    for limit_name, usage_name, cache_name, shared_name in (
        ("memory.max", "memory.current", "file", "shmem"),
        ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_cache", "total_shmem"),
    ):
        try:
            limit, used = (int((folder / name).read_text()) for name in (limit_name, usage_name))
            fields = dict(line.split(None, 1) for line in (folder / "memory.stat").read_text().splitlines())
            return limit - used + int(fields.get(cache_name, 0)) - int(fields.get(shared_name, 0))
        except (OSError, ValueError):  # no such group, or one without a limit ("max")
            continue
    return None

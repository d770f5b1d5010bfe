"""How many processors a process may use, from files of control groups as the kernel writes them."""

import os
from pathlib import Path

import pytest

from cutaway.ops.cpu.processors import cgroup_quota, usable_processors


def write(root: Path, name: str, text: str) -> None:
    (root / name).parent.mkdir(parents=True, exist_ok=True)
    (root / name).write_text(text)


@pytest.mark.parametrize(
    ("text", "quota"),
    [("max 100000\n", None), ("150000 100000\n", 1.5), ("50000 100000\n", 0.5), ("400000 100000\n", 4.0)],
)
def test_the_quota_of_version_2(tmp_path: Path, text: str, quota: float | None) -> None:
    write(tmp_path, "cpu.max", text)
    assert cgroup_quota(tmp_path) == quota


def test_the_least_quota_from_the_root_down_to_the_own_group(tmp_path: Path) -> None:
    membership = tmp_path / "cgroup"
    membership.write_text("1:cpu:/other\n0::/user.slice/job.scope\n")
    write(tmp_path, "cpu.max", "800000 100000\n")
    write(tmp_path, "user.slice/cpu.max", "150000 100000\n")
    write(tmp_path, "user.slice/job.scope/cpu.max", "max 100000\n")
    write(tmp_path, "other/cpu.max", "1000 100000\n")
    assert cgroup_quota(tmp_path, membership) == 1.5
    membership.write_text("0::/../../user.slice\n")  # out of what a container sees
    assert cgroup_quota(tmp_path, membership) == 8.0


@pytest.mark.parametrize(("quota_us", "quota"), [("-1\n", None), ("200000\n", 2.0), ("0\n", None)])
def test_the_quota_of_version_1(tmp_path: Path, quota_us: str, quota: float | None) -> None:
    write(tmp_path, "cpu/cpu.cfs_quota_us", quota_us)
    write(tmp_path, "cpu/cpu.cfs_period_us", "100000\n")
    assert cgroup_quota(tmp_path) == quota


@pytest.mark.parametrize("text", ["", "max", "a b", "100 0", "1 2 3"])
def test_what_can_t_be_read_is_no_quota(tmp_path: Path, text: str) -> None:
    assert cgroup_quota(tmp_path) is None
    write(tmp_path, "cpu.max", text)
    assert cgroup_quota(tmp_path) is None


@pytest.mark.parametrize(("quota_us", "usable"), [(50_000, 1), (100_000, 1), (290_000, 2), (900_000, 4)])
def test_affinity_is_cut_by_the_quota(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, quota_us: int, usable: int
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 2, 5, 7}, raising=False)
    assert usable_processors(tmp_path) == 4
    write(tmp_path, "cpu.max", f"{quota_us} 100000")
    assert usable_processors(tmp_path) == usable

"""What ``doctor`` looks at: files, folders and the system's own accounts."""

import json
import platform
from pathlib import Path

import pytest

from cutaway.audit.machine import cached_kernels, folder_bytes, is_writable, machine_report


def test_a_folder_s_bytes_are_those_of_its_files(tmp_path: Path) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "a" / "one").write_bytes(b"12345")
    (tmp_path / "a" / "b" / "two").write_bytes(b"678")
    assert folder_bytes(tmp_path) == 8
    assert folder_bytes(tmp_path / "missing") == 0


def test_kernels_are_counted_by_function(tmp_path: Path) -> None:
    for name in ("math.exp-1a.1b-aa.code", "math.exp-1a.1b-bb.code", "forward.forward-2b.2c-cc.code"):
        (tmp_path / name).touch()
    (tmp_path / ".math.log-3c.3d-dd.code.77").touch()  # being written
    (tmp_path / "math.log-3c.3d-dd.part").touch()  # what the compiler keeps for itself
    assert cached_kernels(tmp_path) == {"forward.forward": 1, "math.exp": 2}
    assert cached_kernels(tmp_path / "missing") == {}


def test_a_folder_that_is_not_there_yet_is_judged_by_the_one_above(tmp_path: Path) -> None:
    assert is_writable(tmp_path / "not" / "yet")
    assert not (tmp_path / "not").exists()
    (tmp_path / "file").touch()
    assert not is_writable(tmp_path / "file" / "below")


def test_the_report_names_an_empty_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache = tmp_path / "cache"
    monkeypatch.setenv("CUTAWAY_CACHE", str(cache))
    report = machine_report()
    assert (report.cache.path, report.cache.bytes, report.cache.kernels) == (str(cache), 0, {})
    assert report.models == ()
    assert not cache.exists()  # looking creates nothing
    assert report.python == platform.python_version()
    assert (report.lowering == report.best_lowering) == (report.lacking == ())
    assert 1 <= report.threads <= report.affinity <= report.processors
    assert json.loads(json.dumps(report.as_dict()))["libraries"].keys() == {"numba", "llvmlite", "numpy"}

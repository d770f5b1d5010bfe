from pathlib import Path

import pytest

from cutaway.errors import InvalidRequestError
from cutaway.hub import cache_root, kernels_dir, models_dir


def test_order_of_the_variables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("CUTAWAY_CACHE")
    assert cache_root() == tmp_path / ".cache" / "cutaway"
    monkeypatch.setenv("XDG_CACHE_HOME", "/elsewhere")
    assert cache_root() == Path("/elsewhere/cutaway")
    monkeypatch.setenv("CUTAWAY_CACHE", "/chosen")
    assert cache_root() == Path("/chosen")
    assert models_dir() == Path("/chosen/models")
    assert kernels_dir() == Path("/chosen/kernels")
    assert list(tmp_path.iterdir()) == []


def test_empty_and_relative_values(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CUTAWAY_CACHE", "")
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")  # the specification: must be ignored
    assert cache_root() == tmp_path / ".cache" / "cutaway"
    monkeypatch.setenv("CUTAWAY_CACHE", "here")
    assert cache_root() == tmp_path / "here"
    monkeypatch.setenv("CUTAWAY_CACHE", "~/there")
    assert cache_root() == tmp_path / "there"


def test_unknown_home_is_one_clear_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUTAWAY_CACHE", "~no-such-user-here/cache")
    with pytest.raises(InvalidRequestError, match="Set CUTAWAY_CACHE"):
        cache_root()

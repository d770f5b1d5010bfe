from pathlib import Path

import pytest

from cutaway.errors import InvalidRequestError
from cutaway.hub import cache_root, kernels_dir, models_dir
from cutaway.hub.paths import offline_variable


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


@pytest.mark.parametrize(
    ("given", "forbids"),
    [
        ({}, None),
        ({"CUTAWAY_OFFLINE": "1"}, "CUTAWAY_OFFLINE"),
        ({"CUTAWAY_OFFLINE": "0"}, None),
        ({"CUTAWAY_OFFLINE": "", "HF_HUB_OFFLINE": "1"}, "HF_HUB_OFFLINE"),
        ({"CUTAWAY_OFFLINE": "0", "HF_HUB_OFFLINE": "Yes"}, "HF_HUB_OFFLINE"),
        ({"HF_HUB_OFFLINE": "0", "TRANSFORMERS_OFFLINE": "1"}, None),
        ({"HF_HUB_OFFLINE": "", "TRANSFORMERS_OFFLINE": "on"}, "TRANSFORMERS_OFFLINE"),
        ({"CUTAWAY_OFFLINE": "x", "HF_HUB_OFFLINE": "1"}, "CUTAWAY_OFFLINE"),
    ],
)
def test_which_variable_forbids_the_network(
    monkeypatch: pytest.MonkeyPatch, given: dict[str, str], forbids: str | None
) -> None:
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    assert offline_variable() == forbids


@pytest.mark.parametrize("value", ["", "0", "1", "on", "Yes", "TRUE", "2"])
def test_the_hub_s_client_reads_its_variable_in_the_same_way(monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    from huggingface_hub import constants

    monkeypatch.setenv("HF_HUB_OFFLINE", value)
    assert (offline_variable() is not None) == constants._is_true(value)

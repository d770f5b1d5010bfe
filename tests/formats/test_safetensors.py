"""safetensors files: sound ones, and malformed and damaged ones, each refused in bounded time and memory.

``CUTAWAY_FUZZ_EXAMPLES=100000`` reads as many damaged files as that.
"""

import json
import struct
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from mutations import EXAMPLES, mutated

from cutaway.errors import ModelFileError
from cutaway.formats.safetensors import DTYPES, MAX_HEADER_BYTES, open_safetensors


def entry(dtype: str, shape: list[Any], begin: int, end: int) -> dict[str, Any]:
    return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}


def file_of(header: Any, data: bytes = b"", length: int | None = None) -> bytes:
    """A file, or one that lies about the length of its header."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text) if length is None else length) + text + data


def read_everything(path: Path) -> None:
    """Open the file and touch all that it holds."""
    size = path.stat().st_size
    for tensor in open_safetensors(path).values():
        assert tensor.offset + tensor.nbytes <= size
        assert tensor.nbytes == np.prod(tensor.shape, dtype=object) * tensor.block_type.bytes_per_block
        tensor.stored.max(initial=0)


def peak_memory(path: Path) -> tuple[str | None, int]:
    """The error that reading ``path`` ends with, if any, and the most memory that it took."""
    tracemalloc.start()
    try:
        read_everything(path)
        error = None
    except ModelFileError as refused:
        error = str(refused)
    finally:
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    return error, peak


# Sound files


def test_tensors_are_views_of_the_file(tmp_path: Path) -> None:
    a = np.arange(6, dtype="<f4").reshape(2, 3)
    b = np.array([1.5, -2.0], "<f2")
    header = {
        "b": entry("F16", [2], 24, 28),
        "__metadata__": {"format": "pt", 'a "note" in braces {}': "ünï\n"},
        "a": entry("F32", [2, 3], 0, 24),
        "scalar": entry("BF16", [], 28, 30),
        "none": entry("I64", [3, 0, 2], 30, 30),
    }
    path = tmp_path / "model.safetensors"
    path.write_bytes(file_of(header, a.tobytes() + b.tobytes() + b"\xc0\x3f"))
    tensors = open_safetensors(path)
    assert list(tensors) == ["a", "b", "scalar", "none"]  # in the order of their bytes
    assert np.array_equal(tensors["a"].stored.copy().view("<f4"), a)
    assert np.array_equal(tensors["b"].stored.copy().view("<f2"), b)
    assert tensors["scalar"].stored.tolist() == [0xC0, 0x3F]
    assert {name: tensor.shape for name, tensor in tensors.items()} == {
        "a": (2, 3),
        "b": (2,),
        "scalar": (),
        "none": (3, 0, 2),
    }
    assert path.read_bytes()[tensors["b"].offset :][:4] == b.tobytes()
    assert not tensors["a"].stored.flags.writeable


@pytest.mark.parametrize("header", [b"{}", b"{}   ", b'{"__metadata__":{}}\n', b'{ "__metadata__" : { "a" : "b" } }'])
def test_a_file_without_tensors(tmp_path: Path, header: bytes) -> None:
    path = tmp_path / "model.safetensors"
    path.write_bytes(file_of(header))
    assert open_safetensors(path) == {}


def test_escaped_names_are_decoded(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    path.write_bytes(
        file_of(b'{"\\u0061\\ud83d\\ude42\\"{":{"shape":[1],"dtype":"U8","more":1,"data_offsets":[0,1]}}', b"x")
    )
    assert list(open_safetensors(path)) == ['a🙂"{']


@pytest.mark.parametrize("name", DTYPES)
def test_every_type_of_whole_bytes_is_located(tmp_path: Path, name: str) -> None:
    sizes = {"64": 8, "32": 4, "16": 2}
    size = next((size for digits, size in sizes.items() if name.endswith(digits)), 1)
    path = tmp_path / "model.safetensors"
    path.write_bytes(file_of({"w": entry(name, [3, 5], 0, 15 * size)}, bytes(15 * size)))
    assert open_safetensors(path)["w"].stored.shape == (3, 5 * size)


# Malformed files: what the file says, and the field, value and limit that the message must name

W = entry("F32", [2], 0, 8)
LINES: dict[str, tuple[bytes, str, str, str]] = {
    "header of 1000 in a tiny file": (file_of(b"{}", b"", 1000), "header", "1000", "the file ends after 10"),
    "header of 2^63": (file_of(b"{}", b"", 2**63), "length of the header", str(2**63), str(MAX_HEADER_BYTES)),
    "header of 2^64 - 1": (file_of(b"{}", b"", 2**64 - 1), "length of the header", str(2**64 - 1), "at most"),
    "header over 100 MB": (
        file_of(b"{}", b"", MAX_HEADER_BYTES + 1),
        "length of the header",
        str(MAX_HEADER_BYTES + 1),
        "at most",
    ),
    "header of nothing": (file_of(b""), "header", "at its end", "there must be {"),
    "all tensors on the same bytes": (
        file_of({f"w{i}": entry("F32", [2], 0, 8) for i in range(60_000)}, bytes(8)),
        "data_offsets of tensor 'w1'",
        "[0, 8]",
        "share no bytes",
    ),
    "an overlap": (
        file_of({"a": W, "b": entry("F32", [2], 4, 12), "c": entry("U8", [9], 15, 24)}, bytes(25)),
        "data_offsets of tensor 'b'",
        "[4, 12]",
        "'a' ends at 8",
    ),
    "a hole": (
        file_of({"a": W, "b": entry("F32", [2], 9, 17)}, bytes(17)),
        "data_offsets of tensor 'b'",
        "[9, 17]",
        "without gaps",
    ),
    "a hole in front": (file_of({"a": entry("F32", [2], 1, 9)}, bytes(9)), "tensor 'a'", "[1, 9]", "without gaps"),
    "bytes behind": (file_of({"a": W}, bytes(9)), "size of the file", "9", "end 1 bytes before"),
    "cut off": (file_of({"a": W}, bytes(7)), "data_offsets of tensor 'a'", "[0, 8]", "ends 7 bytes behind"),
    "begin behind the end": (
        file_of({"a": entry("F32", [2], 8, 0)}, bytes(8)),
        "tensor 'a'",
        "[8, 0]",
        "must not lie before",
    ),
    "a range too short": (file_of({"a": entry("F32", [3], 0, 8)}, bytes(8)), "tensor 'a'", "[0, 8]", "are 12 bytes"),
    "a range too long": (file_of({"a": entry("F16", [2], 0, 8)}, bytes(8)), "tensor 'a'", "[0, 8]", "are 4 bytes"),
    "a product that wraps": (
        file_of({"a": entry("F32", [2**62, 4, 1], 0, 0)}),
        "shape of tensor 'a'",
        str(2**62),
        "elements are allowed",
    ),
    "a huge empty shape": (
        file_of({"a": entry("F32", [2**63, 0], 0, 0)}),
        "shape of tensor 'a'",
        str(2**63),
        "elements are allowed",
    ),
    "too many dimensions": (file_of({"a": entry("U8", [1] * 9, 0, 1)}, b"x"), "shape of", "[1, 1", "up to 8"),
    "a name twice": (
        file_of(b'{"a":%s,"a":%s}' % ((json.dumps(W).encode(),) * 2), bytes(8)),
        "name 'a'",
        "a duplicate",
        "unique",
    ),
    "metadata twice": (file_of(b'{"__metadata__":{},"__metadata__":{}}'), "'__metadata__'", "a duplicate", "unique"),
    "a key of the metadata twice": (file_of(b'{"__metadata__":{"a":"b","a":"b"}}'), "'a'", "a duplicate", "unique"),
    "a field twice": (
        file_of(b'{"a":{"dtype":"U8","shape":[1],"shape":[1],"data_offsets":[0,1]}}', b"x"),
        "tensor 'a'",
        "shape",
        "unique",
    ),
    "metadata that is a number": (file_of({"__metadata__": {"a": 1}}), "'a' in __metadata__", "1", '"'),
    "metadata that is a list": (file_of({"__metadata__": ["a"]}), "__metadata__", '["a"]', "{"),
    "no UTF-8": (file_of(b'{"\xff":{}}'), "header", r"\xff", "UTF-8"),
    "half a surrogate pair": (file_of(b'{"\\ud800":{}}'), "a name in the header", "ud800", "JSON string"),
    "a control character in a name": (file_of(b'{"a\nb":{}}'), "a name in the header", "nb", "JSON string"),
    "an unfinished name": (file_of(b'{"abc'), "a name in the header", "abc", "JSON string"),
    "an unfinished header": (file_of({"a": W})[:-1][:8] + json.dumps({"a": W}).encode()[:-1] + b" ", "header", "", ""),
    "a list": (file_of([]), "header begins with", "[]", "'{'"),
    "a number": (file_of(b"12345678"), "header begins with", "12345678", "'{'"),
    "a space in front": (file_of(b" {}"), "header begins with", " {}", "'{'"),
    "something behind": (file_of(b"{} x"), "header", "x", "white space"),
    "a comma behind": (file_of(b'{"__metadata__":{},}'), "a name in the header", "}", '"'),
    "an unknown type": (
        file_of({"a": entry("F128", [1], 0, 16)}, bytes(16)),
        "dtype of tensor 'a'",
        "F128",
        "F64, F32",
    ),
    "a type of half bytes": (file_of({"a": entry("F4", [2], 0, 1)}, b"x"), "dtype of tensor 'a'", "F4", "known are"),
    "a type that is a number": (
        file_of({"a": {**W, "dtype": 1}}, bytes(8)),
        "dtype of tensor 'a'",
        "1",
        "known are",
    ),
    "no type": (file_of({"a": {"shape": [1], "data_offsets": [0, 1]}}, b"x"), "tensor 'a'", "without dtype", "needs"),
    "no shape": (file_of({"a": {"dtype": "U8", "data_offsets": [0, 1]}}, b"x"), "'a'", "without shape", "needs"),
    "no range": (file_of({"a": {"dtype": "U8", "shape": [1]}}, b"x"), "'a'", "without data_offsets", "needs"),
    "a size that is a fraction": (file_of({"a": entry("U8", [1.0], 0, 1)}, b"x"), "shape of", "1.0", "sizes"),
    "a size that is true": (file_of({"a": entry("U8", [True], 0, 1)}, b"x"), "shape of", "True", "sizes"),
    "a size below 0": (file_of({"a": entry("U8", [-1], 0, 1)}, b"x"), "tensor 'a'", "-1", "JSON"),
    "a size of -0": (file_of(b'{"a":{"dtype":"U8","shape":[-0],"data_offsets":[0,0]}}'), "tensor 'a'", "-0", "JSON"),
    "a size of 2^64": (file_of({"a": entry("U8", [2**64], 0, 1)}, b"x"), "shape of", str(2**64), "sizes"),
    "a size that is NaN": (
        file_of(b'{"a":{"dtype":"U8","shape":[NaN],"data_offsets":[0,1]}}', b"x"),
        "tensor 'a'",
        "NaN",
        "JSON",
    ),
    "a range of three": (
        file_of({"a": {**W, "data_offsets": [0, 4, 8]}}, bytes(8)),
        "data_offsets of tensor 'a'",
        "[0, 4, 8]",
        "begin and end",
    ),
    "a tensor that is a number": (file_of({"a": 1}), "tensor 'a'", "1", "an object"),
    "a tensor that holds an object": (file_of({"a": {"x": {}}}), "tensor 'a'", '{"x"', "no other within"),
    "a tensor of a long list": (
        file_of({"a": entry("U8", [1] * 100_000, 0, 1)}, b"x"),
        "tensor 'a'",
        "dtype",
        "at most 1000 characters",
    ),
    "lists in lists": (file_of(b'{"a":' + b"[" * 100_000), "tensor 'a'", "[[[", "an object"),
    "lists in a tensor": (
        file_of(b'{"a":{"dtype":"U8","shape":' + b"[" * 900 + b"]" * 0 + b"}}"),
        "tensor 'a'",
        "[[[",
        "JSON",
    ),
    "a number of many digits": (
        file_of(b'{"a":{"dtype":"U8","shape":[' + b"9" * 900 + b'],"data_offsets":[0,1]}}', b"x"),
        "shape of",
        "999",
        "sizes",
    ),
    "nothing": (b"", "seems to be", "empty", "Download"),
    "seven bytes": (b"1234567", "seems to be", "of an unknown kind", ""),
    "a GGUF": (b"GGUF" + bytes(100), "seems to be", "a GGUF file", ".gguf"),
    "a pickle": (b"\x80\x02}q\x00." + bytes(20), "seems to be", "a Python pickle", ""),
    "an LFS pointer": (
        b"version https://git-lfs.github.com/spec/v1\n",
        "seems to be",
        "Git LFS pointer",
        "git lfs pull",
    ),
    "a page": (b"<!doctype html><title>Sign in</title>", "seems to be", "an HTML page", "Download"),
}


@pytest.mark.parametrize("case", LINES)
def test_a_malformed_file_is_refused(tmp_path: Path, case: str) -> None:
    content, field, value, limit = LINES[case]
    path = tmp_path / "model.safetensors"
    path.write_bytes(content)
    error, peak = peak_memory(path)
    assert error is not None
    assert error.startswith(f"{path}: ")
    assert field in error
    assert value in error
    assert limit in error
    assert error.endswith(".")
    assert len(error) < 600 + len(str(path))
    assert peak < 2 * len(content) + 100_000


def test_too_many_tensors_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    path.write_bytes(file_of({f"{i}": entry("U8", [0], 0, 0) for i in range(65_537)}))
    with pytest.raises(ModelFileError, match="number of tensors is over 65536; at most 65536"):
        open_safetensors(path)


def small_file() -> bytes:
    header = {
        "__metadata__": {"format": "pt", "é": "{}[]"},
        "norm.weight": entry("F32", [16], 0, 64),
        "a.weight": entry("BF16", [8, 5], 64, 144),
        "b.weight": entry("F16", [2, 0, 3], 144, 144),
        "c": entry("I64", [], 144, 152),
    }
    return file_of(json.dumps(header, ensure_ascii=False).encode() + b"   ", bytes(range(152)))


def test_truncation_at_every_byte_is_refused(tmp_path: Path) -> None:
    content, path = small_file(), tmp_path / "model.safetensors"
    path.write_bytes(content)
    read_everything(path)
    for size in range(len(content) - 1, -1, -1):
        path.write_bytes(content[:size])
        error, peak = peak_memory(path)
        assert error is not None, f"a file cut to {size} of {len(content)} bytes opened"
        assert peak < 2 * size + 100_000


def test_damaged_files_open_whole_or_are_refused(tmp_path: Path) -> None:
    content, path = small_file(), tmp_path / "model.safetensors"
    head = 8 + int.from_bytes(content[:8], "little")
    opened = 0
    for number in range(EXAMPLES):
        damaged = mutated(content, number, head)
        if number % 2:  # half of them with a length that is right again
            damaged = struct.pack("<Q", max(0, len(damaged) - 8 - 152)) + damaged[8:]
        path.write_bytes(damaged)
        error, peak = peak_memory(path)
        opened += error is None
        assert peak < 2 * len(damaged) + 100_000, f"mutation {number}"
    assert 0 < opened < EXAMPLES, "no damage reached what is checked, or all did"


@pytest.mark.parametrize(
    "header",
    [
        '{"__metadata__": {"a": "😀"}}'.encode() + b" " * 3_000_000,
        ('{"__metadata__": {"a": "😀' + "a" * 3_000_000 + '"}}').encode(),
        ('{"😀' + "a" * 3_000_000 + '": {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]}}').encode(),
        ('{"__metadata__": {"a": "' + r"\u00e9" * 500_000 + '"}}').encode(),
        ('{"__metadata__": {"a": "' + "\\" * 3_000_000 + '"}}').encode(),
        ('{"__metadata__": {"a": ' + '"' * 3_000_000 + "}}").encode(),
        ("{" + "中" * 1_000_000 + "}").encode(),
    ],
)
def test_wide_characters_do_not_make_a_large_header_larger(tmp_path: Path, header: bytes) -> None:
    """In a Python string one such character makes all others four bytes wide."""
    path = tmp_path / "wide.safetensors"
    path.write_bytes(file_of(header))
    _, peak = peak_memory(path)
    assert peak < 2 * len(header)


def test_a_string_of_a_header_has_a_longest_length(tmp_path: Path) -> None:
    path = tmp_path / "x.safetensors"
    path.write_bytes(file_of(('{"__metadata__": {"a": "' + "é" * 500_000 + r"\\\u00e9\\" + '"}}').encode()))
    assert open_safetensors(path) == {}
    path.write_bytes(file_of({"__metadata__": {"a": "a" * (1 << 20)}}))
    with pytest.raises(ModelFileError, match="at most 1048576 bytes"):
        open_safetensors(path)

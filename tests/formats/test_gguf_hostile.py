"""Truncated, damaged and hostile GGUF files: one clear error, in bounded time and memory.

``CUTAWAY_FUZZ_EXAMPLES=100000`` reads as many damaged files as that.
"""

import os
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from gguf_bytes import (
    ARRAY,
    BOOL,
    F32,
    F64,
    I8,
    I16,
    I32,
    I64,
    STRING,
    U8,
    U16,
    U32,
    U64,
    array,
    entry,
    gguf,
    string,
    tensor,
    u32,
    u64,
)
from mutations import EXAMPLES, mutated

from cutaway.errors import ModelFileError
from cutaway.formats.gguf import open_gguf
from cutaway.formats.gguf_metadata import StringArray

Q4_1, Q8_0, Q4_K = 3, 8, 12


def alignment(value: int) -> bytes:
    return entry(b"general.alignment", U32, u32(value))


def nested(depth: int) -> bytes:
    return entry(b"deep", ARRAY, array(ARRAY, 1) * depth + array(U8, 1, b"x"))


W = tensor(b"w", [8])
DATA = bytes(32)

# What the file says, and the field, value and limit that the message must name.
HOSTILE: dict[str, tuple[bytes, str, str, str]] = {
    "n_dims 1,000,000": (gguf([], [tensor(b"w", [8], n_dims=1_000_000)]), "dimensions", "1000000", "1 to 4"),
    "n_dims 9": (
        gguf([], [tensor(b"w", [1] * 9)], DATA),
        "number of dimensions of tensor 'w'",
        "9",
        "1 to 4",
    ),
    "n_dims 5": (
        gguf([], [tensor(b"w", [1] * 5)], DATA),
        "number of dimensions of tensor 'w'",
        "5",
        "1 to 4",
    ),
    "n_dims 0": (gguf([], [tensor(b"long enough", [])], DATA), "number of dimensions", "0", "1 to 4"),
    "dimension 0": (gguf([], [tensor(b"w", [8, 0])], DATA), "dimension 1 of tensor 'w'", "0", "at least 1"),
    "product wraps to 4": (
        gguf([], [tensor(b"w", [4194305, 4194305, 211106198978564])], DATA),
        "data of tensor 'w'",
        str(4 * 4194305 * 4194305 * 211106198978564),
        "the file ends after",
    ),
    "size wraps to 0": (
        gguf([], [tensor(b"w", [4, 1073741823, 1073741825, 1])], bytes(384)),
        "data of tensor 'w'",
        str(2**64 - 16),
        "the file ends after",
    ),
    "product wraps in blocks": (
        gguf([], [tensor(b"w", [2**63, 2**63, 2**63], Q8_0)], bytes(384)),
        "data of tensor 'w'",
        str(2**126 * 2**63 // 32 * 34),
        "the file ends after",
    ),
    "n_tensors 2^63": (gguf([], [W], DATA, n_tensors=2**63), "number of tensors", str(2**63), "at most"),
    "n_tensors past the end": (gguf([], [W], DATA, n_tensors=3), "number of tensors", "3", "hold at most 2"),
    "n_kv 2^60": (gguf([], [W], DATA, n_entries=2**60), "number of metadata entries", str(2**60), "at most"),
    "n_kv 2^64-1": (gguf([], n_entries=2**64 - 1), "number of metadata entries", str(2**64 - 1), "at most"),
    "n_kv past the end": (gguf([], n_entries=1), "number of metadata entries", "1", "hold at most 0"),
    "string 2^62": (
        gguf([entry(b"k", STRING, string(b"x", 2**62))]),
        "metadata 'k'",
        str(2**62),
        "the file ends after",
    ),
    "string 2^64-1": (
        gguf([entry(b"k", STRING, string(b"x", 2**64 - 1))]),
        "metadata 'k'",
        str(2**64 - 1),
        "the file ends after",
    ),
    "string invalid UTF-8": (
        gguf([entry(b"k", STRING, string(b"a\xff"))]),
        "metadata 'k'",
        r"b'a\xff'",
        "UTF-8",
    ),
    "key 2^62": (gguf([string(b"k", 2**62) + bytes(32)]), "key 0", str(2**62), "1 to 65535"),
    "key past the end": (gguf([string(b"k", 999) + bytes(32)]), "key 0", "999", "the file ends after"),
    "key too long": (gguf([entry(b"k" * 65536, U8, b"1")]), "key 0", "65536", "1 to 65535"),
    "key empty": (gguf([entry(b"", U8, b"1")], [W], DATA), "key 0", "0 bytes", "1 to 65535"),
    "key invalid UTF-8": (gguf([entry(b"a\xc3(", U8, b"1")]), "key 0", r"b'a\xc3('", "UTF-8"),
    "key twice": (gguf([entry(b"k", U8, b"1")] * 2), "metadata 'k', entry 1", "duplicate", "unique"),
    "value type 13": (gguf([entry(b"k", 13, bytes(8))]), "type of metadata 'k'", "13", "0 to 12"),
    "value type 2^32-1": (
        gguf([entry(b"k", 2**32 - 1, b"1")]),
        "type of metadata 'k'",
        str(2**32 - 1),
        "0 to 12",
    ),
    "bool 2": (gguf([entry(b"k", BOOL, b"\x02")]), "metadata 'k'", "the byte 2", "0 or 1"),
    "bool array with 255": (
        gguf([entry(b"k", ARRAY, array(BOOL, 3, b"\x00\xff\x01"))]),
        "metadata 'k'",
        "the byte 255",
        "0 or 1",
    ),
    "value missing": (
        gguf([entry(b"some key", U64, b"")], alignment=1),
        "metadata 'some key'",
        "8 bytes",
        "ends",
    ),
    "array element type 13": (
        gguf([entry(b"k", ARRAY, array(13, 1, b"x"))]),
        "element type",
        "13",
        "0 to 12",
    ),
    "array of 2^61 u8": (
        gguf([entry(b"k", ARRAY, array(U8, 2**61))]),
        "number of elements of metadata 'k'",
        str(2**61),
        "hold at most",
    ),
    "array of 2^61 u64": (
        gguf([entry(b"k", ARRAY, array(U64, 2**61))]),
        "elements",
        str(2**61),
        "hold at most",
    ),
    "array of 2^61 strings": (
        gguf([entry(b"k", ARRAY, array(STRING, 2**61))]),
        "elements",
        str(2**61),
        "hold at most",
    ),
    "array of 2^61 arrays": (
        gguf([entry(b"k", ARRAY, array(ARRAY, 2**61))]),
        "elements",
        str(2**61),
        "at most",
    ),
    "array string 2^62": (
        gguf([entry(b"k", ARRAY, array(STRING, 2, string(b"ok") + string(b"", 2**62)))]),
        "element 1 of metadata 'k'",
        str(2**62 + 8),
        "the file ends after",
    ),
    "array string cut in its length": (
        gguf([entry(b"k", ARRAY, array(STRING, 2, string(b"a long string") + b"\x01"))], alignment=1),
        "element 1 of metadata 'k'",
        "8 bytes",
        "the file ends after",
    ),
    "arrays 10,000 deep": (gguf([nested(10_000)]), "metadata 'deep'[0][0][0]", "deeper", "at most 4 levels"),
    "arrays 5 deep": (gguf([nested(4)]), "metadata 'deep'[0][0][0]", "deeper", "at most 4 levels"),
    "too many nested arrays": (
        gguf([entry(b"k", ARRAY, array(ARRAY, 65_537, array(U8, 0) * 65_537))]),
        "number of elements of metadata 'k'",
        "65537",
        "at most 65536",
    ),
    "name twice": (gguf([], [W, W], DATA), "name 'w' of tensor 1", "duplicate", "unique"),
    "name empty": (gguf([], [tensor(b"", [8])], DATA), "name of tensor 0", "0 bytes", "1 to 65535"),
    "name invalid UTF-8": (gguf([], [tensor(b"\xff", [8])], DATA), "name of tensor 0", r"\xff", "UTF-8"),
    "name 2^62": (gguf([], [string(b"w", 2**62) + bytes(40)]), "name of tensor 0", str(2**62), "1 to 65535"),
    "type 999": (gguf([], [tensor(b"w", [8], 999)], DATA), "type of tensor 'w'", "999", "known are 0, 1, 2"),
    "type withdrawn": (gguf([], [tensor(b"w", [32], 31)], DATA), "type of tensor 'w'", "31", "withdrawn"),
    "offset misaligned": (
        gguf([], [tensor(b"w", [8], 0, 4)], bytes(64)),
        "offset of tensor 'w'",
        "4",
        "a multiple of 32",
    ),
    "offset misaligned for the file's alignment": (
        gguf([alignment(64)], [tensor(b"w", [8], 0, 32)], bytes(128), alignment=64),
        "offset of tensor 'w'",
        "32",
        "a multiple of 64",
    ),
    "offset past the file": (
        gguf([], [tensor(b"w", [8], 0, 4096)], DATA),
        "data of tensor 'w'",
        "32 bytes long at offset",
        "the file ends after",
    ),
    "offset 2^64-32": (
        gguf([], [tensor(b"w", [8], 0, 2**64 - 32)], DATA),
        "data of tensor 'w'",
        f"at offset {2**64 - 32 + 64}",
        "the file ends after",
    ),
    "tensors overlap": (
        gguf([], [tensor(b"a", [16]), tensor(b"b", [8], 0, 32)], bytes(64)),
        "data of tensor 'b'",
        "at offset",
        "tensor 'a' occupies",
    ),
    "tensors on the same bytes": (
        gguf([], [tensor(b"a", [8]), tensor(b"b", [8])], bytes(64)),
        "data of tensor 'b'",
        "at offset",
        "tensor 'a' occupies",
    ),
    "version 0": (gguf(version=0), "version", "0", "2 and 3"),
    "version 1": (gguf(version=1), "version", "1", "2 and 3"),
    "version 99": (gguf(version=99), "version", "99", "2 and 3"),
    "version 3 big-endian": (gguf(version=3 << 24), "byte order", "big-endian (version 3)", "little-endian"),
    "magic big-endian": (gguf(magic=b"FUGG"), "is not a GGUF file", "big-endian", "little-endian"),
    **{
        f"alignment {value}": (
            gguf([alignment(value)], [W], DATA),
            "general.alignment",
            str(value),
            "power of two",
        )
        for value in (0, 1, 3, 4, 24, 2**22, 2**31, 2**32 - 1)
    },
    **{
        f"alignment of type {name}": (
            gguf([entry(b"general.alignment", kind, value)], [W], DATA),
            "type of metadata 'general.alignment'",
            name,
            "UINT32",
        )
        for name, kind, value in [
            ("UINT64", U64, u64(32)),
            ("INT32", I32, u32(32)),
            ("UINT8", U8, b"\x20"),
            ("FLOAT32", F32, bytes.fromhex("00000042")),
            ("BOOL", BOOL, b"\x01"),
            ("STRING", STRING, string(b"32")),
            ("ARRAY", ARRAY, array(U32, 1, u32(32))),
        ]
    },
    # A row must be whole blocks. Only the row: the total number of elements may well divide.
    **{
        f"{columns} columns in blocks of {name}": (
            gguf([], [tensor(b"w", [columns, rows], kind)], bytes(4096)),
            "row length of tensor 'w'",
            str(columns),
            f"blocks of {name} need a multiple of {block_size}",
        )
        for columns, rows, name, kind, block_size in [
            (172, 64, "Q4_1", Q4_1, 32),
            (64, 32, "Q4_K", Q4_K, 256),
            (4544, 64, "Q4_K", Q4_K, 256),
            (49954, 4096, "Q8_0", Q8_0, 32),
            (1, 32, "Q8_0", Q8_0, 32),
            (31, 1, "Q4_1", Q4_1, 32),
        ]
    },
}


def read_everything(path: Path) -> None:
    """Open the file and touch all that it holds; what opens must also be readable to its last byte."""
    with open_gguf(path) as file:
        size = path.stat().st_size
        assert file.alignment & (file.alignment - 1) == 0
        for value in file.metadata.values():
            if isinstance(value, StringArray):
                assert len(value.raw_list()) == len(value)
                list(value)
        for t in file.tensors.values():
            assert t.offset % file.alignment == 0
            assert t.offset + t.nbytes <= size
            assert t.nbytes * t.block_type.block_size == np.prod(t.shape, dtype=object) * t.block_type.bytes_per_block
            t.data.max()


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


@pytest.mark.parametrize("case", HOSTILE)
def test_a_hostile_file_is_refused_with_field_value_limit_and_remedy(tmp_path: Path, case: str) -> None:
    content, field, value, limit = HOSTILE[case]
    path = tmp_path / "model.gguf"
    path.write_bytes(content)
    error, peak = peak_memory(path)
    assert error is not None
    assert error.startswith(f"{path}: ")
    assert field in error
    assert value in error
    assert limit in error
    assert error.endswith(".")
    assert error.count(". ") >= 1  # a sentence with the remedy follows the one with the fault
    assert peak < 2 * len(content) + 100_000


def test_nested_arrays_are_counted_over_the_whole_file(tmp_path: Path) -> None:
    entries = [entry(key, ARRAY, array(ARRAY, 40_000, array(U8, 0) * 40_000)) for key in (b"k", b"l")]
    path = tmp_path / "model.gguf"
    path.write_bytes(gguf(entries))
    with pytest.raises(ModelFileError, match="elements of metadata 'l' is 40000; at most 25536"):
        open_gguf(path)


def test_the_longest_names_make_short_messages(tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    path.write_bytes(gguf([entry(b"\n" + b"k" * 65_000, 13, b"")], [W], DATA))
    error, _ = peak_memory(path)
    assert error is not None
    assert len(error) < 500 + len(str(path))
    assert "\n" not in error


def test_rows_whose_length_divides_open(tmp_path: Path) -> None:
    """The counterpart of the refusals: 14,464 rows are no fault, whatever they divide by."""
    path = tmp_path / "model.gguf"
    path.write_bytes(gguf([], [tensor(b"w", [256, 14464 // 64 + 1], Q4_K)], bytes(144 * 227)))
    read_everything(path)
    with open_gguf(path) as file:
        assert file.tensors["w"].shape == (227, 256)


def small_file() -> tuple[bytes, int]:
    """A file with a value of every kind and three tensors, and the end of the last tensor's bytes."""
    scalars = {U8: 1, I8: 1, U16: 2, I16: 2, U32: 4, I32: 4, F32: 4, U64: 8, I64: 8, F64: 8}
    entries = [entry(b"scalar.%d" % kind, kind, bytes(range(1, size + 1))) for kind, size in scalars.items()]
    entries += [
        alignment(64),
        entry(b"bool", BOOL, b"\x01"),
        entry(b"text", STRING, string("naïve 🙂".encode())),
        entry(b"numbers", ARRAY, array(I16, 5, bytes(range(10)))),
        entry(b"words", ARRAY, array(STRING, 4, b"".join(map(string, [b"a", b"", "ü".encode(), b"word"])))),
        entry(b"nested", ARRAY, array(ARRAY, 2, array(U8, 2, b"ab") + array(STRING, 1, string(b"c")))),
    ]
    tensors = [
        tensor(b"norm.weight", [16]),
        tensor(b"a.weight", [64, 3], Q4_1, 64),
        tensor(b"b.weight", [256, 1, 2], Q4_K, 192),
    ]
    content = gguf(entries, tensors, alignment=64)
    data = np.random.default_rng(1).integers(0, 256, 192 + 288, np.uint8).tobytes()
    return content + data, len(content) + len(data)


def test_truncation_at_every_byte_is_refused(tmp_path: Path) -> None:
    content, end = small_file()
    path = tmp_path / "model.gguf"
    path.write_bytes(content + bytes(32))  # padding behind the last tensor
    read_everything(path)
    for size in range(end - 1, -1, -1):
        os.truncate(path, size)
        error, peak = peak_memory(path)
        assert error is not None, f"a file cut to {size} of {end} bytes opened"
        assert peak < 2 * size + 100_000
        cut_off = f"the file ends after {size} bytes", f"cut off after {size} bytes", "hold at most", "empty"
        assert any(words in error for words in cut_off), error


def test_damaged_files_open_whole_or_are_refused(tmp_path: Path) -> None:
    """Bytes changed, integers replaced, parts cut out or doubled, the end cut off."""
    content, _ = small_file()
    path = tmp_path / "model.gguf"
    opened = 0
    for number in range(EXAMPLES):
        damaged = mutated(content, number, head=len(content) - 480)
        path.write_bytes(damaged)
        error, peak = peak_memory(path)
        opened += error is None
        assert peak < 2 * len(damaged) + 100_000, f"mutation {number}"
    assert 0 < opened < EXAMPLES, "no damage reached what is checked, or all did"

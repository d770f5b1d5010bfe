"""The GGUF reader on well-formed files, against the gguf package's writer and reader."""

import sys
import tracemalloc
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
from gguf import GGMLQuantizationType, GGUFValueType
from gguf_bytes import ARRAY, BOOL, STRING, U8, U16, U32, array, entry, string, tensor, u32
from gguf_bytes import gguf as gguf_file
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cutaway.errors import ModelFileError
from cutaway.formats.gguf import GGUFFile, open_gguf
from cutaway.formats.gguf_metadata import StringArray


def write(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    return path


def plain(value: Any) -> Any:
    """A metadata value of ours in the shape in which the gguf package gives it."""
    if isinstance(value, StringArray):
        return list(value)
    return value.tolist() if isinstance(value, np.ndarray) else value


def assert_reads_as_the_gguf_package(file: GGUFFile) -> None:
    reader = gguf.GGUFReader(file.path)
    theirs = {key: field.contents() for key, field in reader.fields.items() if not key.startswith("GGUF.")}
    # repr tells 1 from 1.0 and True, and is equal for NaNs.
    assert repr({key: plain(value) for key, value in file.metadata.items()}) == repr(theirs)
    assert list(file.tensors) == [t.name for t in reader.tensors]
    assert file.alignment == reader.alignment
    for expected in reader.tensors:
        actual = file.tensors[expected.name]
        assert actual.name == expected.name
        assert actual.block_type.ggml_type == expected.tensor_type
        assert actual.shape == tuple(reversed(expected.shape.tolist()))
        assert actual.offset == expected.data_offset
        assert actual.nbytes == expected.n_bytes
        assert actual.data.shape[:-1] == actual.shape[:-1]
        raw = np.ascontiguousarray(expected.data).reshape(-1).view(np.uint8)
        np.testing.assert_array_equal(actual.data.reshape(-1), raw)


INTEGERS = {
    GGUFValueType.UINT8: (0, 2**8 - 1),
    GGUFValueType.INT8: (-(2**7), 2**7 - 1),
    GGUFValueType.UINT16: (0, 2**16 - 1),
    GGUFValueType.INT16: (-(2**15), 2**15 - 1),
    GGUFValueType.UINT32: (0, 2**32 - 1),
    GGUFValueType.INT32: (-(2**31), 2**31 - 1),
    GGUFValueType.UINT64: (0, 2**64 - 1),
    GGUFValueType.INT64: (-(2**63), 2**63 - 1),
}
SCALARS = {
    **{kind: st.integers(*limits) for kind, limits in INTEGERS.items()},
    GGUFValueType.FLOAT32: st.floats(width=32),
    GGUFValueType.FLOAT64: st.floats(),
    GGUFValueType.BOOL: st.booleans(),
    GGUFValueType.STRING: st.text(st.characters(exclude_categories=["Cs"]), max_size=12),
}
KINDS = st.sampled_from(list(SCALARS))
METADATA_VALUES = KINDS.flatmap(
    lambda kind: (
        st.tuples(st.just(kind), st.none(), SCALARS[kind])
        | st.tuples(st.just(GGUFValueType.ARRAY), st.just(kind), st.lists(SCALARS[kind], min_size=1, max_size=9))
    )
)
NAMES = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=12).filter(
    lambda name: not name.startswith(("GGUF.", "general."))
)
WRITABLE = ["F32", "F16", "BF16", "Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q4_K", "Q6_K", "IQ4_XS", "I32", "F64"]
TENSORS = st.tuples(st.sampled_from(WRITABLE), st.lists(st.integers(1, 3), max_size=3), st.integers(1, 3))


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    metadata=st.dictionaries(NAMES, METADATA_VALUES, max_size=6),
    tensors=st.dictionaries(NAMES, TENSORS, max_size=5),
    alignment=st.sampled_from([None, 8, 16, 32, 64, 4096]),
    version=st.sampled_from([2, 3]),
)
def test_what_the_gguf_package_writes_is_read_as_it_reads_it(
    tmp_path: Path, metadata: dict, tensors: dict, alignment: int | None, version: int
) -> None:
    path = tmp_path / "model.gguf"
    writer = gguf.GGUFWriter(path, "test")
    if alignment:
        writer.add_custom_alignment(alignment)
    for key, (kind, element_kind, value) in metadata.items():
        writer.add_key_value(key, value, kind, element_kind)
    rng = np.random.default_rng(5)
    for name, (type_name, rows, n_blocks) in tensors.items():
        kind = GGMLQuantizationType[type_name]
        n_bytes = n_blocks * gguf.GGML_QUANT_SIZES[kind][1]
        writer.add_tensor(name, rng.integers(0, 256, (*rows, n_bytes), np.uint8), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    content = bytearray(path.read_bytes())
    content[4] = version  # both versions have the same layout
    path.write_bytes(content)
    with open_gguf(path) as file:
        assert file.version == version
        assert_reads_as_the_gguf_package(file)


def test_smollm2_is_read_as_the_gguf_package_reads_it(smollm2_path: Path) -> None:
    with open_gguf(smollm2_path) as file:
        assert file.require("general.architecture", str) == "llama"
        assert len(file.tensors) == 272
        assert_reads_as_the_gguf_package(file)


@pytest.mark.parametrize("kind", [k for k in gguf.GGML_QUANT_SIZES if k.name != "Q8_1"], ids=lambda k: k.name)
def test_every_format_opens_whether_defined_or_not(tmp_path: Path, kind: GGMLQuantizationType) -> None:
    block_size, bytes_per_block = gguf.GGML_QUANT_SIZES[kind]
    data = bytes(range(256)) * 8
    content = gguf_file([], [tensor(b"w", [2 * block_size, 3], kind)], data[: 6 * bytes_per_block])
    with open_gguf(write(tmp_path / "m.gguf", content)) as file:
        w = file.tensors["w"]
        assert w.block_type.name == kind.name
        assert w.shape == (3, 2 * block_size)
        assert w.data.shape == (3, 2 * bytes_per_block)
        assert w.data.tobytes() == data[: 6 * bytes_per_block]


def test_tensors_are_read_only_views_of_the_file(tmp_path: Path) -> None:
    content = gguf_file([], [tensor(b"a", [4, 2]), tensor(b"b", [8], 0, 64)], bytes(range(96)))
    with open_gguf(str(write(tmp_path / "m.gguf", content))) as file:
        assert list(file.tensors) == ["a", "b"]
        for t in file.tensors.values():
            assert not t.data.flags.owndata
            assert not t.data.flags.writeable
            assert t.data.tobytes() == content[t.offset : t.offset + t.nbytes]
        with pytest.raises(TypeError):
            file.tensors["c"] = file.tensors["a"]  # type: ignore[index]


def test_tensors_may_leave_gaps_and_come_in_any_order(tmp_path: Path) -> None:
    content = gguf_file([], [tensor(b"late", [8], 0, 128), tensor(b"early", [8], 0, 32)], bytes(range(160)))
    with open_gguf(write(tmp_path / "m.gguf", content)) as file:
        assert file.tensors["late"].data.tobytes() == bytes(range(128, 160))
        assert file.tensors["early"].data.tobytes() == bytes(range(32, 64))


def test_a_file_may_end_with_its_metadata(tmp_path: Path) -> None:
    empty = [entry(b"u", ARRAY, array(U16, 0)), entry(b"s", ARRAY, array(STRING, 0))]
    content = gguf_file(empty, alignment=1)
    with open_gguf(write(tmp_path / "vocabulary.gguf", content)) as file:
        assert not file.tensors
        assert file.require("u", np.ndarray).dtype == np.uint16
        assert file.require("u", np.ndarray).shape == (0,)
        assert list(file.require("s", StringArray)) == []


def test_nested_arrays_are_tuples(tmp_path: Path) -> None:
    numbers = array(U16, 3, bytes.fromhex("0100 0200 0300"))
    strings = array(STRING, 1, string(b"x"))
    flags = array(BOOL, 2, b"\x00\x01")
    content = gguf_file(
        [
            entry(b"k", ARRAY, array(ARRAY, 2, array(ARRAY, 2, numbers + strings) + flags)),
            entry(b"after", STRING, string(b"y")),
        ]
    )
    with open_gguf(write(tmp_path / "m.gguf", content)) as file:
        outer = file.require("k", tuple)
        assert [plain(value) for value in outer[0]] == [[1, 2, 3], ["x"]]
        assert plain(outer[1]) == [False, True]
        assert file.metadata["after"] == "y"


def test_numeric_arrays_are_aligned_and_read_only(tmp_path: Path) -> None:
    """Compiled code may read them in place, though they lie at odd offsets of the file."""
    content = gguf_file([entry(b"x", ARRAY, array(U32, 3, u32(1) + u32(2) + u32(2**32 - 1)))])
    assert (content.index(u32(1) + u32(2))) % 4 == 1
    with open_gguf(write(tmp_path / "m.gguf", content)) as file:
        x = file.require("x", np.ndarray)
    assert x.flags.aligned
    assert not x.flags.writeable
    assert x.tolist() == [1, 2, 2**32 - 1]


TOKENS = ["", "a", "Ġhello", "🙂", "x" * 300, "\x00"]


def string_array(tmp_path: Path, tokens: list[bytes]) -> StringArray:
    content = gguf_file([entry(b"tokens", ARRAY, array(STRING, len(tokens), b"".join(map(string, tokens))))])
    return open_gguf(write(tmp_path / "m.gguf", content)).require("tokens", StringArray)


def test_string_array_is_a_sequence_of_strings(tmp_path: Path) -> None:
    tokens = string_array(tmp_path, [token.encode() for token in TOKENS])
    assert len(tokens) == len(TOKENS)
    assert list(tokens) == TOKENS
    assert [tokens[i] for i in range(-len(TOKENS), len(TOKENS))] == TOKENS + TOKENS
    for cut in (slice(1, 4), slice(None, None, -1), slice(5, 100), slice(3, 1)):
        assert tokens[cut] == TOKENS[cut]
    assert tokens.raw_list() == [token.encode() for token in TOKENS]
    assert tokens.raw(-3) == "🙂".encode()
    assert "Ġhello" in tokens
    assert tokens.index("🙂") == 3
    for index in (len(TOKENS), -len(TOKENS) - 1):
        with pytest.raises(IndexError):
            tokens[index]


def test_an_invalid_string_is_named_when_read_and_its_bytes_can_be_had(tmp_path: Path) -> None:
    tokens = string_array(tmp_path, [b"ok", b"\xff\xfe", b"fine"])
    assert tokens[0] == "ok"
    assert tokens[2] == "fine"
    assert tokens.raw(1) == b"\xff\xfe"
    assert tokens.raw_list() == [b"ok", b"\xff\xfe", b"fine"]
    for read in (lambda: tokens[1], lambda: list(tokens)):
        with pytest.raises(ModelFileError, match=r"m\.gguf: element 1 of metadata 'tokens' is .*UTF-8"):
            read()


def test_opening_a_vocabulary_makes_no_object_per_token(tmp_path: Path) -> None:
    """262,144 tokens, none of them valid UTF-8: were one decoded on opening, it would fail."""
    n = 262_144
    tokens = b"".join(string(b"\xff" + bytes([1 + i % 250]) * (i % 11)) for i in range(n))
    path = write(tmp_path / "m.gguf", gguf_file([entry(b"tokens", ARRAY, array(STRING, n, tokens))]))
    blocks = sys.getallocatedblocks()
    tracemalloc.start()
    file = open_gguf(path)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert sys.getallocatedblocks() - blocks < 2_000
    assert peak < 8 * n + 100_000  # an offset a token, and little else
    array_of_tokens = file.require("tokens", StringArray)
    assert len(array_of_tokens) == n
    for index in (0, 1, n // 2, n - 1):
        assert array_of_tokens.raw(index) == b"\xff" + bytes([1 + index % 250]) * (index % 11)


@pytest.fixture
def typed(tmp_path: Path) -> GGUFFile:
    entries = [
        entry(b"count", U32, u32(30)),
        entry(b"flag", BOOL, b"\x01"),
        entry(b"text", STRING, string(b"llama")),
        entry(b"numbers", ARRAY, array(U8, 2, b"\x01\x02")),
        entry(b"words", ARRAY, array(STRING, 1, string(b"a"))),
        entry(b"eps", 6, bytes.fromhex("0000c03f")),
    ]
    return open_gguf(write(tmp_path / "m.gguf", gguf_file(entries)))


RIGHT = {"count": int, "flag": bool, "text": str, "numbers": np.ndarray, "words": StringArray, "eps": float}


@pytest.mark.parametrize("kind", RIGHT.values(), ids=lambda kind: kind.__name__)
@pytest.mark.parametrize("key", RIGHT)
def test_require_gives_the_exact_type_or_an_error(typed: GGUFFile, key: str, kind: type) -> None:
    """In particular a boolean isn't an integer and an integer isn't a float."""
    for read in (lambda: typed.require(key, kind), lambda: typed.get(key, kind, None)):
        if kind is RIGHT[key]:
            assert type(read()) is kind
        else:
            has = f"metadata '{key}' has the type {RIGHT[key].__name__}; it must be {kind.__name__}"
            with pytest.raises(ModelFileError, match=has):
                read()


def test_a_missing_key_is_an_error_unless_the_caller_has_a_default(typed: GGUFFile) -> None:
    with pytest.raises(ModelFileError, match=r"m\.gguf: metadata 'llama\.block_count' is missing"):
        typed.require("llama.block_count", int)
    assert typed.get("llama.block_count", int, None) is None
    assert typed.get("llama.rope.scaling.type", str, "none") == "none"


def test_close_lets_go_of_the_file_and_leaves_what_is_in_use(tmp_path: Path) -> None:
    content = gguf_file([entry(b"s", ARRAY, array(STRING, 1, string(b"word")))], [tensor(b"w", [8])], bytes(range(32)))
    path = write(tmp_path / "m.gguf", content)
    with open_gguf(path) as file:
        data, words = file.tensors["w"].data, file.require("s", StringArray)
    file.close()
    for read in (lambda: file.tensors, lambda: file.metadata, lambda: file.require("s", StringArray)):
        with pytest.raises(ValueError, match="closed"):
            read()
    assert data.tobytes() == bytes(range(32))
    assert words[0] == "word"
    assert str(path) in Path("/proc/self/maps").read_text()
    del data, words
    assert str(path) not in Path("/proc/self/maps").read_text()


def resident_kib(path: Path) -> int:
    """KiB of the mapping of ``path`` that are in this process's memory."""
    lines = iter(Path("/proc/self/smaps").read_text().splitlines())
    assert any(line.endswith(str(path)) for line in lines)
    return next(int(line.split()[1]) for line in lines if line.startswith("Rss:"))


def test_drop_pages_gives_the_memory_of_one_tensor_back(tmp_path: Path) -> None:
    """At least that tensor's pages; the kernel may drop up to a huge page (2 MiB) more at either end."""
    n = 8 << 20
    data = np.random.default_rng(3).integers(0, 256, 2 * n, np.uint8).tobytes()
    tensors = [tensor(b"a", [n], 24), tensor(b"b", [n], 24, n), tensor(b"c", [32], 24, 2 * n)]
    path = write(tmp_path / "m.gguf", gguf_file([], tensors, data + bytes(32)))
    file = open_gguf(path)
    a = file.tensors["a"]
    for t in file.tensors.values():
        t.data.sum()
    before = resident_kib(path)
    file.drop_pages(file.tensors["c"])  # smaller than a page: nothing to give
    assert resident_kib(path) == before
    file.drop_pages(a)
    assert n // 1024 - 8 <= before - resident_kib(path) <= n // 1024 + 4096
    assert a.data.tobytes() == data[:n]
    file.close()
    with pytest.raises(ValueError, match="closed"):
        file.drop_pages(a)

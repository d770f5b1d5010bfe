"""The digests of a model: by hand, as docs/record.md says; and the cache of them, which other files don't get."""

import hashlib
import json
from dataclasses import asdict
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gguf import GGUFReader  # the reference implementation
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from cutaway.audit.record.digests import model_digests, value_bytes
from cutaway.formats.gguf_metadata import StringArray
from support.tiny_families import write_case


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("CUTAWAY_CACHE", str(tmp_path / "cache"))
    return write_case(tmp_path / "tiny.gguf", "llama")


def flip(path: Path) -> None:
    """One bit of a tensor, in place."""
    place = GGUFReader(path).tensors[3].data_offset
    with path.open("r+b") as file:
        file.seek(place)
        (byte,) = file.read(1)
        file.seek(place)
        file.write(bytes([byte ^ 1]))


def test_that_of_the_tensors_is_of_a_manifest(path: Path) -> None:
    """Names, shapes (rows first), types and the bytes' SHA-256, read by another program."""
    lines = []
    for tensor in sorted(GGUFReader(path).tensors, key=lambda each: each.name):
        shape = [int(each) for each in reversed(tensor.shape)]
        digest = hashlib.sha256(tensor.data.tobytes()).hexdigest()
        lines.append(json.dumps([tensor.name, shape, tensor.tensor_type.name, digest], separators=(",", ":")) + "\n")
    assert len(lines) > 20
    assert model_digests(path).tensors == hashlib.sha256("".join(lines).encode()).hexdigest()


def test_one_bit_and_nothing_else(path: Path) -> None:
    before = model_digests(path)
    flip(path)
    after = model_digests(path, fresh=True)
    assert (after.metadata, after.tokenizer) == (before.metadata, before.tokenizer)
    assert after.tensors != before.tensors


def test_who_verifies_does_not_trust_the_cache(path: Path, tmp_path: Path) -> None:
    """Whoever can write to the cache can make it say anything; unless the file is read anew."""
    before = model_digests(path)
    (kept,) = (tmp_path / "cache" / "digests").iterdir()
    kept.write_text(json.dumps({**asdict(before), "tensors": "0" * 64}), encoding="ascii")
    assert model_digests(path).tensors == "0" * 64
    assert model_digests(path, fresh=True) == before
    assert model_digests(path) == before, "what was found anew is kept"


class Texts(StringArray):
    """Those of a file, without one."""

    __slots__ = ("texts",)

    def __init__(self, texts: list[bytes]) -> None:
        self.texts = texts

    def raw_list(self) -> list[bytes]:
        return self.texts


numbers = st.one_of(
    npst.arrays(np.uint8, st.integers(0, 3)),
    npst.arrays(np.int32, st.integers(0, 3)),
    npst.arrays(np.float32, st.integers(0, 2), elements=st.floats(width=32, allow_nan=False)),
)
plain = st.one_of(st.booleans(), st.integers(-300, 300), st.floats(allow_nan=False), st.text(max_size=3), st.none())
values = st.recursive(
    st.one_of(plain, numbers, st.lists(st.binary(max_size=3), max_size=3).map(Texts)),
    lambda each: st.lists(each, max_size=3),
    max_leaves=8,
)


def read_value(data: BytesIO) -> Any:
    """The value back from its bytes: where that can be done, no two values have the same."""
    kind, count = data.read(1), int.from_bytes(data.read(8), "little")
    assert count < 1000
    if kind == b"s":
        return Texts([data.read(int.from_bytes(data.read(8), "little")) for _ in range(count)])
    if kind == b"l":
        return [read_value(data) for _ in range(count)]
    text = data.read(count).decode("ascii")
    if kind == b"v":
        return json.loads(text.partition(" ")[2])
    dtype, _, shape = text.partition("(")
    size = int(shape.split(",")[0])
    return np.frombuffer(data.read(size * np.dtype(dtype).itemsize), dtype)


def same(one: Any, other: Any) -> bool:
    """Of the same kind, and the same."""
    if type(one) is not type(other):
        return False
    if isinstance(one, Texts):
        return one.texts == other.texts
    if isinstance(one, list):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, np.ndarray):
        return one.dtype == other.dtype and one.tobytes() == other.tobytes()
    return repr(one) == repr(other)


@given(values, st.binary(max_size=3))
def test_a_value_can_be_read_back_from_what_is_hashed(value: Any, behind: bytes) -> None:
    """Whatever follows it: so no two values, and no two sequences of values, have the same bytes."""
    data = BytesIO(b"".join(value_bytes(value)) + behind)
    assert same(read_value(data), value)
    assert data.read() == behind


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ([], [[]]),
        ([[], 1], [[1]]),
        ([[1, 2], 3], [[1], [2, 3]]),
        ([1, [2]], [[1], 2]),
        (Texts([]), []),
        (Texts([b"a"]), ["a"]),
        ([Texts([b"ab"]), Texts([])], [Texts([b"ab"])]),
        ([np.zeros(0, np.uint8)], []),
        (1, True),
        (1, 1.0),
        ("1", 1),
        (None, "null"),
    ],
)
def test_nested_and_empty_values_differ(one: Any, other: Any) -> None:
    assert b"".join(value_bytes(one)) != b"".join(value_bytes(other))

"""The digests of a model: by hand, as docs/record.md says; and the cache of them, which other files don't get."""

import hashlib
import json
from dataclasses import asdict
from pathlib import Path

import pytest
from gguf import GGUFReader  # the reference implementation

from cutaway.audit.record.digests import model_digests
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

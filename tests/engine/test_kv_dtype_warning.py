"""An int8 cache for keys that have biases is warned of: once, with the remedy."""

import warnings
from contextlib import suppress
from pathlib import Path

import pytest

from cutaway import LLM, CutawayError
from support.tiny_families import write_case


def warned(path: Path, kv_dtype: str) -> list[str]:
    """What loading warns of. The tiny files have no tokenizer, so it ends with an error, later."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with suppress(CutawayError):
            LLM(path, threads=1, kv_dtype=kv_dtype).close()
    return [str(each.message) for each in caught if "kv_dtype" in str(each.message)]


@pytest.mark.parametrize(("name", "biases"), [("qwen2", True), ("gpt2", True), ("llama", False), ("qwen3", False)])
def test_int8_with_key_biases(tmp_path: Path, name: str, biases: bool) -> None:
    path = write_case(tmp_path / "tiny.gguf", name)
    found = warned(path, "int8")
    assert len(found) == biases
    if biases:
        assert "have biases" in found[0]
        assert "Use kv_dtype='f16'" in found[0]
    assert warned(path, "f16") == []

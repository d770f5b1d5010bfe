"""What the tokenizer tests share: real tokenizers, and some of them built by another library."""

import lzma
from pathlib import Path
from typing import Any

import pytest
import tokenizers
from tokenizer_cases import CONTROL, FIXTURES
from tokenizers import models, pre_tokenizers

from cutaway.formats.gguf import open_gguf
from cutaway.tokenizer import Tokenizer, load_tokenizer
from support.model_files import require_model


@pytest.fixture(scope="session")
def smollm2_metadata(smollm2_path: Path) -> dict[str, Any]:
    with open_gguf(smollm2_path) as file:
        return {
            key: value.to_list() if hasattr(value, "to_list") else value
            for key, value in file.metadata.items()
            if key.startswith("tokenizer.")
        }


@pytest.fixture(scope="session")
def smollm2(smollm2_metadata: dict[str, Any]) -> Tokenizer:
    return load_tokenizer(smollm2_metadata)


@pytest.fixture(scope="session")
def reference(smollm2_metadata: dict[str, Any]) -> tokenizers.Tokenizer:
    """SmolLM2's tokenizer as the `tokenizers` package builds it, without special tokens."""
    pieces = smollm2_metadata["tokenizer.ggml.tokens"]
    merges = [tuple(merge.split(" ")) for merge in smollm2_metadata["tokenizer.ggml.merges"]]
    built = tokenizers.Tokenizer(models.BPE({piece: i for i, piece in enumerate(pieces)}, merges))
    built.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True),
        ]
    )
    return built


@pytest.fixture(scope="session")
def reference_with_specials(smollm2_metadata: dict[str, Any], reference: tokenizers.Tokenizer) -> tokenizers.Tokenizer:
    """The same, parsing control tokens."""
    built = tokenizers.Tokenizer.from_str(reference.to_str())
    pieces = smollm2_metadata["tokenizer.ggml.tokens"]
    types = smollm2_metadata["tokenizer.ggml.token_type"]
    control = [piece for piece, kind in zip(pieces, types, strict=True) if kind == CONTROL]
    built.add_special_tokens([tokenizers.AddedToken(text, special=True, normalized=False) for text in control])
    return built


def vocabulary_metadata(name: str, folder: Path) -> dict[str, Any]:
    """The metadata of a compressed vocabulary file."""
    path = folder / f"{name}.gguf"
    path.write_bytes(lzma.decompress((FIXTURES / f"{name}.gguf.xz").read_bytes()))
    with open_gguf(path) as file:
        return dict(file.metadata)


@pytest.fixture(scope="session")
def gpt2(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    return load_tokenizer(vocabulary_metadata("gpt-2", tmp_path_factory.mktemp("gpt-2")))


@pytest.fixture(scope="session")
def llama_metadata(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Llama 2's vocabulary, of the SentencePiece kind."""
    return vocabulary_metadata("llama-spm", tmp_path_factory.mktemp("llama-spm"))


@pytest.fixture(scope="session")
def llama(llama_metadata: dict[str, Any]) -> Tokenizer:
    return load_tokenizer(llama_metadata)


def other_tokenizer(name: str) -> Tokenizer:
    with open_gguf(require_model(name)) as file:
        return load_tokenizer(dict(file.metadata))


@pytest.fixture(scope="session")
def qwen2() -> Tokenizer:
    return other_tokenizer("qwen2.5-coder-0.5b-instruct")


@pytest.fixture(scope="session")
def gemma3() -> Tokenizer:
    return other_tokenizer("gemma3-270m")

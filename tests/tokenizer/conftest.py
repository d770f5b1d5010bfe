"""What the tokenizer tests share: real tokenizers, and some of them built by another library."""

import json
import lzma
from pathlib import Path
from typing import Any

import pytest
import tokenizers
from hypothesis import settings
from tokenizer_cases import CONTROL, FIXTURES, USER_DEFINED
from tokenizers import models, normalizers, pre_tokenizers

from cutaway.formats.gguf import open_gguf
from cutaway.formats.gguf_metadata import StringArray
from cutaway.tokenizer import Tokenizer, load_tokenizer
from support.model_files import require_model

# A busy machine may take any time.
settings.register_profile("patient", deadline=None)
settings.load_profile("patient")


@pytest.fixture(scope="session")
def smollm2_metadata(smollm2_path: Path) -> dict[str, Any]:
    with open_gguf(smollm2_path) as file:
        return {
            key: list(value) if isinstance(value, StringArray) else value
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


def packed_metadata(name: str) -> dict[str, Any]:
    """The metadata of a vocabulary whose merges are kept as the places where they cut their products."""
    packed = json.loads(lzma.decompress((FIXTURES / f"{name}.json.xz").read_bytes()))
    tokens, first = packed["tokens"], packed["first_product"]
    cuts = enumerate(packed["cuts"], first)
    return packed["scalars"] | {
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": [kind for kind, count in packed["types"] for _ in range(count)],
        "tokenizer.ggml.merges": [f"{tokens[i][:cut]} {tokens[i][cut:]}" for i, cut in cuts],
    }


@pytest.fixture(scope="session")
def falcon_metadata() -> dict[str, Any]:
    return packed_metadata("falcon")


@pytest.fixture(scope="session")
def falcon(falcon_metadata: dict[str, Any]) -> Tokenizer:
    return load_tokenizer(falcon_metadata)


@pytest.fixture(scope="session")
def deepseek_coder_metadata() -> dict[str, Any]:
    return packed_metadata("deepseek-coder")


@pytest.fixture(scope="session")
def deepseek_coder(deepseek_coder_metadata: dict[str, Any]) -> Tokenizer:
    return load_tokenizer(deepseek_coder_metadata)


@pytest.fixture(scope="session")
def phi3(llama_metadata: dict[str, Any]) -> Tokenizer:
    """Phi-3's vocabulary: Llama 2's, in which ``</s>`` is user-defined, with more control tokens."""
    control = ["<|endoftext|>", "<|assistant|>", *(f"<|placeholder{n}|>" for n in range(1, 5)), "<|system|>", "<|end|>"]
    control += ["<|placeholder5|>", "<|placeholder6|>", "<|user|>"]
    types = llama_metadata["tokenizer.ggml.token_type"].tolist()
    types[0], types[2] = CONTROL, USER_DEFINED
    return load_tokenizer(
        llama_metadata
        | {
            "general.architecture": "phi3",
            "tokenizer.ggml.tokens": [*llama_metadata["tokenizer.ggml.tokens"], *control],
            "tokenizer.ggml.token_type": types + [CONTROL] * len(control),
            "tokenizer.ggml.scores": llama_metadata["tokenizer.ggml.scores"].tolist() + [-1000.0] * len(control),
        }
    )


@pytest.fixture(scope="session")
def gpt2_metadata(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return vocabulary_metadata("gpt-2", tmp_path_factory.mktemp("gpt-2"))


@pytest.fixture(scope="session")
def gpt2(gpt2_metadata: dict[str, Any]) -> Tokenizer:
    return load_tokenizer(gpt2_metadata)


@pytest.fixture(scope="session")
def llama_metadata(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Llama 2's vocabulary, of the SentencePiece kind."""
    return vocabulary_metadata("llama-spm", tmp_path_factory.mktemp("llama-spm"))


@pytest.fixture(scope="session")
def llama(llama_metadata: dict[str, Any]) -> Tokenizer:
    return load_tokenizer(llama_metadata)


def other_metadata(name: str) -> dict[str, Any]:
    with open_gguf(require_model(name)) as file:
        return {
            key: list(value) if isinstance(value, StringArray) else value
            for key, value in file.metadata.items()
            if key.startswith(("tokenizer.", "general.architecture"))
        }


@pytest.fixture(scope="session")
def qwen2_metadata() -> dict[str, Any]:
    return other_metadata("qwen2.5-coder-0.5b-instruct")


@pytest.fixture(scope="session")
def qwen2(qwen2_metadata: dict[str, Any]) -> Tokenizer:
    return load_tokenizer(qwen2_metadata)


@pytest.fixture(scope="session")
def gemma3() -> Tokenizer:
    return load_tokenizer(other_metadata("gemma3-270m"))


@pytest.fixture(scope="session")
def llama_reference(llama_metadata: dict[str, Any]) -> tokenizers.Tokenizer:
    """Llama 2's tokenizer as the `tokenizers` package builds it: with merges, made from the scores."""
    pieces = list(llama_metadata["tokenizer.ggml.tokens"])
    score_of = dict(zip(pieces, llama_metadata["tokenizer.ggml.scores"].tolist(), strict=True))
    id_of = {piece: i for i, piece in enumerate(pieces)}
    merges = [
        (-score_of[piece], id_of[piece[:cut]], piece[:cut], piece[cut:])
        for piece in pieces[259:]
        for cut in range(1, len(piece))
        if id_of.get(piece[:cut], 0) >= 259 and id_of.get(piece[cut:], 0) >= 259
    ]
    model = models.BPE(
        id_of, [(left, right) for _, _, left, right in sorted(merges)], byte_fallback=True, unk_token="<unk>"
    )
    built = tokenizers.Tokenizer(model)
    built.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    return built

"""Each kind of tokenizer from a GGUF file gives the ids of the original, on random texts: the `tokenizers` package with
the pre-tokenizer that the model's own tokenizer.json has. A thousand texts; a hundred thousand in the long suite.
"""

import os
import random
from typing import Any

import pytest
import tokenizers
from originals import ORIGINALS
from tokenizer_cases import USER_DEFINED
from tokenizer_texts import LONG, random_text
from tokenizers import models

from cutaway.tokenizer import Tokenizer, load_tokenizer
from cutaway.tokenizer.byte_alphabet import BYTE_TO_CHARACTER

KINDS = ("gpt-2", "falcon", "deepseek-coder", "qwen2", "llama")
SPELLED = ["<|endoftext|>", ">>TITLE<<", "<|fim▁hole|>", "õ", "<s>", "<|im_start|>", "</s>", "[INST]", "'LL", "\r\n"]


IGNORE_MERGES = ("llama-bpe", "tekken")
"""Those whose tokenizer.json has ``ignore_merges``: a word that is a token is not made of merges."""


def original(pre: str, metadata: dict[str, Any]) -> tokenizers.Tokenizer:
    pieces = metadata["tokenizer.ggml.tokens"]
    merges = metadata["tokenizer.ggml.merges"]
    pairs = [(left, right) for left, right in (merge.split(" ") for merge in merges)]
    built = tokenizers.Tokenizer(
        models.BPE({piece: i for i, piece in enumerate(pieces)}, pairs, ignore_merges=pre in IGNORE_MERGES)
    )
    built.pre_tokenizer = ORIGINALS[pre]
    types = list(metadata["tokenizer.ggml.token_type"])
    added = [piece for piece, kind in zip(pieces, types, strict=True) if kind == USER_DEFINED]
    built.add_tokens([tokenizers.AddedToken(piece, normalized=False) for piece in added])
    return built


@pytest.mark.parametrize("kind", KINDS)
def test_same_ids_as_the_original(kind: str, request: pytest.FixtureRequest) -> None:
    lacking: set[int] = set()
    fixture = kind.replace("-", "_").replace("gpt_2", "gpt2")
    ours: Tokenizer = request.getfixturevalue(fixture)
    if kind == "llama":
        theirs = request.getfixturevalue("llama_reference")
    else:
        metadata = request.getfixturevalue(f"{fixture}_metadata")
        theirs = original(kind, metadata)
        lacking = {byte for byte, letter in enumerate(BYTE_TO_CHARACTER) if theirs.token_to_id(letter) is None}
    noise = random.Random(kind)
    for _ in range(100_000 if LONG in os.environ else 1_000):
        text = random_text(noise, SPELLED, lacking)
        ids = ours.encode(text, add_bos=False)
        assert ids == theirs.encode(text).ids, text
        assert ours.decode(ids) == (text.replace("▁", " ") if kind == "llama" else text)


@pytest.mark.parametrize("pre", sorted(ORIGINALS))
def test_every_pre_tokenizer_with_one_vocabulary(pre: str, gpt2_metadata: dict[str, Any]) -> None:
    """GPT-2's without the later half of its merges: half of its words are tokens that merges don't make."""
    merges = list(gpt2_metadata["tokenizer.ggml.merges"])
    metadata = gpt2_metadata | {"tokenizer.ggml.pre": pre, "tokenizer.ggml.merges": merges[: len(merges) // 2]}
    ours, theirs = load_tokenizer(metadata), original(pre, metadata)
    noise, words = random.Random(pre), [" lighthouse", " brutally", "Wikipedia", "\n", "'ll", "2024", *SPELLED]
    for _ in range(100_000 if LONG in os.environ else 300):
        text = random_text(noise, words)
        assert ours.encode(text, add_bos=False) == theirs.encode(text).ids, text

"""Text ↔ ids of whole tokenizers: published vectors, and the `tokenizers` package on random text."""

import os
import random

import pytest
import tokenizers
from hypothesis import given
from hypothesis import strategies as st
from tokenizer_cases import FIXTURES
from tokenizer_texts import SMOLLM2_LACKS, assigned, smollm2_texts, texts

from cutaway.errors import InvalidRequestError
from cutaway.tokenizer import Tokenizer

LONG = "CUTAWAY_LONG_TESTS"
SPECIALS = ["<|im_start|>", "<|im_end|>", "<|endoftext|>", "<repo_name>", "<|im_", "end|>", "<|", "<repo"]


def gpt2_vectors() -> list[tuple[str, list[int]]]:
    inputs = (FIXTURES / "gpt-2.inp").read_bytes().decode("utf-8").split("\n__ggml_vocab_test__\n")
    outputs = (FIXTURES / "gpt-2.out").read_text("utf-8").split("\n")
    return [(text, [int(token_id) for token_id in ids.split()]) for text, ids in zip(inputs, outputs, strict=True)]


@pytest.mark.parametrize(("text", "ids"), gpt2_vectors())
def test_gpt2_vectors(gpt2: Tokenizer, text: str, ids: list[int]) -> None:
    assert gpt2.encode(text) == ids
    assert gpt2.decode(ids) == text


@pytest.mark.parametrize(
    ("text", "ids"),
    [
        ("😀", [10813, 242, 218]),
        ("brutalist", [1612, 316, 272, 363]),
        ("\u2029 \ua3e4", [321, 119, 35792, 233, 114]),
    ],
)
def test_smollm2_ids(smollm2: Tokenizer, text: str, ids: list[int]) -> None:
    assert smollm2.encode(text) == ids


@given(smollm2_texts)
def test_same_ids_as_the_reference(smollm2: Tokenizer, reference: tokenizers.Tokenizer, text: str) -> None:
    assert smollm2.encode(text) == reference.encode(text).ids


@given(st.lists(st.one_of(st.sampled_from(SPECIALS), smollm2_texts), max_size=6).map("".join))
def test_same_ids_as_the_reference_with_specials(
    smollm2: Tokenizer, reference_with_specials: tokenizers.Tokenizer, text: str
) -> None:
    assert smollm2.encode(text, parse_special=True) == reference_with_specials.encode(text).ids


@given(st.lists(st.one_of(st.sampled_from(SPECIALS), texts), max_size=6).map("".join))
def test_encoding_is_lossless(gpt2: Tokenizer, text: str) -> None:
    for parse_special in (False, True):
        assert gpt2.decode(gpt2.encode(text, parse_special=parse_special), skip_special=False) == text


@given(st.text(max_size=20), st.characters(categories=["Cs"]), st.text(max_size=20))
def test_lone_surrogates_are_refused(smollm2: Tokenizer, before: str, surrogate: str, after: str) -> None:
    with pytest.raises(
        InvalidRequestError, match=rf"text has a lone surrogate, U\+D.* at position {len(before)};"
    ) as caught:
        smollm2.encode(before + surrogate + after)
    assert caught.value.field == "text"


def test_the_cache_changes_nothing(smollm2: Tokenizer) -> None:
    ids = smollm2.encode(" word" * 3)
    ids.append(0)
    assert smollm2.encode(" word" * 3) == ids[:-1]


def random_text(noise: random.Random) -> str:
    """A text of runs: each from one place of Unicode, or ordinary words and marks."""
    runs: list[str] = []
    for _ in range(noise.randrange(1, 12)):
        kind = noise.randrange(5)
        if kind == 0:
            runs.append(noise.choice([" ", "\n", "\t", "'s", "'", " 1", "23", ". ", *SPECIALS]) * noise.randrange(1, 6))
        elif kind == 1:
            runs.append("".join(noise.choices(" etaoinshrdlu'ETA012\n", k=noise.randrange(1, 30))))
        else:
            start = noise.randrange(0x20, [0x7F, 0x800, 0x3400, 0x20000][noise.randrange(4)])
            runs.append("".join(chr(start + noise.randrange(64)) for _ in range(noise.randrange(1, 8))))
    text = "".join(character for run in runs for character in run if assigned(character))
    return "".join(character for character in text if SMOLLM2_LACKS.isdisjoint(character.encode()))


@pytest.mark.skipif(LONG not in os.environ, reason=f"takes a minute: {LONG}=1 pytest tests/tokenizer")
def test_a_hundred_thousand_texts(
    smollm2: Tokenizer, reference: tokenizers.Tokenizer, reference_with_specials: tokenizers.Tokenizer
) -> None:
    noise = random.Random(20_240)
    for _ in range(100_000):
        text = random_text(noise)
        assert smollm2.encode(text) == reference.encode(text).ids
        assert smollm2.encode(text, parse_special=True) == reference_with_specials.encode(text).ids
        assert smollm2.decode(smollm2.encode(text)) == text

"""Words: complete, and equal to a cut in two steps by plain patterns, and to the `tokenizers` package."""

import re

import pytest
import regex
from hypothesis import given
from tokenizer_texts import texts
from tokenizers import pre_tokenizers

from cutaway.errors import ModelFileError
from cutaway.tokenizer.byte_alphabet import piece_bytes
from cutaway.tokenizer.pretokenize import GPT2, PATTERNS, word_pattern


@given(texts)
@pytest.mark.parametrize("name", sorted(PATTERNS))
def test_words_join_to_the_text(name: str, text: str) -> None:
    words = word_pattern(name).findall(text)
    assert "".join(words) == text
    assert "" not in words


@given(texts)
def test_smollm_is_gpt2_between_single_digits(text: str) -> None:
    in_two_steps = [word for part in regex.split(r"(\p{N})", text) for word in regex.findall(GPT2, part)]
    assert word_pattern("smollm").findall(text) == in_two_steps


@given(texts)
def test_gpt2_words_equal_the_reference(text: str) -> None:
    pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    expected = [piece_bytes(piece) for piece, _ in pre_tokenizer.pre_tokenize_str(text)]
    assert [word.encode() for word in word_pattern("gpt-2").findall(text)] == expected


def test_an_unknown_name_is_refused_with_the_known_ones() -> None:
    with pytest.raises(ModelFileError, match=re.escape("'qwen35'; known pre-tokenizers: gpt-2, smollm")):
        word_pattern("qwen35")


def test_a_missing_name_warns_and_means_gpt2() -> None:
    with pytest.warns(UserWarning, match="gpt-2 is assumed"):
        assert word_pattern(None).pattern == GPT2

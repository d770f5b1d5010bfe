"""Words: complete, and equal to a cut in two steps by plain patterns, and to the `tokenizers` package."""

import re

import pytest
import regex
import tokenizers
from hypothesis import given
from tokenizer_cases import tiny_metadata
from tokenizer_texts import texts
from tokenizers import pre_tokenizers

from cutaway.errors import ModelFileError
from cutaway.tokenizer import load_tokenizer
from cutaway.tokenizer.byte_alphabet import piece_bytes
from cutaway.tokenizer.pretokenize import GPT2, LLAMA3, PRE_TOKENIZERS, QWEN2, pre_tokenizer


def words_of(name: str, text: str) -> list[str]:
    words: list[str] = regex.findall(pre_tokenizer(name).pattern, text)
    return words


@given(texts)
@pytest.mark.parametrize("name", sorted(PRE_TOKENIZERS))
def test_words_join_to_the_text(name: str, text: str) -> None:
    words = words_of(name, text)
    assert "".join(words) == text
    assert "" not in words


@given(texts)
def test_smollm_is_gpt2_between_single_digits(text: str) -> None:
    in_two_steps = [word for part in regex.split(r"(\p{N})", text) for word in regex.findall(GPT2, part)]
    assert words_of("smollm", text) == in_two_steps


@given(texts)
def test_gpt2_words_equal_the_reference(text: str) -> None:
    pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    expected = [piece_bytes(piece) for piece, _ in pre_tokenizer.pre_tokenize_str(text)]
    assert [word.encode() for word in words_of("gpt-2", text)] == expected


@given(texts)
@pytest.mark.parametrize(("name", "pattern"), [("qwen2", QWEN2), ("llama-bpe", LLAMA3)])
def test_words_equal_those_of_another_engine_for_the_pattern(name: str, pattern: str, text: str) -> None:
    splitter = pre_tokenizers.Split(tokenizers.Regex(pattern), behavior="isolated")
    assert words_of(name, text) == [word for word, _ in splitter.pre_tokenize_str(text)]


@pytest.mark.parametrize(
    ("text", "qwen2", "llama3"),
    [
        ("I'M 2024", ["I", "'M", " ", "2", "0", "2", "4"], ["I", "'M", " ", "202", "4"]),
        ("x=(y)\n\n z", ["x", "=(", "y", ")\n\n", " z"], ["x", "=(", "y", ")\n\n", " z"]),
        ("a \n\t b", ["a", " \n", "\t", " b"], ["a", " \n", "\t", " b"]),
    ],
)
def test_words_of_qwen2_and_llama3(text: str, qwen2: list[str], llama3: list[str]) -> None:
    assert words_of("qwen2", text) == qwen2
    assert words_of("llama-bpe", text) == llama3


def test_an_unknown_name_is_refused_with_the_known_ones() -> None:
    known = "'qwen35'; known pre-tokenizers: gpt-2, llama-bpe, qwen2, smollm"
    with pytest.raises(ModelFileError, match=re.escape(known)):
        pre_tokenizer("qwen35")
    with pytest.raises(ModelFileError, match=re.escape(known)):
        load_tokenizer(tiny_metadata(pre="qwen35"))


def test_a_missing_name_warns_and_means_gpt2() -> None:
    with pytest.warns(UserWarning, match="gpt-2 is assumed"):
        assert pre_tokenizer(None) is PRE_TOKENIZERS["gpt-2"]
    with pytest.warns(UserWarning, match="gpt-2 is assumed"):
        load_tokenizer(tiny_metadata(pre=None))

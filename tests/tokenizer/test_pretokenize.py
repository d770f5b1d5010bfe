"""Words: complete, and equal to those of the originals in the `tokenizers` package."""

import re
import sys

import pytest
import regex
from hypothesis import given
from hypothesis import strategies as st
from originals import ORIGINALS, split
from tokenizer_cases import tiny_metadata
from tokenizer_texts import texts
from tokenizers import pre_tokenizers

from cutaway.errors import ModelFileError
from cutaway.tokenizer import load_tokenizer
from cutaway.tokenizer.pretokenize import PRE_TOKENIZERS, PUNCTUATION, PreTokenizer, pre_tokenizer
from cutaway.tokenizer.words import cut_words, isolate


def words_of(name: str, text: str) -> list[str]:
    return cut_words(text, map(isolate, pre_tokenizer(name).patterns))


@given(texts)
@pytest.mark.parametrize("name", sorted(ORIGINALS))
def test_words_are_those_of_the_original(name: str, text: str) -> None:
    assert cut_words(text, pre_tokenizer(name).steps()) == [word for word, _ in ORIGINALS[name].pre_tokenize_str(text)]


def test_punctuation_is_the_package_s() -> None:
    """Every code point: its table is older than Unicode's, and the pattern is ours."""
    original = pre_tokenizers.Punctuation()
    characters = [chr(code) for code in range(sys.maxunicode + 1) if not 0xD800 <= code < 0xE000]
    theirs = [character for character in characters if len(original.pre_tokenize_str("a" + character)) == 2]
    assert [character for character in characters if regex.match(PUNCTUATION, character)] == theirs
    assert len(theirs) > 700


# Letters, digits and spaces that are easily taken for something else, and code points that no version of Unicode has
# assigned: noncharacters, private ones, planes without characters.
ODD = [
    *"\u2029\u2028\u0085\x1c\x1f\u180e\u200b\u2060\ufeff\u00ad\u3000\u00a0\ua3e4\u0e33\u2160\u00b2\u0661\u1d7ce",
    *"\ufdd0\ufffe\uffff\U0001ffff\U00040000\U000dfffd\ue000\uf8ff\U000f0000\U0010ffff",
    *["a", "B", "1", "23", "'s", "'LL", " ", "  ", "\n", "\r\n", ".", "é", "e\u0301", "中"],
]


@given(st.lists(st.sampled_from(ODD), max_size=12).map("".join))
@pytest.mark.parametrize("name", sorted(ORIGINALS))
def test_words_of_odd_and_unassigned_characters(name: str, text: str) -> None:
    assert cut_words(text, pre_tokenizer(name).steps()) == [word for word, _ in ORIGINALS[name].pre_tokenize_str(text)]


def names_of(known: PreTokenizer) -> str:
    return next(name for name, each in PRE_TOKENIZERS.items() if each == known)


@given(texts)
@pytest.mark.parametrize("known", sorted(set(PRE_TOKENIZERS.values())), ids=names_of)
def test_words_equal_those_of_another_engine_for_the_patterns(known: PreTokenizer, text: str) -> None:
    assert cut_words(text, known.steps()) == [word for word, _ in split(*known.patterns).pre_tokenize_str(text)]
    assert "".join(cut_words(text, map(isolate, known.patterns))) == text


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
    known = f"'gpt-5'; known pre-tokenizers: {', '.join(sorted(PRE_TOKENIZERS))}. "
    with pytest.raises(ModelFileError, match=re.escape(known)):
        pre_tokenizer("gpt-5")
    with pytest.raises(ModelFileError, match=re.escape(known)):
        load_tokenizer(tiny_metadata(pre="gpt-5"))


def test_a_missing_name_warns_and_means_gpt2() -> None:
    with pytest.warns(UserWarning, match="gpt-2 is assumed"):
        assert pre_tokenizer(None) is PRE_TOKENIZERS["gpt-2"]
    with pytest.warns(UserWarning, match="gpt-2 is assumed"):
        tokenizer = load_tokenizer(tiny_metadata(pre=None))
    assert len(tokenizer.notes) == 1
    assert "gpt-2 is assumed" in tokenizer.notes[0]
    assert load_tokenizer(tiny_metadata()).notes == ()

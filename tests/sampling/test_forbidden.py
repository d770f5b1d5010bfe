"""What a step may not choose: bad words, and the ends of an answer before ``min_tokens``."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cutaway.errors import InvalidRequestError
from cutaway.sampling.forbidden import NO_BAD_WORDS, bad_word_ids, forbidden_ids, stop_ids
from cutaway.sampling.params import SamplingParams

EOS = frozenset({0, 1})


def letters(text: str) -> list[int]:
    """A tokenizer of one token a letter, " " and "a" together one."""
    ids = []
    while text:
        piece = text[:2] if text.startswith(" a") else text[0]
        ids.append(ord(piece) if len(piece) == 1 else 1000)
        text = text[len(piece) :]
    return ids


def spelled(*words: str) -> set[tuple[int, ...]]:
    """All forms of the words, as ids."""
    bad = bad_word_ids(words, letters)
    return {(token,) for token in bad.single} | {form for forms in bad.longer.values() for form in forms}


def test_a_word_is_banned_with_and_without_a_space_before_it() -> None:
    assert spelled("a") == {(ord("a"),), (1000,)}
    assert spelled(" a") == spelled("a") == spelled("   a") - {tuple(letters("   a"))}
    assert spelled("ba", "c") == {
        (ord("b"), ord("a")),
        (ord(" "), ord("b"), ord("a")),
        (ord("c"),),
        (ord(" "), ord("c")),
    }
    assert spelled("\n") == {(ord("\n"),), (ord(" "), ord("\n"))}


def test_spaces_alone_are_a_word() -> None:
    assert (ord(" "),) in spelled(" ")


def test_no_words_are_no_bad_words() -> None:
    assert bad_word_ids(None, letters) == bad_word_ids([], letters) == NO_BAD_WORDS


def test_a_word_without_tokens_is_refused() -> None:
    with pytest.raises(InvalidRequestError, match=r"bad_words has 'x', .*no token.*Leave it out") as error:
        bad_word_ids(["x"], lambda text: [])
    assert error.value.field == "bad_words"


def naive(words: list[list[int]], output: list[int]) -> set[int]:
    """Of each word the last id, where the ids before it are the output's last ones."""
    found = set()
    for word in words:
        before = word[:-1]
        if output[len(output) - len(before) :] == before and len(before) <= len(output):
            found.add(word[-1])
    return found


small = st.lists(st.integers(2, 4), max_size=12)


@given(st.lists(st.lists(st.integers(2, 4), min_size=1, max_size=4), max_size=6), small, st.booleans())
def test_the_last_token_of_a_word_is_forbidden_when_the_others_were_generated(
    words: list[list[int]], output: list[int], as_array: bool
) -> None:
    texts = ["".join(map(str, word)) for word in words]
    bad = bad_word_ids(texts, lambda text: [int(letter) for letter in text.lstrip(" ")])
    given_output = np.array(output, np.int32) if as_array else output
    result = forbidden_ids(SamplingParams(), bad, given_output, EOS)
    assert result.dtype == np.int32
    assert result.tolist() == sorted(naive(words, output))


@pytest.mark.parametrize("min_tokens", [0, 1, 4])
def test_the_ends_are_forbidden_while_fewer_than_min_tokens_were_generated(min_tokens: int) -> None:
    params = SamplingParams(min_tokens=min_tokens, stop_token_ids=[7, 3])
    ends = stop_ids(params, EOS)
    assert ends == {0, 1, 3, 7}
    for generated in range(8):
        result = forbidden_ids(params, NO_BAD_WORDS, [5] * generated, ends)
        assert result.tolist() == ([0, 1, 3, 7] if generated < min_tokens else [])


def test_both_at_once() -> None:
    bad = bad_word_ids(["5", "59"], lambda text: [int(letter) for letter in text.strip()])
    assert forbidden_ids(SamplingParams(min_tokens=2), bad, [5], EOS).tolist() == [0, 1, 5, 9]
    assert forbidden_ids(SamplingParams(min_tokens=2), bad, [5, 6], EOS).tolist() == [5]


def test_the_prompt_completes_no_bad_word() -> None:
    bad = bad_word_ids(["23"], lambda text: [int(letter) for letter in text.strip()])
    assert forbidden_ids(SamplingParams(), bad, [], EOS).tolist() == []


def test_stop_ids_of_the_model_are_ignored_when_asked_and_those_of_the_request_never() -> None:
    assert stop_ids(SamplingParams(), EOS) == EOS
    assert stop_ids(SamplingParams(ignore_eos=True), EOS) == frozenset()
    assert stop_ids(SamplingParams(ignore_eos=True, stop_token_ids=[9]), EOS) == {9}


def test_nothing_asked_is_nothing_forbidden_and_nothing_made() -> None:
    empty = forbidden_ids(SamplingParams(), NO_BAD_WORDS, [1, 2], EOS)
    assert empty is forbidden_ids(SamplingParams(), NO_BAD_WORDS, [], EOS)
    assert empty.size == 0

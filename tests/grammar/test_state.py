"""Masks against brute force: a token is allowed if and only if some answer of the form goes on with it."""

import re
from itertools import product
from typing import Any

import pytest
from walks import allowed_ids

from cutaway.errors import InvalidRequestError
from cutaway.grammar.grammars import Grammars
from cutaway.sampling.structured_outputs import StructuredOutputsParams
from support.small_vocabulary import SmallVocabulary

LETTERS = b"abc"
PIECES = [b"a", b"b", b"c", b"ab", b"ba", b"ca", b"abc", b"cab", b"aaa", b"bb"]
SMALL = SmallVocabulary([*PIECES, b""])
EXPRESSIONS = [
    "abc", "a|b", "ab|ba|cab", "a*", "a+b?", "(ab)*c", "[abc]{2,4}", "(a|b)+c", "a{3}", "(a|ab)(c|bca)", "[^a]+",
    "(aaa)*b", "a?b?c?", "(?:ab|cab){1,2}", "(?i)AB*", "b.{2}", "(a|aa)*b", "c(bb|ba)*", "a{2,}b{0,2}",
]  # fmt: skip
LONGEST = 8


def texts(expression: str) -> set[bytes]:
    """All texts of at most LONGEST letters that the expression matches, found by trying them all."""
    wanted = re.compile(expression.encode())
    each = (bytes(letters) for n in range(LONGEST + 1) for letters in product(LETTERS, repeat=n))
    return {text for text in each if wanted.fullmatch(text)}


def small_grammars() -> Grammars:
    vocabulary: Any = SMALL
    return Grammars(vocabulary)


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_exactly_the_tokens_with_which_some_answer_goes_on_are_allowed(expression: str) -> None:
    grammar = small_grammars().get(StructuredOutputsParams(regex=expression))
    matched = texts(expression)
    (end,) = SMALL.eos_ids
    seen = set()
    waiting: list[list[int]] = [[]]
    while waiting:
        ids = waiting.pop()
        before = b"".join(SMALL.tokens[each] for each in ids)
        if len(before) > LONGEST - 5 or before in seen:
            continue
        seen.add(before)
        state = grammar.start([end])
        for each in ids:
            state.advance(each)
        allowed = set(allowed_ids(state, SMALL.vocab_size))
        assert (end in allowed) == state.accepts == (before in matched)
        alive = {i for i, piece in enumerate(PIECES) if any(text.startswith(before + piece) for text in matched)}
        assert allowed - {end} <= alive, f"behind {before!r}"
        # Where only one text can follow, it may be cut in one way only.
        assert {PIECES[each][0] for each in allowed - {end}} == {PIECES[each][0] for each in alive}
        first = {text[len(before)] for text in matched if text.startswith(before) and len(text) > len(before)}
        if len(first) > 1:
            assert allowed - {end} == alive, f"behind {before!r}"
        assert state.finished == (not alive)
        waiting += [[*ids, each] for each in allowed - {end}]
    assert len(seen) > 1


def test_a_token_that_was_not_allowed_is_an_error() -> None:
    state = small_grammars().get(StructuredOutputsParams(regex="abc")).start()
    with pytest.raises(InvalidRequestError, match="structured_outputs") as error:
        state.advance(PIECES.index(b"b"))
    assert error.value.field == "structured_outputs"


def test_answers_do_not_share_their_place() -> None:
    grammar = small_grammars().get(StructuredOutputsParams(regex="ab|ba"))
    one, other = grammar.start(), grammar.start()
    one.advance(PIECES.index(b"a"))
    assert allowed_ids(one, SMALL.vocab_size) == [PIECES.index(b"b")]
    assert allowed_ids(other, SMALL.vocab_size) == [PIECES.index(each) for each in (b"a", b"b", b"ab", b"ba")]
    again = grammar.start()
    assert (again.allowed == other.allowed).all()


def test_the_end_is_allowed_by_all_tokens_that_may_end_it_and_by_none_where_there_are_none() -> None:
    grammar = small_grammars().get(StructuredOutputsParams(regex="a+"))
    both = sorted(SMALL.specials)
    for end_ids in ([], both):
        state = grammar.start(end_ids)
        assert not set(both) & set(allowed_ids(state, SMALL.vocab_size))
        state.advance(PIECES.index(b"a"))
        assert state.accepts
        assert not state.finished
        assert set(both) & set(allowed_ids(state, SMALL.vocab_size)) == set(end_ids)


@pytest.mark.parametrize("size", [30, 31, 32, 33, 63, 64, 65])
def test_any_size_of_vocabulary(size: int) -> None:
    """The bit of the end lies in the last word, or in a word of its own."""
    vocabulary: Any = SmallVocabulary([bytes([97 + n % 26]) * (1 + n // 26) for n in range(size - 1)], [b"<end>"])
    assert vocabulary.vocab_size == size
    state = Grammars(vocabulary).get(StructuredOutputsParams(regex="a|[b-z]+")).start([size - 1])
    assert allowed_ids(state, size) == [i for i in range(size - 1) if i == 0 or i % 26]
    state.advance(0)
    assert state.finished
    assert allowed_ids(state, size) == [size - 1]

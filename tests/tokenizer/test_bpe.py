"""Merging by rank: equal to a slow merger that rescans the whole word, and O(n log n) by count."""

import itertools
from itertools import pairwise
from unittest.mock import Mock

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizer_cases import tiny_metadata

from cutaway.errors import InvalidRequestError, ModelFileError
from cutaway.tokenizer import Tokenizer, load_tokenizer
from cutaway.tokenizer.bpe import MergeTable, read_merges
from cutaway.tokenizer.byte_alphabet import BYTE_TO_CHARACTER
from cutaway.tokenizer.merge import merge_by_rank
from cutaway.tokenizer.vocabulary import read_vocabulary

Merges = dict[tuple[int, int], tuple[int, int]]
"""Left and right id → rank and product."""


def table_of(size: int, merges: Merges) -> MergeTable:
    rows = [(left, right, rank, product) for (left, right), (rank, product) in merges.items()]
    return MergeTable.of(size, np.array(rows, np.int32).reshape(-1, 4))


def merge_by_rescanning(ids: list[int], merges: Merges) -> list[int]:
    """The definition: as long as a pair has a rank, merge the leftmost of the lowest rank."""
    while True:
        found = [(*merges[pair], i) for i, pair in enumerate(pairwise(ids)) if pair in merges]
        if not found:
            return ids
        _, product, i = min(found, key=lambda each: (each[0], each[2]))
        ids = [*ids[:i], product, *ids[i + 2 :]]


@st.composite
def merges_and_words(draw: st.DrawFn) -> tuple[Merges, list[int]]:
    """A random but trainable table over 3 letters: each merge joins pieces that exist by then."""
    letters = known = 3
    merges: Merges = {}
    for _ in range(draw(st.integers(0, 20))):
        pair = draw(st.integers(0, known - 1)), draw(st.integers(0, known - 1))
        if pair not in merges:
            merges[pair] = len(merges), known
            known += 1
    return merges, draw(st.lists(st.integers(0, letters - 1), max_size=40))


@given(merges_and_words())
def test_equal_to_rescanning(case: tuple[Merges, list[int]]) -> None:
    merges, word = case
    assert merge_by_rank(word, table_of(64, merges).rule()) == merge_by_rescanning(word, merges)


@given(st.lists(st.tuples(st.integers(0, 12), st.integers(0, 12), st.integers(0, 99)), max_size=60))
def test_a_table_finds_what_it_was_made_of(rows: list[tuple[int, int, int]]) -> None:
    """Every pair of 13 ids, those that don't merge, too; of equal pairs the last one."""
    merges: Merges = {(left, right): (rank, product) for rank, (left, right, product) in enumerate(rows)}
    given_rows = [(left, right, rank, product) for rank, (left, right, product) in enumerate(rows)]
    rule = MergeTable.of(13, np.array(given_rows, np.int32).reshape(-1, 4)).rule()
    for pair in itertools.product(range(13), repeat=2):
        assert rule(*pair) == merges.get(pair)


@pytest.mark.parametrize("word", ["a", "ab", "abc", "xyz"])
def test_twice_the_letters_cost_twice_the_lookups(word: str, smollm2_metadata: dict[str, object]) -> None:
    pieces: list[str] = smollm2_metadata["tokenizer.ggml.tokens"]  # type: ignore[assignment]
    id_of = {piece: i for i, piece in enumerate(pieces)}
    merges = [(left, right) for left, right in map(str.split, smollm2_metadata["tokenizer.ggml.merges"])]  # type: ignore[arg-type]
    table = read_merges(merges, read_vocabulary(smollm2_metadata), "merges")

    def lookups(n: int) -> int:
        rule = Mock(side_effect=table.rule())
        merge_by_rank([id_of[letter] for letter in word * n], rule)
        return rule.call_count

    once, twice = lookups(2_000), lookups(4_000)
    assert once >= 2_000 * len(word) - 1
    assert twice <= 2.01 * once


def test_merges_go_by_rank_not_from_left_to_right(smollm2: Tokenizer, gpt2: Tokenizer) -> None:
    assert smollm2.encode("brutalist") == [1612, 316, 272, 363]
    assert gpt2.encode("brutalist") == [1671, 315, 49845]


def test_a_word_that_is_a_token_needs_no_merges_where_the_vocabulary_says_so() -> None:
    """Llama 3's vocabulary has words that its merges don't make. A control token or an unused one is no word."""
    pieces = [*tiny_metadata()["tokenizer.ggml.tokens"], "xyz", "Ġxyz", "ctl", "unused"]
    types = [*tiny_metadata()["tokenizer.ggml.token_type"], 1, 1, 3, 5]
    xyz = len(pieces) - 4
    letters = [*map(ord, "xyz")]
    tokenizers = {
        pre: load_tokenizer(tiny_metadata(pre=pre, tokens=pieces, token_type=types)) for pre in ("llama-bpe", "qwen2")
    }
    assert tokenizers["llama-bpe"].encode("xyz xyz") == [xyz, xyz + 1]
    assert tokenizers["qwen2"].encode("xyz xyz") == [*letters, BYTE_TO_CHARACTER.index("Ġ"), *letters]
    assert tokenizers["llama-bpe"].encode("xyzx") == [*letters, ord("x")]  # the whole word or nothing
    for word in ("ctl", "unused"):
        assert tokenizers["llama-bpe"].encode(word) == [*map(ord, word)]


def test_no_merge_makes_a_control_token() -> None:
    """Though a file may list one that would."""
    tiny = tiny_metadata(control=("xyz",))
    pieces = [*tiny["tokenizer.ggml.tokens"], "xy"]
    types = [*tiny["tokenizer.ggml.token_type"], 1]
    tokenizer = load_tokenizer(tiny_metadata(tokens=pieces, token_type=types, merges=["x y", "xy z"]))
    assert tokenizer.encode("xyz") == [len(pieces) - 1, ord("z")]
    assert tokenizer.encode("xyz", parse_special=True) == [pieces.index("xyz")]


def test_which_vocabularies_begin_with_bos_where_the_file_says_nothing() -> None:
    assert load_tokenizer(tiny_metadata(pre="llama-bpe", bos_token_id=259)).add_bos
    assert not load_tokenizer(tiny_metadata(pre="llama-bpe", bos_token_id=259, add_bos_token=False)).add_bos
    assert not load_tokenizer(tiny_metadata(pre="llama-bpe")).add_bos  # it has none
    assert not load_tokenizer(tiny_metadata(pre="qwen2", bos_token_id=259)).add_bos


def test_a_byte_without_token_is_refused_not_dropped(smollm2: Tokenizer) -> None:
    for text, byte in (("a\x04b", "0x04"), ("bell\x1d", "0x1D"), ("\U00040000", "0xF1")):
        with pytest.raises(InvalidRequestError, match=byte) as caught:
            smollm2.encode(text)
        assert caught.value.field == "text"


@pytest.mark.parametrize(
    ("merges", "message"),
    [
        (None, "tokenizer.ggml.merges is missing"),
        (["a b", "ab"], "merge 1 of tokenizer.ggml.merges is 'ab'"),
        (["a b c"], "merge 0 of tokenizer.ggml.merges is 'a b c'"),
        (["a b", "ab zz"], "needs 'zz'"),
        (["b a"], "needs 'ba'"),
        (["a b", "ab c", "a b"], "3 entries, but only 2 different"),
        ([1, 2], "array of strings"),
        ("a b", "array of strings"),
    ],
)
def test_bad_merges_are_refused(merges: object, message: str) -> None:
    with pytest.raises(ModelFileError, match=message):
        load_tokenizer(tiny_metadata(merges=merges))

"""Learning merges: equal to counting all pairs anew each time; the counts, the order, the cost."""

from collections import Counter
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cutaway.tokenizer.training import pair_counts
from cutaway.tokenizer.training.bpe_trainer import BPEVocabulary, Merge, learn_merges
from cutaway.tokenizer.training.pair_counts import PairCounts

Words = list[tuple[list[int], int]]


def count_pairs(words: Words) -> Counter[tuple[int, int]]:
    counts: Counter[tuple[int, int]] = Counter()
    for ids, count in words:
        for pair in pairwise(ids):
            counts[pair] += count
    return counts


def merge_in(ids: list[int], pair: tuple[int, int], product: int) -> list[int]:
    merged: list[int] = []
    i = 0
    while i < len(ids):
        if tuple(ids[i : i + 2]) == pair:
            merged.append(product)
            i += 2
        else:
            merged.append(ids[i])
            i += 1
    return merged


def learn_slowly(word_counts: dict[str, int], size: int, min_count: int) -> BPEVocabulary:
    """The definition: count all pairs, merge the most frequent one everywhere, begin again."""
    words = [([*word.encode()], count) for word, count in word_counts.items()]
    pieces = [bytes([byte]) for byte in range(256)]
    merges: list[tuple[int, int]] = []
    while len(pieces) < size and (counts := count_pairs(words)):
        pair, count = min(counts.items(), key=lambda each: (-each[1], each[0]))
        if count < min_count:
            break
        text = pieces[pair[0]] + pieces[pair[1]]
        if text not in pieces:
            pieces.append(text)
        merges.append(pair)
        words = [(merge_in(ids, pair, pieces.index(text)), count) for ids, count in words]
    return BPEVocabulary(pieces, merges)


# Few letters, so that pairs overlap, tie, and make the same piece in two ways.
corpora = st.dictionaries(st.text("abé", min_size=1, max_size=14), st.integers(1, 6), max_size=8)


@given(corpora, st.integers(256, 280), st.integers(1, 4))
def test_equal_to_counting_anew_each_time(word_counts: dict[str, int], size: int, min_count: int) -> None:
    assert learn_merges(word_counts, size, min_count=min_count) == learn_slowly(word_counts, size, min_count)


@given(corpora)
def test_the_counts_are_right_after_every_merge(word_counts: dict[str, int]) -> None:
    words = [([*word.encode()], count) for word, count in word_counts.items()]

    def check(merge: Merge, counts: PairCounts, pieces: list[bytes]) -> None:
        nonlocal words
        words = [(merge_in(ids, merge.pair, merge.product), count) for ids, count in words]
        expected = sorted(count_pairs(words).items(), key=lambda each: (-each[1], each[0]))
        assert counts.top(1_000) == expected
        assert all(counts.count(pair) == count for pair, count in expected)
        assert counts.most_frequent() == (expected[0] if expected else None)

    learn_merges(word_counts, 300, min_count=1, after=check)


@given(corpora)
def test_the_order_of_words_is_no_matter(word_counts: dict[str, int]) -> None:
    backwards = dict(reversed(word_counts.items()))
    assert learn_merges(word_counts, 280) == learn_merges(backwards, 280)


def test_the_classic_example() -> None:
    told: list[Merge] = []
    vocabulary = learn_merges({"aaabdaaabac": 1}, 259, after=lambda merge, *_: told.append(merge))
    a, b = b"ab"
    assert vocabulary.merges == [(a, a), (a, b), (256, 257)]
    assert vocabulary.pieces[256:] == [b"aa", b"ab", b"aaab"]
    assert [merge.frequency for merge in told] == [4, 2, 2]


def test_a_piece_that_two_merges_make_is_one_token() -> None:
    """ "abc" is a + bc in one word and ab + c in another."""
    words = {"ab": 9, "abc": 5, "bc": 8, "xbc": 8, "abcd": 4}
    vocabulary = learn_merges(words, 400, min_count=1)
    assert len(set(vocabulary.pieces)) == len(vocabulary.pieces)
    assert vocabulary == learn_slowly(words, 400, 1)


class CountingArray(pair_counts.array):  # type: ignore[type-arg]
    looks = 0

    def __getitem__(self, index: int) -> int:  # type: ignore[override]
        type(self).looks += 1
        return super().__getitem__(index)


@pytest.mark.parametrize("word", ["a", "ab", "abcacb"])
def test_twice_the_corpus_costs_twice_the_looks(monkeypatch: pytest.MonkeyPatch, word: str) -> None:
    """Even if it is one word."""
    monkeypatch.setattr(pair_counts, "array", CountingArray)

    def looks(n: int) -> int:
        CountingArray.looks = 0
        learn_merges({word * n: 1}, 266)
        return CountingArray.looks

    once, twice = looks(1 << 11), looks(1 << 12)
    assert once >= len(word) << 11
    assert twice <= 2.1 * once

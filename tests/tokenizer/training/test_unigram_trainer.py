"""Learning a Unigram vocabulary: substrings, expectations, losses and rounds against brute force on tiny corpora."""

import math
from collections import Counter
from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cutaway.errors import InvalidRequestError
from cutaway.tokenizer.training.lattices import LONGEST_WORD, best_by_others, expect
from cutaway.tokenizer.training.substrings import find_substrings, lay_out, texts_of
from cutaway.tokenizer.training.unigram_trainer import (
    ALWAYS_KEPT,
    Round,
    choose_alphabet,
    cut_at_others,
    learn_pieces,
    maximize,
    prune,
    seed,
)

corpora = st.dictionaries(st.text("abé▁", min_size=1, max_size=7), st.integers(1, 6), min_size=1, max_size=4)


def segmentations(text: str, pieces: set[str]) -> Iterator[list[str]]:
    if not text:
        yield []
    for n in range(1, len(text) + 1):
        if text[:n] in pieces:
            for rest in segmentations(text[n:], pieces):
                yield [text[:n], *rest]


@given(corpora, st.integers(1, 6), st.integers(1, 5))
def test_substrings_are_all_that_occur_so_often(corpus: dict[str, int], longest: int, min_count: int) -> None:
    words = lay_out(corpus, 100)
    found = find_substrings(words, longest, min_count)
    texts = texts_of(words, found.lengths, found.first)
    counts: Counter[str] = Counter()
    for word, count in corpus.items():
        for n in range(1, min(longest, len(word)) + 1):
            for i in range(len(word) - n + 1):
                counts[word[i : i + n]] += count
    expected = {text: count for text, count in counts.items() if count >= min_count or len(text) == 1}
    assert dict(zip(texts, found.counts.tolist(), strict=True)) == expected
    assert texts == sorted(texts, key=lambda text: (len(text), text))
    text = "".join(sorted(corpus))
    for n, at in enumerate(found.at, 1):
        for place, number in enumerate(at.tolist()):
            assert number == (
                texts.index(text[place : place + n]) if fits(words.room, place, n, text, expected) else -1
            )


def fits(room: np.ndarray, place: int, n: int, text: str, expected: dict[str, int]) -> bool:  # type: ignore[type-arg]
    return bool(room[place] >= n) and text[place : place + n] in expected


@given(corpora, st.randoms())
def test_expectations_are_those_of_all_segmentations(corpus: dict[str, int], noise: object) -> None:
    words = lay_out(corpus, LONGEST_WORD)
    found = find_substrings(words, 4)
    texts = texts_of(words, found.lengths, found.first)
    probabilities = np.array([0.01 + noise.random() for _ in texts])  # type: ignore[attr-defined]
    probabilities /= probabilities.sum()
    probability = dict(zip(texts, probabilities.tolist(), strict=True))
    counts: Counter[str] = Counter()
    likelihood = 0.0
    for word, count in corpus.items():
        ways = [(way, math.prod(probability[each] for each in way)) for way in segmentations(word, set(texts))]
        total = math.fsum(each for _, each in ways)
        likelihood += count * math.log(total)
        for way, each in ways:
            for piece in way:
                counts[piece] += count * each / total
    expected = expect(words, found.at, probabilities)
    np.testing.assert_allclose(expected.counts, [counts[text] for text in texts], rtol=1e-9, atol=1e-12)
    assert math.isclose(expected.log_likelihood, likelihood, rel_tol=1e-9)
    others = best_by_others(found.at, probabilities, found.lengths, found.first)
    for text, other in zip(texts, others.tolist(), strict=True):
        ways = [math.prod(probability[each] for each in way) for way in segmentations(text, set(texts) - {text})]
        assert math.isclose(other, max(ways, default=0.0), rel_tol=1e-12)


@given(corpora)
def test_a_round_makes_the_corpus_likelier_and_drops_the_smallest_losses(corpus: dict[str, int]) -> None:
    words = lay_out(corpus, LONGEST_WORD)
    candidates = seed(find_substrings(words, 4), 1_000)
    assert math.isclose(candidates.probabilities.sum(), 1.0)
    rounds: list[Round] = []
    for _ in range(3):
        better = maximize(words, candidates, rounds.append, 1, drop=True)
        if better.lengths.size == candidates.lengths.size:
            before = expect(words, candidates.at, candidates.probabilities).log_likelihood
            floor = 0.5 * better.lengths.size / words.weights.sum()  # pieces are held above probabilities of their own
            assert expect(words, better.at, better.probabilities).log_likelihood >= before - floor * words.weights.sum()
        candidates = better
    texts = texts_of(words, candidates.lengths, candidates.first)
    probability = dict(zip(texts, candidates.probabilities.tolist(), strict=True))

    def loss(text: str) -> float:
        ways = [math.prod(probability[each] for each in way) for way in segmentations(text, set(texts) - {text})]
        return probability[text] * math.log(probability[text] / max(ways)) if len(text) > 1 else math.inf

    single = sum(len(text) == 1 for text in texts)
    size = max(single, len(texts) - 2)
    pruned = prune(candidates, size)
    kept = texts_of(words, pruned.lengths, pruned.first)
    assert len(kept) == size
    dropped = set(texts) - set(kept)
    assert all(loss(one) <= loss(other) + 1e-12 for one in dropped for other in kept)


def test_characters_are_cut_out_if_they_are_rare() -> None:
    corpus = {"the▁cat": 20_000, "naïve▁✓": 1, "中": 3}
    alphabet = choose_alphabet(corpus)
    assert alphabet == ALWAYS_KEPT == {*map(chr, range(0x21, 0x7F)), "▁"}
    assert cut_at_others(corpus, alphabet) == {"the▁cat": 20_000, "na": 1, "ve▁": 1}
    assert choose_alphabet({"中": 3, "é": 3}) == ALWAYS_KEPT | {"中", "é"}


def test_the_pieces_are_as_many_as_wanted_and_the_likeliest_first() -> None:
    corpus = {"▁the": 90, "▁them": 30, "▁then": 30, "▁cat": 20, "▁cats": 10, "▁mat": 10, "▁on": 9}
    rounds: list[Round] = []
    vocabulary = learn_pieces(corpus, choose_alphabet(corpus), 102, rounds.append)
    texts = [text for text, _ in vocabulary.pieces]
    assert len(texts) == len(set(texts)) == 102
    assert set(texts) >= ALWAYS_KEPT
    assert texts[0] == "▁the"
    assert "▁cat" in texts
    scores = [score for _, score in vocabulary.pieces]
    assert scores == sorted(scores, reverse=True)
    assert rounds[-1].bits_per_character < math.log2(12)
    assert learn_pieces(dict(reversed(corpus.items())), choose_alphabet(corpus), 102, threads=3) == vocabulary
    with pytest.raises(InvalidRequestError, match=r"size is 90; it must be 95 or more"):
        learn_pieces(corpus, choose_alphabet(corpus), 90)


def test_long_words_are_cut() -> None:
    rounds: list[Round] = []
    corpus = {"ab" * 5_000: 2}
    vocabulary = learn_pieces(corpus, choose_alphabet(corpus), 120, rounds.append)
    assert all(text == "ab" * (len(text) // 2) for text, _ in vocabulary.pieces[:8])
    assert rounds[-1].bits_per_character < 0.2


def test_progress_is_told_from_the_beginning_to_the_end_of_each_stage() -> None:
    counts = {f"▁{n:x}{n * 7919:x}": n % 5 + 2 for n in range(2_000)}
    told: list[tuple[str, int, int]] = []
    rounds: list[Round] = []
    alphabet = choose_alphabet(counts)
    learn_pieces(counts, alphabet, 200, rounds.append, 2, lambda *each: told.append(each))
    stages = list(dict.fromkeys(stage for stage, _, _ in told))
    assert stages[0] == "finding substrings"
    assert len(stages) == 1 + len(rounds)
    for stage in stages:
        done = [(done, total) for each, done, total in told if each == stage]
        assert [each for each, _ in done] == sorted({each for each, _ in done})
        assert len({total for _, total in done}) == 1
        assert stage == stages[0] or done[-1][0] == done[-1][1]

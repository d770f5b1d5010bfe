"""Learning a Unigram vocabulary: from many frequent substrings, those are kept whose loss would cost the most.

In: words and their counts. Out: pieces with their probabilities. Rounds of expectation and maximization give each piece
the probability that makes the corpus most likely; then the pieces that others can best stand in for are dropped; until
there are as many as wanted. Single characters are always kept.
Source: Kudo, "Subword Regularization" (2018). Other than in SentencePiece, the maximization takes plain relative
frequencies.
"""

import math
import string
from collections import Counter
from collections.abc import Callable, Mapping
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from cutaway.errors import InvalidRequestError
from cutaway.tokenizer.sentencepiece_text import SPACE
from cutaway.tokenizer.training.lattices import LONGEST_WORD, best_by_others, expect
from cutaway.tokenizer.training.substrings import (
    NONE,
    Floats,
    Ints,
    Substrings,
    Words,
    find_substrings,
    lay_out,
    texts_of,
)

LONGEST_PIECE = 16  # characters
SEEDS_PER_PIECE = 16  # substrings to begin with, for each piece wanted
STEPS = 2  # of expectation and maximization in a round
KEPT = 0.75  # of the pieces in a round
SELDOM = 0.5  # expected occurrences below which a piece is dropped at once
FINDING = "finding substrings"
COVERAGE = 0.9995  # of the corpus's characters that have a piece of their own
ALWAYS_KEPT = frozenset(string.printable[:95]) - {" "} | {SPACE}
"""Have pieces, whatever the corpus is: printable ASCII, its space as text has it when it is cut. Were ▁ spelled by its
bytes, they would be decoded as ▁ and not as a space: decoders turn pieces into text before they join bytes.
"""


class Round(NamedTuple):
    """What a round came to: the number of pieces, and the bits that the corpus takes for a character."""

    pieces: int
    bits_per_character: float


class UnigramVocabulary(NamedTuple):
    """Pieces and the natural logarithms of their probabilities, the likeliest first; of equal ones in the order of
    their code points.
    """

    pieces: list[tuple[str, float]]


class _Candidates(NamedTuple):
    """The pieces of a round. ``at``, ``lengths``, ``first``: as in ``Substrings``. ``probabilities``: ``[S]``."""

    at: list[npt.NDArray[np.int32]]
    lengths: Ints
    first: Ints
    probabilities: Floats


Progress: TypeAlias = Callable[[str, int, int], None]
"""Told what is being done, and how much of how much is done."""


def learn_pieces(
    word_counts: Mapping[str, int],
    alphabet: frozenset[str],
    size: int,
    on_round: Callable[[Round], None] = lambda each: None,
    threads: int = 1,
    progress: Progress = lambda stage, done, total: None,
) -> UnigramVocabulary:
    """Learn ``size`` pieces; fewer where the corpus has no more substrings that occur twice.

    Args:
        alphabet: the characters that have pieces (``choose_alphabet``).

    Raises:
        InvalidRequestError: the size doesn't suffice for the single characters.
    """
    if len(alphabet) > size:
        raise InvalidRequestError(
            f"size is {size}; it must be {len(alphabet)} or more, for as many single characters.", "size"
        )
    words = lay_out(cut_at_others(word_counts, alphabet), LONGEST_WORD)
    found = find_substrings(words, LONGEST_PIECE, progress=lambda done, total: progress(FINDING, done, total))
    candidates = seed(found, SEEDS_PER_PIECE * size)
    absent = sorted(alphabet - set(texts_of(words, candidates.lengths, candidates.first)))
    wanted = size - len(absent)
    while candidates.lengths.size > wanted:
        candidates = maximize(words, candidates, on_round, threads, progress, drop=True)
        candidates = prune(candidates, max(wanted, int(KEPT * candidates.lengths.size)))
    candidates = maximize(words, candidates, on_round, threads, progress, drop=False)
    lowest = float(candidates.probabilities.min())
    scored = list(
        zip(texts_of(words, candidates.lengths, candidates.first), candidates.probabilities.tolist(), strict=True)
    )
    scored += [(character, lowest) for character in absent]
    ordered = sorted(scored, key=lambda each: (-each[1], each[0]))
    return UnigramVocabulary([(text, math.log(probability)) for text, probability in ordered])


def choose_alphabet(word_counts: Mapping[str, int]) -> frozenset[str]:
    """The characters that have pieces: printable ASCII, and the most frequent ones up to ``COVERAGE``; of equally
    frequent ones, those of the lower code points.
    """
    counts: Counter[str] = Counter()
    for word, count in word_counts.items():
        for character in word:
            counts[character] += count
    needed = COVERAGE * sum(counts.values())
    chosen = set(ALWAYS_KEPT)
    covered = 0
    for character, count in sorted(counts.items(), key=lambda each: (-each[1], each[0])):
        if covered >= needed:
            break
        covered += count
        chosen.add(character)
    return frozenset(chosen)


def cut_at_others(word_counts: Mapping[str, int], alphabet: frozenset[str]) -> Mapping[str, int]:
    """The words without characters outside the alphabet, which no piece has; they cut a word in two."""
    parts: Counter[str] = Counter()
    for word, count in word_counts.items():
        if alphabet.issuperset(word):
            parts[word] += count
        else:
            known = "".join([character if character in alphabet else "\0" for character in word])
            for part in filter(None, known.split("\0")):
                parts[part] += count
    return parts


def seed(substrings: Substrings, size: int) -> _Candidates:
    """The substrings to begin with: single characters, and those that occur most, times their length; of equal ones
    the first. Their probabilities are in that proportion.
    """
    scores = substrings.counts * substrings.lengths
    longer = np.flatnonzero(substrings.lengths > 1)
    chosen = longer[np.argsort(-scores[longer], kind="stable")[:size]]
    kept = np.sort(np.append(np.flatnonzero(substrings.lengths == 1), chosen))
    candidates = _Candidates(substrings.at, substrings.lengths, substrings.first, scores)
    return _normalized(_keep(candidates, kept))


def maximize(
    words: Words,
    candidates: _Candidates,
    on_round: Callable[[Round], None],
    threads: int,
    progress: Progress = lambda stage, done, total: None,
    *,
    drop: bool,
) -> _Candidates:
    """Some steps of expectation and maximization.

    Args:
        drop: a piece that is hardly expected at all is dropped, unless it is a single character.
    """
    characters = float(words.weights.sum())
    size = candidates.lengths.size
    for step in range(STEPS):

        def on_group(done: int, total: int, before: int = step) -> None:
            progress(f"weighing {size:,} pieces", before * total + done, STEPS * total)

        expected = expect(words, candidates.at, candidates.probabilities, threads, on_group)
        stays = (candidates.lengths == 1) | (expected.counts >= SELDOM) | (not drop)
        counts = np.maximum(expected.counts, SELDOM)
        candidates = _normalized(_keep(candidates._replace(probabilities=counts), np.flatnonzero(stays)))
    on_round(Round(candidates.lengths.size, -expected.log_likelihood / math.log(2) / characters))
    return candidates


def prune(candidates: _Candidates, size: int) -> _Candidates:
    """The ``size`` pieces that the corpus would lose the most without; of equal ones the first.

    The loss of a piece is its probability times the logarithm of how much likelier it is than the best way to write it
    by others.
    """
    others = best_by_others(candidates.at, candidates.probabilities, candidates.lengths, candidates.first)
    pairs = zip(candidates.probabilities.tolist(), others.tolist(), strict=True)
    losses = np.array([math.inf if other == 0.0 else own * math.log(own / other) for own, other in pairs])
    return _normalized(_keep(candidates, np.sort(np.argsort(-losses, kind="stable")[:size])))


def _keep(candidates: _Candidates, kept: Ints) -> _Candidates:
    """The pieces of these numbers, renumbered in this order."""
    renumbered = np.full(candidates.lengths.size + 1, NONE, np.int32)  # the last one for NONE
    renumbered[kept] = np.arange(kept.size)
    lengths, first, probabilities = candidates.lengths[kept], candidates.first[kept], candidates.probabilities[kept]
    return _Candidates([renumbered[at] for at in candidates.at[: lengths.max()]], lengths, first, probabilities)


def _normalized(candidates: _Candidates) -> _Candidates:
    total = sum(candidates.probabilities.tolist())  # in one order, which NumPy doesn't promise
    return candidates._replace(probabilities=candidates.probabilities / total)

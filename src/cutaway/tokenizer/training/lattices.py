"""The lattices of words: all ways to cut each word into pieces, and what their probabilities come to.

In: which piece of each length begins at each place of the words, and the pieces' probabilities. Out: how often each
piece is expected to occur, the likelihood of the corpus, and the best way to write a piece by others. All words of one
length are computed together, position by position; the sums are in one order, the products plain float64, so that the
results are the same on every machine.

A word of n characters has the positions 0 … n between them. ``forward[e]`` is the probability of all ways to write its
first e characters, ``backward[s]`` of all ways to write those from s on. With at most 24 characters a word, and
probabilities of at least 10⁻¹², no product is too small for float64.
Source: Kudo, "Subword Regularization" (2018); the forward-backward algorithm.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from cutaway.tokenizer.training.substrings import Floats, Ints, Words

LONGEST_WORD = 24  # characters
GROUP = 1 << 14  # words computed together: their arrays fit into a processor's cache


class Expectation(NamedTuple):
    """``counts``: how often each piece is expected to occur, ``[S]``. ``log_likelihood``: of the corpus, natural."""

    counts: Floats
    log_likelihood: float


def expect(
    words: Words,
    pieces_at: Sequence[npt.NDArray[np.int32]],
    probabilities: Floats,
    threads: int = 1,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> Expectation:
    """The E-step: over all ways to cut each word, weighted by their probabilities.

    Args:
        words: each of at most ``LONGEST_WORD`` characters.
        pieces_at: ``pieces_at[n - 1][place]``: the piece of n characters that begins there, or -1.
        probabilities: of the pieces, ``[S]``; every single character that occurs has one above 0.
        threads: that share the work; the sums are in one order all the same.
        progress: told how many groups of words, of how many, are done.
    """
    starts = words.starts
    groups = [
        (length, starts[group[i : i + GROUP]])
        for length, group in _by_length(words.room[starts])
        for i in range(0, group.size, GROUP)
    ]
    counts = np.zeros(probabilities.size)
    log_likelihood = 0.0
    with ThreadPoolExecutor(threads) as pool:
        results = pool.map(lambda group: _expect_group(words, group[0], group[1], pieces_at, probabilities), groups)
        for done, each in enumerate(results, 1):
            counts += each.counts
            log_likelihood += each.log_likelihood
            progress(done, len(groups))
    return Expectation(counts, log_likelihood)


def _expect_group(
    words: Words, length: int, begin: Ints, pieces_at: Sequence[npt.NDArray[np.int32]], probabilities: Floats
) -> Expectation:
    """The E-step over words of one length, which begin at these places."""
    edges = [*_edges_of(begin, length, pieces_at)]
    forward = np.zeros((length + 1, begin.size))
    backward = np.zeros((length + 1, begin.size))
    forward[0] = backward[length] = 1.0
    for start, stop, which, piece in edges:  # in the order of their ends
        forward[stop, which] += forward[start, which] * probabilities[piece]
    for start, stop, which, piece in sorted(edges, key=lambda edge: -edge[0]):
        backward[start, which] += backward[stop, which] * probabilities[piece]
    weights = words.weights[begin]
    scale = weights / forward[length]
    passing = [
        forward[start, which] * probabilities[piece] * backward[stop, which] * scale[which]
        for start, stop, which, piece in edges
    ]
    pieces = np.concatenate([piece for *_, piece in edges])
    counts = np.bincount(pieces, np.concatenate(passing), probabilities.size).astype(np.float64)
    logs = map(math.log, forward[length].tolist())
    return Expectation(counts, sum(log * weight for log, weight in zip(logs, weights.tolist(), strict=True)))


def best_by_others(
    pieces_at: Sequence[npt.NDArray[np.int32]], probabilities: Floats, lengths: Ints, first: Ints
) -> Floats:
    """The probability of the best way to write each piece by other pieces, ``[S]``; 0 for single characters.

    Args:
        lengths, first: of each piece, its characters and a place where it begins.
    """
    best = np.zeros(probabilities.size)
    for length, group in _by_length(lengths):
        begin = first[group]
        ways = np.zeros((length + 1, begin.size))
        ways[0] = 1.0
        for start, stop, which, piece in _edges_of(begin, length, pieces_at):
            if stop - start < length:
                way = ways[start, which] * probabilities[piece]
                ways[stop, which] = np.maximum(ways[stop, which], way)
        best[group] = ways[length]
    return best


def _by_length(lengths: Ints) -> Iterator[tuple[int, Ints]]:
    """Each length with the indices of what has it."""
    for length in np.unique(lengths).tolist():
        yield length, np.flatnonzero(lengths == length)


def _edges_of(
    begin: Ints, length: int, pieces_at: Sequence[npt.NDArray[np.int32]]
) -> Iterator[tuple[int, int, Ints, npt.NDArray[np.int32]]]:
    """The pieces in the words of one length: (start, stop, in which words, the piece in each), in the order of stops.

    Args:
        begin: the places where the words begin.
    """
    for stop in range(1, length + 1):
        for start in range(max(0, stop - len(pieces_at)), stop):
            pieces = pieces_at[stop - start - 1][begin + start]
            which = np.flatnonzero(pieces >= 0)
            if which.size:
                yield start, stop, which, pieces[which]

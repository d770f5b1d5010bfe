"""The substrings of a corpus's words, and how often each occurs: what a Unigram vocabulary is chosen from.

In: words and their counts. Out: a table with the substring of each length at each place of the words, by number. The
substrings of length n + 1 are made from those of length n: a substring that occurs too seldom is part of none that
occurs more often, so that few are ever counted.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

NONE = -1  # in the table: no substring


class Words(NamedTuple):
    """Words, one behind the other. ``codes``: the code point at each place, ``[P]``. ``room``: places to the end of its
    word, itself counted, ``[P]``. ``weights``: its word's count, ``[P]``.
    """

    codes: Ints
    room: Ints
    weights: Floats

    @property
    def starts(self) -> Ints:
        """The places where words begin, ``[W]``."""
        return np.flatnonzero(np.append(NONE, self.room[:-1]) <= 1)


class Substrings(NamedTuple):
    """``at``: which substring of length n begins at each place, ``at[n - 1]: [P] int32``, or NONE. Of each substring,
    numbered by length, then in the order of code points: ``lengths``, ``first`` (a place where it begins) and
    ``counts``, ``[S]``.
    """

    at: list[npt.NDArray[np.int32]]
    lengths: Ints
    first: Ints
    counts: Floats


def lay_out(word_counts: Mapping[str, int], longest: int) -> Words:
    """Words in the order of their code points, cut where they are longer than ``longest``."""
    parts: dict[str, int] = {}
    for word in sorted(word_counts):
        for start in range(0, len(word), longest):
            part = word[start : start + longest]
            parts[part] = parts.get(part, 0) + word_counts[word]
    ordered = sorted(parts)
    lengths = np.array([len(part) for part in ordered], np.int64)
    ends = np.repeat(np.cumsum(lengths), lengths)
    return Words(
        codes=np.frombuffer("".join(ordered).encode("utf-32-le"), "<u4").astype(np.int64),
        room=ends - np.arange(lengths.sum()),
        weights=np.repeat(np.array([parts[part] for part in ordered], np.float64), lengths),
    )


def find_substrings(
    words: Words,
    longest: int,
    min_count: float = 2.0,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> Substrings:
    """All single characters, and all longer substrings up to ``longest`` characters that occur ``min_count`` times.

    Args:
        progress: told how many lengths, of how many, are done.
    """
    places = words.codes.size
    alphabet, characters = np.unique(words.codes, return_inverse=True)
    at: list[npt.NDArray[np.int32]] = []
    lengths: list[Ints] = []
    firsts: list[Ints] = []
    counts: list[Floats] = []
    numbers: Ints = characters.astype(np.int64)  # of the substring of the length before, at each place
    size = 0
    for length in range(1, longest + 1):
        here = np.arange(places) if length == 1 else _where_longer_ones_may_be(words.room, numbers, length)
        key = numbers[here] * alphabet.size + characters[here + length - 1] if length > 1 else numbers
        _, first, inverse = np.unique(key, return_index=True, return_inverse=True)
        count = np.bincount(inverse, words.weights[here], first.size).astype(np.float64)
        kept = np.flatnonzero(count >= min_count) if length > 1 else np.arange(first.size)
        if not kept.size:
            break
        renumbered = np.full(first.size, NONE, np.int64)
        renumbered[kept] = np.arange(kept.size)
        numbers = np.full(places, NONE, np.int64)
        numbers[here] = renumbered[inverse]
        at.append(np.where(numbers >= 0, numbers + size, NONE).astype(np.int32))
        lengths.append(np.full(kept.size, length, np.int64))
        firsts.append(here[first[kept]])
        counts.append(count[kept])
        size += kept.size
        progress(length, longest)
    return Substrings(at, np.concatenate(lengths), np.concatenate(firsts), np.concatenate(counts))


def _where_longer_ones_may_be(room: Ints, numbers: Ints, length: int) -> Ints:
    """The places where both substrings of the length before are there: the one that begins here and the next one."""
    return np.flatnonzero((room[:-1] >= length) & (numbers[:-1] >= 0) & (numbers[1:] >= 0))


def texts_of(words: Words, lengths: Ints, first: Ints) -> list[str]:
    """The texts of substrings."""
    codes: Sequence[int] = words.codes.tolist()
    pairs = zip(lengths.tolist(), first.tolist(), strict=True)
    return ["".join(map(chr, codes[place : place + length])) for length, place in pairs]

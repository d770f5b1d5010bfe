"""Unigram: text to the ids of its most likely segmentation, each piece by itself having a probability.

In: text. Out: ids. Of all ways to cut the text into pieces, the one with the highest sum of scores (logarithms of
probabilities) is found by one pass from left to right, which keeps the best way to each position (Viterbi's
algorithm). A character that no piece stands for is unknown, at a score below all others.
Source: Kudo, "Subword Regularization" (2018); SentencePiece's ``unigram_model.cc`` for the penalty and for ties, which
go to the way whose last piece is longest.
"""

from array import array
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeAlias

from cutaway.errors import ModelFileError
from cutaway.tokenizer.metadata import CONVERT_AGAIN
from cutaway.tokenizer.sentencepiece_text import SentencePieces, read_normalizer, read_scores
from cutaway.tokenizer.vocabulary import NORMAL, Vocabulary
from cutaway.tokenizer.word_model import WordModel

UNKNOWN_PENALTY = 10.0  # below the lowest score
LONGEST_PIECE = 256
"""Characters of a piece: at each place of a text, the longest has to be tried. Trained ones have some sixteen."""

Trie: TypeAlias = list[Any]
"""``[children, piece]``: character → the trie behind it; (score, id) of the piece that ends here, or None."""


def to_float32(number: float) -> float:
    """The nearest float32: the arithmetic of SentencePiece."""
    return array("f", (number,))[0]


def to_float64(number: float) -> float:
    """The number itself: the arithmetic of the ``tokenizers`` package."""
    return number


def make_trie(pieces: Iterable[tuple[str, float, int]]) -> Trie:
    """The trie of (text, score, id)."""
    trie: Trie = [{}, None]
    for text, score, token_id in pieces:
        node = trie
        for character in text:
            node = node[0].setdefault(character, [{}, None])
        node[1] = (score, token_id)
    return trie


class Unigram:
    """Text to ids.

    Args:
        trie: the pieces.
        unknown_score: of a character that no piece stands for.
        rounded: rounds sums of scores; which of two ways is better may depend on it.
        fallback: the ids of neighbours that are unknown.
    """

    def __init__(
        self,
        trie: Trie,
        unknown_score: float,
        *,
        rounded: Callable[[float], float],
        fallback: Callable[[str], list[int]],
    ) -> None:
        self._trie = trie
        self._unknown_score = unknown_score
        self._rounded = rounded
        self._fallback = fallback

    def __call__(self, text: str) -> list[int]:
        """The ids of the text's most likely segmentation."""
        ids: list[int] = []
        unknown = ""
        for start, stop, token_id in self.segments(text):
            if token_id is None:
                unknown += text[start:stop]
                continue
            if unknown:
                ids += self._fallback(unknown)
                unknown = ""
            ids.append(token_id)
        return ids + self._fallback(unknown) if unknown else ids

    def segments(self, text: str) -> list[tuple[int, int, int | None]]:
        """The most likely segmentation: (start, stop, id), the id None for an unknown character."""
        n = len(text)
        rounded = self._rounded
        best = [float("-inf")] * (n + 1)  # the score of the best way to each position
        best[0] = 0.0
        last: list[tuple[int, int | None]] = [(0, None)] * (n + 1)  # where its last piece begins, and the id
        for start in range(n):
            here = best[start]
            children, piece = self._trie
            stop = start
            known = False
            while stop < n:
                node = children.get(text[stop])
                if node is None:
                    break
                children, piece = node
                stop += 1
                if piece is not None:
                    known = known or stop == start + 1
                    score = here + piece[0]
                    # What isn't above before it is rounded isn't afterwards.
                    if score > best[stop] and (score := rounded(score)) > best[stop]:
                        best[stop] = score
                        last[stop] = (start, piece[1])
            if not known:
                score = rounded(here + self._unknown_score)
                if score > best[start + 1]:
                    best[start + 1] = score
                    last[start + 1] = (start, None)
        segments: list[tuple[int, int, int | None]] = []
        stop = n
        while stop:
            start, token_id = last[stop]
            segments.append((start, stop, token_id))
            stop = start
        return segments[::-1]


def load_unigram(metadata: Mapping[str, Any], vocabulary: Vocabulary) -> WordModel:
    """Build the text model of T5 and its kin from a model file's metadata.

    Raises:
        ModelFileError: scores are missing or not one finite number for each token, a piece is too long, or a byte's
            is malformed.
    """
    scores = read_scores(metadata, vocabulary).tolist()
    normalizer = read_normalizer(metadata)
    pieces = SentencePieces(vocabulary)
    lowest = min((scores[token_id] for token_id in vocabulary.of_type(NORMAL)), default=0.0)
    longest = max(map(len, pieces.text_ids), default=0)
    if longest > LONGEST_PIECE:
        raise ModelFileError(
            f"tokenizer.ggml.tokens has a piece of {longest} characters; it must have at most {LONGEST_PIECE}. "
            f"{CONVERT_AGAIN}"
        )
    model = Unigram(
        make_trie((text, scores[token_id], token_id) for text, token_id in pieces.text_ids.items()),
        to_float32(lowest - UNKNOWN_PENALTY),
        rounded=to_float32,
        fallback=pieces.fallback,
    )
    return WordModel([], model, pieces.token_bytes, normalize=normalizer, adds_space=normalizer.adds_space)

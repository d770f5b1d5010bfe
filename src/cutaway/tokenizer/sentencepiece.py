"""SentencePiece's byte-pair encoding: text to ids by the scores of pieces.

In: text in its normal form. Its characters are merged, always the pair whose product has the highest score; a
character that is no piece becomes the pieces of its UTF-8 bytes. Out: ids. There are no merges in the file: two
pieces merge if together they are a piece.
Source: Kudo and Richardson, "SentencePiece" (2018); its file ``bpe_model.cc`` for the order of merges.
"""

import re
from collections.abc import Mapping
from typing import Any

import numpy as np

from cutaway.tokenizer.merge import merge_by_rank
from cutaway.tokenizer.sentencepiece_text import SPACE, SentencePieces, read_normalizer, read_scores
from cutaway.tokenizer.vocabulary import Vocabulary
from cutaway.tokenizer.word_model import WordModel
from cutaway.tokenizer.words import WordStep


class SentencePieceBPE:
    """A word to ids.

    Args:
        vocabulary: its pieces of type NORMAL are what text is made of.
        pieces: the same, sorted by what they are for.
        ranks: of each id; a lower rank merges first, and equal ranks from left to right.
    """

    def __init__(self, vocabulary: Vocabulary, pieces: SentencePieces, ranks: list[int]) -> None:
        self._pieces = vocabulary.pieces
        self._ranks = ranks
        self._text_ids = pieces.text_ids
        self._fallback = pieces.fallback

    def __call__(self, word: str) -> list[int]:
        """The ids of a word.

        Raises:
            InvalidRequestError: the word has a character that is no piece, and the vocabulary has neither its
                bytes nor a piece for the unknown.
        """
        size = len(self._pieces)
        ids: list[int] = []
        unknown = ""
        for symbol in merge_by_rank(self.symbols(word), self.merge):
            if symbol >= size:
                unknown += chr(symbol - size)
                continue
            if unknown:
                ids += self._fallback(unknown)
                unknown = ""
            ids.append(symbol)
        return ids + self._fallback(unknown) if unknown else ids

    def symbols(self, word: str) -> list[int]:
        """The word's characters: their ids, or vocabulary size + code point until all merges are done, since a
        character that is no piece may be part of one.
        """
        size = len(self._pieces)
        return [self._text_ids.get(character, size + ord(character)) for character in word]

    def merge(self, left: int, right: int) -> tuple[int, int] | None:
        """The merge of two symbols: the piece that they are together."""
        product = self._text_ids.get(self._symbol_text(left) + self._symbol_text(right))
        return None if product is None else (self._ranks[product], product)

    def _symbol_text(self, symbol: int) -> str:
        size = len(self._pieces)
        return self._pieces[symbol] if symbol < size else chr(symbol - size)


def load_sentencepiece_bpe(metadata: Mapping[str, Any], vocabulary: Vocabulary) -> WordModel:
    """Build the text model of Llama 2, Mistral, Gemma and their kin from a model file's metadata.

    Raises:
        ModelFileError: scores are missing or not one finite number for each token, or a byte's piece is malformed.
    """
    order = -read_scores(metadata, vocabulary)
    ascending = np.sort(order)
    # As np.unique, which would load all of NumPy's masked arrays.
    ranks = np.searchsorted(ascending[np.append(True, ascending[1:] != ascending[:-1])], order)
    normalizer = read_normalizer(metadata)
    pieces = SentencePieces(vocabulary)
    return WordModel(
        [word_edges(pieces.text_ids)],
        SentencePieceBPE(vocabulary, pieces, ranks.tolist()),
        pieces.token_bytes,
        normalize=normalizer,
        adds_space=normalizer.adds_space,
        begins_with_bos=True,
        keeps_bytes=normalizer.keeps_characters and pieces.has_all_bytes,
    )


def word_edges(pieces: Mapping[str, int]) -> WordStep:
    """Cuts a text where that doesn't change its ids: before a space, unless the character before it stands before a
    space in some piece, so that a merge might cross. Between two cuts lies a word, whose ids can be remembered.
    """
    inside = {SPACE}
    for piece in pieces:
        space = piece.find(SPACE, 1)  # most pieces have none behind their first character
        while space > 0:
            inside.add(piece[space - 1])
            space = piece.find(SPACE, space + 1)
    edges = re.compile(f"(?<=[^{re.escape(''.join(sorted(inside)))}])(?={SPACE})")

    def step(texts: list[str], at_start: bool) -> list[str]:
        return [word for text in texts for word in edges.split(text)]

    return step

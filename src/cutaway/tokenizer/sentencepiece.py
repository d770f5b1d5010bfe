"""SentencePiece's byte-pair encoding: text to ids by the scores of pieces, and ids back to bytes.

In: text without special tokens. Spaces become ▁ and one is put before the text; its characters are merged,
always the pair whose product has the highest score; a character that is no piece becomes the pieces of its
UTF-8 bytes. Out: ids. There are no merges in the file: two pieces merge if together they are a piece.
Source: Kudo and Richardson, "SentencePiece" (2018); its file ``bpe_model.cc`` for the order of merges.
"""

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import numpy as np

from cutaway.errors import InvalidRequestError, ModelFileError
from cutaway.tokenizer.merge import merge_by_rank
from cutaway.tokenizer.metadata import CONVERT_AGAIN, read_floats, read_scalar
from cutaway.tokenizer.vocabulary import BYTE, NORMAL, Vocabulary

SPACE = "▁"
CACHED_WORDS = 65_536
CACHED_WORD_LENGTH = 64  # in characters: longer words are rare, and an unbounded word would make an unbounded cache


class SentencePieceBPE:
    """The text model of Llama 2, Mistral, Gemma and their kin.

    Args:
        vocabulary: its pieces of type NORMAL are what text is made of.
        ranks: of each id; a lower rank merges first, and equal ranks from left to right.
        adds_space: whether a space is put before each text.
    """

    begins_with_bos = True

    def __init__(self, vocabulary: Vocabulary, ranks: list[int], *, adds_space: bool) -> None:
        self.adds_space = adds_space
        self._pieces = vocabulary.pieces
        self._ranks = ranks
        self._text_ids = {self._pieces[token_id]: token_id for token_id in vocabulary.of_type(NORMAL)}
        self._byte_ids = _read_byte_ids(vocabulary)
        self._byte_of = {token_id: byte for byte, token_id in self._byte_ids.items()}
        self._unknown_id = vocabulary.unknown_id
        self._edges = _word_edges(self._text_ids)
        self._encode_short_word = lru_cache(maxsize=CACHED_WORDS)(self._encode_word)

    def encode(self, text: str) -> list[int]:
        """Text without special tokens to ids.

        Raises:
            InvalidRequestError: the text has a character that is no piece, and the vocabulary has neither its
                bytes nor a piece for the unknown.
        """
        text = (" " + text if self.adds_space else text).replace(" ", SPACE)
        ids: list[int] = []
        for word in self._edges.split(text):
            ids += self._encode_short_word(word) if len(word) <= CACHED_WORD_LENGTH else self._encode_word(word)
        return ids

    def token_bytes(self, token_id: int) -> bytes:
        """The bytes that a token of text stands for."""
        byte = self._byte_of.get(token_id)
        return self._pieces[token_id].replace(SPACE, " ").encode("utf-8") if byte is None else bytes([byte])

    def _encode_word(self, word: str) -> list[int]:
        size = len(self._pieces)
        # A character that is no piece is size + its code point until all merges are done: it may be part of a piece.
        symbols = [self._text_ids.get(character, size + ord(character)) for character in word]
        ids: list[int] = []
        for symbol in merge_by_rank(symbols, self._merge):
            if symbol < size:
                ids.append(symbol)
            else:
                ids += self._fallback(chr(symbol - size))
        return ids

    def _merge(self, left: int, right: int) -> tuple[int, int] | None:
        """The merge of two symbols: the piece that they are together."""
        product = self._text_ids.get(self._symbol_text(left) + self._symbol_text(right))
        return None if product is None else (self._ranks[product], product)

    def _symbol_text(self, symbol: int) -> str:
        size = len(self._pieces)
        return self._pieces[symbol] if symbol < size else chr(symbol - size)

    def _fallback(self, character: str) -> list[int]:
        """The ids of a character that is no piece: its bytes, else the unknown piece."""
        data = character.encode("utf-8")
        if all(byte in self._byte_ids for byte in data):
            return [self._byte_ids[byte] for byte in data]
        if self._unknown_id is not None:
            return [self._unknown_id]
        raise InvalidRequestError(
            f"text has {character!r}, for which this vocabulary has no token; remove the character", field="text"
        )


def load_sentencepiece_bpe(metadata: Mapping[str, Any], vocabulary: Vocabulary) -> SentencePieceBPE:
    """Build the text model from a model file's metadata.

    Raises:
        ModelFileError: scores are missing or not one finite number for each token, or a byte's piece is malformed.
    """
    scores = read_floats(metadata, "tokenizer.ggml.scores")
    if scores.shape != (len(vocabulary.pieces),):
        raise ModelFileError(
            f"tokenizer.ggml.scores has {scores.size} entries for {len(vocabulary.pieces)} tokens; there must be one "
            f"for each. {CONVERT_AGAIN}"
        )
    if not np.isfinite(scores).all():
        raise ModelFileError(
            f"tokenizer.ggml.scores[{int(np.flatnonzero(~np.isfinite(scores))[0])}] is no finite number; scores order "
            f"the merges. {CONVERT_AGAIN}"
        )
    ranks = np.unique(-scores, return_inverse=True)[1]
    add_space = read_scalar(metadata, "tokenizer.ggml.add_space_prefix", bool)
    return SentencePieceBPE(vocabulary, ranks.tolist(), adds_space=True if add_space is None else add_space)


def _read_byte_ids(vocabulary: Vocabulary) -> dict[int, int]:
    """Byte → its id, by pieces of type BYTE, spelled ``<0xNN>``."""
    ids: dict[int, int] = {}
    for token_id in vocabulary.of_type(BYTE):
        piece = vocabulary.pieces[token_id]
        if not re.fullmatch("<0x[0-9A-Fa-f]{2}>", piece):
            raise ModelFileError(
                f"token {token_id} of tokenizer.ggml.tokens is {piece!r} and of the type of bytes; these are spelled "
                f"<0x00> to <0xFF>. {CONVERT_AGAIN}"
            )
        byte = int(piece[3:5], 16)
        if byte in ids:
            raise ModelFileError(
                f"tokens {ids[byte]} and {token_id} of tokenizer.ggml.tokens, {vocabulary.pieces[ids[byte]]!r} and "
                f"{piece!r}, are both byte 0x{byte:02X}; a byte has one token. {CONVERT_AGAIN}"
            )
        ids[byte] = token_id
    return ids


def _word_edges(pieces: Mapping[str, int]) -> "re.Pattern[str]":
    """Where a text can be cut without a change to its ids: before a space, unless the character before it stands
    before a space in some piece, so that a merge might cross. Between two cuts lies a word, which can be cached.
    """
    inside = {match for piece in pieces for match in re.findall(f"(.)(?={SPACE})", piece, re.DOTALL)} | {SPACE}
    return re.compile(f"(?<=[^{re.escape(''.join(sorted(inside)))}])(?={SPACE})")

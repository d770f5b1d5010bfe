"""What all SentencePiece vocabularies share: the normal form of text, the pieces of bytes, and the unknown piece.

In: text, or an id. Out: text in which ▁ stands for spaces; a token's bytes.
Source: Kudo and Richardson, "SentencePiece" (2018); its files ``normalizer.cc`` and ``sentencepiece_processor.cc``.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from cutaway.errors import InvalidRequestError, ModelFileError
from cutaway.formats.cursor import shown
from cutaway.tokenizer.charsmap import CharacterMap
from cutaway.tokenizer.metadata import CONVERT_AGAIN, read_floats, read_integers, read_scalar
from cutaway.tokenizer.vocabulary import BYTE, NORMAL, Vocabulary

SPACE = "▁"


@dataclass(frozen=True)
class Normalizer:
    """Text to its normal form.

    ``replace``: the character map. ``adds_space``: a space is put before each text. ``joins_spaces``: several spaces
    become one, and those at the ends none.
    """

    replace: Callable[[str], str] | None
    adds_space: bool
    joins_spaces: bool

    @property
    def keeps_characters(self) -> bool:
        """Whether none is replaced or left out."""
        return self.replace is None and not self.joins_spaces

    def __call__(self, text: str) -> str:
        """The text as its pieces are looked up: spaces are "▁"."""
        if self.replace is not None:
            text = self.replace(text)
        if self.joins_spaces:
            text = re.sub(" +", " ", text).strip(" ")
        if self.adds_space and text:
            text = " " + text
        return text.replace(" ", SPACE)


def read_normalizer(metadata: Mapping[str, Any]) -> Normalizer:
    """The normal form that a model file asks for.

    Raises:
        ModelFileError: a value is of the wrong kind, or the character map is malformed.
    """
    add_space = read_scalar(metadata, "tokenizer.ggml.add_space_prefix", bool)
    join_spaces = read_scalar(metadata, "tokenizer.ggml.remove_extra_whitespaces", bool)
    charsmap = read_integers(metadata, "tokenizer.ggml.precompiled_charsmap")
    replace = None
    if charsmap is not None and charsmap.size:
        if charsmap.min() < -128 or charsmap.max() > 255:
            raise ModelFileError(f"tokenizer.ggml.precompiled_charsmap has a value that is no byte. {CONVERT_AGAIN}")
        replace = CharacterMap((charsmap & 255).astype(np.uint8).tobytes()).longest
    return Normalizer(replace, add_space is not False, bool(join_spaces))


def read_scores(metadata: Mapping[str, Any], vocabulary: Vocabulary) -> npt.NDArray[np.float64]:
    """The pieces' scores, ``[V]``.

    Raises:
        ModelFileError: they are missing or not one finite number for each token.
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
            f"the pieces. {CONVERT_AGAIN}"
        )
    return scores


class SentencePieces:
    """The pieces that text is made of: those of type NORMAL in ``text_ids``, those of single bytes, the unknown one.

    Raises:
        ModelFileError: a byte's piece is malformed, or a byte has two.
    """

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._pieces = vocabulary.pieces
        self._byte_ids = _read_byte_ids(vocabulary)
        self._byte_of = {token_id: byte for byte, token_id in self._byte_ids.items()}
        self._unknown_id = vocabulary.unknown_id
        self.text_ids = {self._pieces[token_id]: token_id for token_id in vocabulary.of_type(NORMAL)}

    @property
    def has_all_bytes(self) -> bool:
        """Whether any character can be told by its bytes, so that none is unknown."""
        return len(self._byte_ids) == 256

    def token_bytes(self, token_id: int) -> bytes:
        """The bytes that a token of text stands for."""
        byte = self._byte_of.get(token_id)
        return self._pieces[token_id].replace(SPACE, " ").encode("utf-8") if byte is None else bytes([byte])

    def fallback(self, characters: str) -> list[int]:
        """The ids of neighbours that are no pieces: their bytes, else one unknown piece for all of them.

        Raises:
            InvalidRequestError: the vocabulary has neither.
        """
        data = characters.encode("utf-8")
        if all(byte in self._byte_ids for byte in data):
            return [self._byte_ids[byte] for byte in data]
        if self._unknown_id is not None:
            return [self._unknown_id]
        raise InvalidRequestError(
            f"text has {characters[0]!r}, for which this vocabulary has no token; remove the character", field="text"
        )


def _read_byte_ids(vocabulary: Vocabulary) -> dict[int, int]:
    """Byte → its id, by pieces of type BYTE, spelled ``<0xNN>``."""
    ids: dict[int, int] = {}
    for token_id in vocabulary.of_type(BYTE):
        piece = vocabulary.pieces[token_id]
        if not re.fullmatch("<0x[0-9A-Fa-f]{2}>", piece):
            raise ModelFileError(
                f"token {token_id} of tokenizer.ggml.tokens is {shown(piece)} and of the type of bytes; these are "
                f"spelled <0x00> to <0xFF>. {CONVERT_AGAIN}"
            )
        byte = int(piece[3:5], 16)
        if byte in ids:
            raise ModelFileError(
                f"tokens {ids[byte]} and {token_id} of tokenizer.ggml.tokens, {vocabulary.pieces[ids[byte]]!r} and "
                f"{piece!r}, are both byte 0x{byte:02X}; a byte has one token. {CONVERT_AGAIN}"
            )
        ids[byte] = token_id
    return ids

"""The ``model`` of a ``tokenizer.json``: words to ids.

In: the component and the vocabulary. Out: a function from words to ids.
"""

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from cutaway.errors import InvalidRequestError, ModelFileError
from cutaway.formats.cursor import shown
from cutaway.tokenizer.bpe import BytePairEncoding, read_merges, refuse_missing_bytes
from cutaway.tokenizer.huggingface.component import Component, is_legal
from cutaway.tokenizer.huggingface.decoders import BYTE_PIECE
from cutaway.tokenizer.unigram import LONGEST_PIECE, UNKNOWN_PENALTY, Unigram, make_trie, to_float64
from cutaway.tokenizer.vocabulary import NORMAL, USER_DEFINED, Vocabulary

KNOWN = "BPE, Unigram"
LARGEST_SCORE = 1e30  # logarithms of probabilities, of which sums must be finite, too


class Pieces(NamedTuple):
    """What a model says of the vocabulary: pieces by id, and which one stands for the unknown."""

    id_of: dict[str, int]
    unknown: str | None


def read_pieces(model: Component) -> Pieces:
    """The model's own pieces, without the added tokens.

    Raises:
        ModelFileError: it is of a type that is not supported, or malformed.
    """
    kind = model.text("type", "BPE" if "merges" in model.fields else "")
    if kind == "BPE":
        vocabulary = model.mapping("vocab")
        if not all(type(token_id) is int and token_id >= 0 for token_id in vocabulary.values()):
            model.refuse("has a vocab in which ids are not whole numbers")
        unknown = model.fields.get("unk_token")
        if unknown is not None and (not isinstance(unknown, str) or unknown not in vocabulary):
            model.refuse(f"has an unk_token {unknown!r} that is not in its vocab")
        _check_legal(model, vocabulary)
        return Pieces(vocabulary, unknown)
    if kind != "Unigram":
        model.refuse_type(KNOWN)
    pieces = [piece for piece, _ in _scored_pieces(model)]
    _check_legal(model, pieces)
    id_of = {piece: token_id for token_id, piece in enumerate(pieces)}
    if len(id_of) != len(pieces):
        model.refuse("has a piece twice")
    unknown_id = model.fields.get("unk_id")
    if unknown_id is not None and (type(unknown_id) is not int or not 0 <= unknown_id < len(pieces)):
        model.refuse(f"has the unk_id {unknown_id!r}, outside its vocab")
    return Pieces(id_of, None if unknown_id is None else pieces[unknown_id])


def _check_legal(model: Component, pieces: Iterable[str]) -> None:
    if not is_legal("".join(pieces)):
        bad = next(piece for piece in pieces if not is_legal(piece))
        model.refuse(f"has the piece {shown(bad)}, with half of a character (a lone surrogate)")


def read_word_encoder(model: Component, vocabulary: Vocabulary, byte_level: bool) -> Callable[[str], list[int]]:
    """The function from words to ids.

    Args:
        byte_level: words are in the byte alphabet.

    Raises:
        ModelFileError: an option is not supported, or a merge or score is malformed.
    """
    unknown = _Unknown(vocabulary, model.flag("byte_fallback", False), byte_level)
    return _unigram(model, vocabulary, unknown) if "merges" not in model.fields else _bpe(model, vocabulary, unknown)


class _Unknown:
    """The ids of neighbours that are no pieces: their bytes where they have tokens, else unknown pieces."""

    def __init__(self, vocabulary: Vocabulary, byte_fallback: bool, byte_level: bool) -> None:
        self._byte_level = byte_level
        self._unknown_id = vocabulary.unknown_id
        pieces = [vocabulary.id_of.get(f"<0x{byte:02X}>") for byte in range(256)] if byte_fallback else []
        self._byte_ids = {byte: token_id for byte, token_id in enumerate(pieces) if token_id is not None}

    def together(self, characters: str) -> list[int]:
        """One unknown piece for all."""
        data = characters.encode("utf-8")
        if all(byte in self._byte_ids for byte in data):
            return [self._byte_ids[byte] for byte in data]
        if self._unknown_id is not None:
            return [self._unknown_id]
        if self._byte_level:
            return refuse_missing_bytes(characters)
        raise InvalidRequestError(
            f"text has {characters[0]!r}, for which this vocabulary has no token; remove the character", field="text"
        )

    def one_by_one(self, characters: str) -> list[int]:
        """One unknown piece for each character."""
        return [token_id for character in characters for token_id in self.together(character)]

    def by_runs(self, characters: str) -> list[int]:
        """Bytes for the characters that have them, one unknown piece for each run of others."""
        ids: list[int] = []
        for token_id in self.one_by_one(characters):
            if token_id != self._unknown_id or ids[-1:] != [token_id]:
                ids.append(token_id)
        return ids


def _bpe(model: Component, vocabulary: Vocabulary, unknown: _Unknown) -> BytePairEncoding:
    """A BPE model: words to ids, by its merges."""
    model.refuse_options(dropout=0.0, continuing_subword_prefix="", end_of_word_suffix="")
    merges = read_merges([_pair(model, merge) for merge in model.items("merges")], vocabulary, "model.merges")
    text = {vocabulary.pieces[i]: i for i in range(len(vocabulary.pieces)) if i not in vocabulary.control_ids}
    return BytePairEncoding(
        text,
        merges,
        whole_words=text if model.flag("ignore_merges", False) else {},
        fallback=unknown.by_runs if model.flag("fuse_unk", False) else unknown.one_by_one,
    )


def _pair(model: Component, merge: Any) -> tuple[str, str]:
    pair = merge.split(" ") if isinstance(merge, str) else merge
    if not (isinstance(pair, list) and len(pair) == 2 and all(isinstance(each, str) for each in pair)):
        model.refuse(f"has the merge {merge!r:.80}, which is not two pieces")
    return pair[0], pair[1]


def _unigram(model: Component, vocabulary: Vocabulary, unknown: _Unknown) -> Callable[[str], list[int]]:
    """A Unigram model: words to ids, the likeliest way to cut each."""
    scored = _scored_pieces(model)
    lowest = min((score for _, score in scored), default=0.0)
    byte_fallback = model.flag("byte_fallback", False)

    def is_text(piece: str, token_id: int) -> bool:
        """Control tokens and spelled-out bytes are never made of text."""
        spells_a_byte = byte_fallback and BYTE_PIECE.fullmatch(piece)
        return vocabulary.types[token_id] in (NORMAL, USER_DEFINED) and not spells_a_byte

    pieces = ((piece, score, vocabulary.id_of[piece]) for piece, score in scored if piece)
    return Unigram(
        make_trie(each for each in pieces if is_text(each[0], each[2])),
        lowest - UNKNOWN_PENALTY,
        rounded=to_float64,
        fallback=unknown.together,
    )


def _scored_pieces(model: Component) -> list[tuple[str, float]]:
    scored: list[tuple[str, float]] = []
    for i, each in enumerate(model.items("vocab")):
        if not (isinstance(each, list) and len(each) == 2 and isinstance(each[0], str)):
            model.refuse(f"has vocab[{i}] {each!r:.80}, which is not a piece and its score")
        if type(each[1]) not in (int, float) or not -LARGEST_SCORE <= each[1] <= LARGEST_SCORE:
            raise ModelFileError(
                f"{model.place}.vocab[{i}] has the score {shown(str(each[1]))}; it must be a finite number of at most "
                f"{LARGEST_SCORE:g}. Fetch the model again."
            )
        if len(each[0]) > LONGEST_PIECE:
            model.refuse(f"has a piece of {len(each[0])} characters; it must have at most {LONGEST_PIECE}")
        scored.append((each[0], float(each[1])))
    return scored

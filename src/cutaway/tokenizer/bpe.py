"""Byte-pair encoding: a word to ids by merges, always the pair that training merged first.

In: a word, in which each character is a piece of the vocabulary (in a byte-level vocabulary, a byte as a character of
the byte alphabet). Out: ids.
Source: Sennrich et al., "Neural Machine Translation of Rare Words with Subword Units" (2016); GPT-2 for the
bytes.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from cutaway.errors import InvalidRequestError, ModelFileError
from cutaway.formats.cursor import shown
from cutaway.tokenizer.byte_alphabet import CHARACTER_TO_BYTE, piece_bytes
from cutaway.tokenizer.merge import MergeRule, merge_by_rank
from cutaway.tokenizer.metadata import CONVERT_AGAIN, read_scalar, read_strings
from cutaway.tokenizer.pretokenize import NO_NAME, pre_tokenizer
from cutaway.tokenizer.vocabulary import CONTROL, NORMAL, Vocabulary
from cutaway.tokenizer.word_model import WordModel


class MergeTable(NamedTuple):
    """What training learned. The key of a pair is ``left * vocabulary_size + right``; a lower rank merges
    first.
    """

    vocabulary_size: int
    rank_of: Mapping[int, int]  # key of a pair → rank
    product: Sequence[int]  # rank → id of the merged piece

    def rule(self) -> MergeRule:
        """The rule for ``merge_by_rank``."""
        size, rank_of, product = self
        find = rank_of.get

        def merge(left: int, right: int) -> tuple[int, int] | None:
            rank = find(left * size + right)
            return None if rank is None else (rank, product[rank])

        return merge


def read_merges(pairs: Sequence[tuple[str, str]], vocabulary: Vocabulary, origin: str) -> MergeTable:
    """The merges of a model file, in the order of their ranks.

    A merge whose product is a control token is left out: text never becomes one. Of two equal merges the last one
    counts, as in the ``tokenizers`` package.

    Args:
        origin: what the file calls them, for messages.

    Raises:
        ModelFileError: they speak of pieces that the vocabulary lacks.
    """
    id_of, types = vocabulary.id_of, vocabulary.types
    size = len(vocabulary.pieces)
    rank_of: dict[int, int] = {}
    product: list[int] = []
    for rank, (left, right) in enumerate(pairs):
        try:
            key = id_of[left] * size + id_of[right]
            merged = id_of[left + right]
        except KeyError as missing:
            raise ModelFileError(
                f"merge {rank} of {origin}, {shown(left + ' ' + right)}, needs {shown(missing.args[0])}, which is not "
                "in the vocabulary; "
                f"both pieces and their product must be. {CONVERT_AGAIN}"
            ) from None
        product.append(merged)
        if types[merged] != CONTROL:
            rank_of[key] = rank
    return MergeTable(size, rank_of, product)


class BytePairEncoding:
    """A word to ids by merges.

    Args:
        id_of: a character → its id, where the vocabulary has it.
        merges: what training learned.
        whole_words: words that are one token, whatever merges would make of them.
        fallback: the ids of characters without id, one after the other; they may be merged with neighbours.
    """

    def __init__(
        self,
        id_of: Mapping[str, int],
        merges: MergeTable,
        *,
        whole_words: Mapping[str, int],
        fallback: Callable[[str], list[int]],
    ) -> None:
        self._id_of = id_of
        self._rule = merges.rule()
        self._whole_words = whole_words
        self._fallback = fallback

    def __call__(self, word: str) -> list[int]:
        """The ids of a word."""
        whole = self._whole_words.get(word)
        if whole is not None:
            return [whole]
        try:
            ids = [self._id_of[character] for character in word]
        except KeyError:
            ids = self._with_fallback(word)
        return merge_by_rank(ids, self._rule)

    def _with_fallback(self, word: str) -> list[int]:
        ids: list[int] = []
        start = 0
        for i, character in enumerate(word):
            token_id = self._id_of.get(character)
            if token_id is not None:
                if start < i:
                    ids += self._fallback(word[start:i])
                ids.append(token_id)
                start = i + 1
        return ids + self._fallback(word[start:]) if start < len(word) else ids


def refuse_missing_bytes(characters: str) -> list[int]:
    """The fallback of a byte-level vocabulary that lacks bytes which its training text never had.

    Raises:
        InvalidRequestError: always; it names the byte.
    """
    byte = CHARACTER_TO_BYTE.get(characters[0])
    what = f"the character {characters[0]!r}" if byte is None else f"the byte 0x{byte:02X}"
    raise InvalidRequestError(
        f"text has {what}, for which this vocabulary has no token; remove the character it belongs to", field="text"
    )


def load_byte_level_bpe(metadata: Mapping[str, Any], vocabulary: Vocabulary) -> WordModel:
    """Build the text model of GPT-2, SmolLM2, Llama 3, Qwen and their kin from a model file's metadata.

    Raises:
        ModelFileError: the merges or the pre-tokenizer are missing, malformed or unknown.
    """
    name = read_scalar(metadata, "tokenizer.ggml.pre", str)
    known = pre_tokenizer(name)
    pieces = vocabulary.pieces
    whole_words = {pieces[i]: i for i in vocabulary.of_type(NORMAL)} if known.ignores_merges else {}
    merges = read_merges(_read_pairs(metadata), vocabulary, "tokenizer.ggml.merges")
    return WordModel(
        known.steps(),
        BytePairEncoding(vocabulary.id_of, merges, whole_words=whole_words, fallback=refuse_missing_bytes),
        lambda token_id: piece_bytes(pieces[token_id]),
        begins_with_bos=known.begins_with_bos,
        notes=(NO_NAME,) if name is None else (),
    )


def _read_pairs(metadata: Mapping[str, Any]) -> list[tuple[str, str]]:
    merges = read_strings(metadata, "tokenizer.ggml.merges")
    pairs: list[tuple[str, str]] = []
    for rank, merge in enumerate(merges):
        left, space, right = merge.partition(" ")
        if not space or " " in right:
            raise ModelFileError(
                f"merge {rank} of tokenizer.ggml.merges is {shown(merge)}; a merge is two pieces with one space "
                f"between. {CONVERT_AGAIN}"
            )
        pairs.append((left, right))
    if len(set(pairs)) != len(pairs):
        raise ModelFileError(
            f"tokenizer.ggml.merges has {len(pairs)} entries, but only {len(set(pairs))} different ones; "
            f"a merge has one rank. {CONVERT_AGAIN}"
        )
    return pairs

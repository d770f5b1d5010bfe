"""Byte-level byte-pair encoding: text to ids, and ids back to bytes.

In: text without special tokens. The text is cut into words, a word becomes the ids of its UTF-8 bytes, and
neighbours are merged, always the pair that training merged first. Out: ids.
Source: Sennrich et al., "Neural Machine Translation of Rare Words with Subword Units" (2016); GPT-2 for the
bytes.
"""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import regex  # type: ignore[import-untyped]

from cutaway.errors import InvalidRequestError, ModelFileError
from cutaway.tokenizer.byte_alphabet import BYTE_TO_CHARACTER, piece_bytes
from cutaway.tokenizer.merge import DEAD, MergeRule, merge_by_rank
from cutaway.tokenizer.metadata import CONVERT_AGAIN, read_scalar, read_strings
from cutaway.tokenizer.pretokenize import pre_tokenizer
from cutaway.tokenizer.vocabulary import NORMAL, Vocabulary

CACHED_WORDS = 65_536
CACHED_WORD_LENGTH = 64  # in characters: longer words are rare, and an unbounded word would make an unbounded cache


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


def read_merges(metadata: Mapping[str, Any], id_of: Mapping[str, int]) -> MergeTable:
    """Read the merges of a model file, each "left right", in the order of their ranks.

    Raises:
        ModelFileError: they are missing, malformed, doubled, or speak of pieces that the vocabulary lacks.
    """
    merges = read_strings(metadata, "tokenizer.ggml.merges")
    size = len(id_of)
    rank_of: dict[int, int] = {}
    product: list[int] = []
    for rank, merge in enumerate(merges):
        try:
            left, right = merge.split(" ")
            rank_of[id_of[left] * size + id_of[right]] = rank
            product.append(id_of[left + right])
        except ValueError:
            raise ModelFileError(
                f"merge {rank} of tokenizer.ggml.merges is {merge!r}; a merge is two pieces with one space between. "
                f"{CONVERT_AGAIN}"
            ) from None
        except KeyError as missing:
            raise ModelFileError(
                f"merge {rank} of tokenizer.ggml.merges, {merge!r}, needs {missing}, which is not in the vocabulary; "
                f"both pieces and their product must be. {CONVERT_AGAIN}"
            ) from None
    if len(rank_of) != len(merges):
        raise ModelFileError(
            f"tokenizer.ggml.merges has {len(merges)} entries, but only {len(rank_of)} different ones; "
            f"a merge has one rank. {CONVERT_AGAIN}"
        )
    return MergeTable(size, rank_of, product)


class ByteLevelBPE:
    """The text model of GPT-2, SmolLM2, Llama 3, Qwen and their kin."""

    adds_space = False

    def __init__(self, vocabulary: Vocabulary, merges: MergeTable, pre: str | None) -> None:
        known = pre_tokenizer(pre)
        self.begins_with_bos = known.begins_with_bos
        self._pieces = vocabulary.pieces
        self._rule = merges.rule()
        self._words = regex.compile(known.pattern)
        # Words that are tokens as they are, in the byte alphabet, where the vocabulary says so.
        self._whole_words = (
            {vocabulary.pieces[i]: i for i in vocabulary.of_type(NORMAL)} if known.ignores_merges else {}
        )
        # The id of each byte; some vocabularies lack bytes that their training text never had.
        self._byte_ids = [vocabulary.id_of.get(character, DEAD) for character in BYTE_TO_CHARACTER]
        self._encode_short_word = lru_cache(maxsize=CACHED_WORDS)(self._encode_word)

    def encode(self, text: str) -> list[int]:
        """Text without special tokens to ids.

        Raises:
            InvalidRequestError: the text has a byte that the vocabulary has no token for.
        """
        ids: list[int] = []
        for word in self._words.findall(text):
            ids += self._encode_short_word(word) if len(word) <= CACHED_WORD_LENGTH else self._encode_word(word)
        return ids

    def token_bytes(self, token_id: int) -> bytes:
        """The bytes that a token of text stands for."""
        return piece_bytes(self._pieces[token_id])

    def _encode_word(self, word: str) -> list[int]:
        data = word.encode("utf-8")
        if self._whole_words:
            whole = self._whole_words.get("".join(BYTE_TO_CHARACTER[byte] for byte in data))
            if whole is not None:
                return [whole]
        ids = [self._byte_ids[byte] for byte in data]
        if DEAD in ids:
            byte = data[ids.index(DEAD)]
            raise InvalidRequestError(
                f"text has the byte 0x{byte:02X} (in {word[:40]!r}), for which this vocabulary has no token; "
                "remove the character",
                field="text",
            )
        return merge_by_rank(ids, self._rule)


def load_byte_level_bpe(metadata: Mapping[str, Any], vocabulary: Vocabulary) -> ByteLevelBPE:
    """Build the text model from a model file's metadata.

    Raises:
        ModelFileError: the merges or the pre-tokenizer are missing, malformed or unknown.
    """
    return ByteLevelBPE(
        vocabulary, read_merges(metadata, vocabulary.id_of), read_scalar(metadata, "tokenizer.ggml.pre", str)
    )

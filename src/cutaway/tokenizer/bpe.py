"""Byte-level byte-pair encoding: text to ids, and ids back to bytes.

In: text without special tokens. The text is cut into words, a word becomes the ids of its UTF-8 bytes, and
neighbours are merged, always the pair that training merged first. Out: ids.
Source: Sennrich et al., "Neural Machine Translation of Rare Words with Subword Units" (2016); GPT-2 for the
bytes.
"""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from heapq import heapify, heappop, heappush
from itertools import pairwise
from typing import Any, NamedTuple

from cutaway.errors import InvalidRequestError, ModelFileError
from cutaway.tokenizer.byte_alphabet import BYTE_TO_CHARACTER, piece_bytes
from cutaway.tokenizer.metadata import CONVERT_AGAIN, read_scalar, read_strings
from cutaway.tokenizer.pretokenize import word_pattern
from cutaway.tokenizer.vocabulary import Vocabulary

CACHED_WORDS = 65_536
CACHED_WORD_LENGTH = 64  # in characters: longer words are rare, and an unbounded word would make an unbounded cache
DEAD = -1


class MergeTable(NamedTuple):
    """What training learned. The key of a pair is ``left * vocabulary_size + right``; a lower rank merges
    first.
    """

    vocabulary_size: int
    rank_of: Mapping[int, int]  # key of a pair → rank
    product: Sequence[int]  # rank → id of the merged piece


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


def merge_by_rank(ids: Sequence[int], table: MergeTable) -> list[int]:
    """Merge the neighbour pair of lowest rank, the leftmost first, until no pair has a rank: O(n log n).

    The pieces form a doubly linked list over their first positions; a heap holds (rank, position) of
    candidate pairs. A rank names one pair, so a candidate is stale exactly if ``rank_at`` of its position has
    changed.
    """
    size, rank_of, product = table
    n = len(ids)
    piece = list(ids)
    following = list(range(1, n + 1))
    preceding = list(range(-1, n - 1))
    rank_at = [rank_of.get(left * size + right, DEAD) for left, right in pairwise(ids)]
    rank_at.append(DEAD)  # the last piece has no right neighbour
    heap = [rank * n + i for i, rank in enumerate(rank_at) if rank != DEAD]  # one integer orders by (rank, position)
    heapify(heap)
    while heap:
        rank, i = divmod(heappop(heap), n)
        if rank_at[i] != rank:
            continue
        j = following[i]
        k = following[j]
        piece[i] = product[rank]
        piece[j] = rank_at[j] = rank_at[i] = DEAD
        following[i] = k
        if k < n:
            preceding[k] = i
            rank_at[i] = right_rank = rank_of.get(piece[i] * size + piece[k], DEAD)
            if right_rank != DEAD:
                heappush(heap, right_rank * n + i)
        h = preceding[i]
        if h >= 0:
            rank_at[h] = left_rank = rank_of.get(piece[h] * size + piece[i], DEAD)
            if left_rank != DEAD:
                heappush(heap, left_rank * n + h)
    return [token_id for token_id in piece if token_id != DEAD]


class ByteLevelBPE:
    """The text model of GPT-2, SmolLM2 and their kin."""

    def __init__(self, vocabulary: Vocabulary, merges: MergeTable, pre: str | None) -> None:
        self._pieces = vocabulary.pieces
        self._merges = merges
        self._words = word_pattern(pre)
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
        ids = [self._byte_ids[byte] for byte in word.encode("utf-8")]
        if DEAD in ids:
            byte = word.encode("utf-8")[ids.index(DEAD)]
            raise InvalidRequestError(
                f"text has the byte 0x{byte:02X} (in {word[:40]!r}), for which this vocabulary has no token; "
                "remove the character",
                field="text",
            )
        return merge_by_rank(ids, self._merges)


def load_byte_level_bpe(metadata: Mapping[str, Any], vocabulary: Vocabulary) -> ByteLevelBPE:
    """Build the text model from a model file's metadata.

    Raises:
        ModelFileError: the merges or the pre-tokenizer are missing, malformed or unknown.
    """
    return ByteLevelBPE(
        vocabulary, read_merges(metadata, vocabulary.id_of), read_scalar(metadata, "tokenizer.ggml.pre", str)
    )

"""Byte-pair encoding: a word to ids by merges, always the pair that training merged first.

In: a word, in which each character is a piece of the vocabulary (in a byte-level vocabulary, a byte as a character of
the byte alphabet). Out: ids.
Source: Sennrich et al., "Neural Machine Translation of Rare Words with Subword Units" (2016); GPT-2 for the
bytes.
"""

from array import array
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from cutaway.errors import InvalidRequestError, ModelFileError
from cutaway.formats.cursor import shown
from cutaway.tokenizer.byte_alphabet import CHARACTER_TO_BYTE, piece_bytes
from cutaway.tokenizer.merge import MergeRule, merge_by_rank
from cutaway.tokenizer.metadata import CONVERT_AGAIN, each_string, read_scalar
from cutaway.tokenizer.pretokenize import NO_NAME, pre_tokenizer
from cutaway.tokenizer.vocabulary import CONTROL, NORMAL, Vocabulary
from cutaway.tokenizer.word_model import WordModel

MERGES: Final = "tokenizer.ggml.merges"
Ints: TypeAlias = npt.NDArray[np.int32]


class MergeTable(NamedTuple):
    """What training learned: pairs of neighbours that merge, ascending by (left, right). A lower rank merges first.

    Arrays instead of a dict, since a dict of a large vocabulary's pairs takes 140 bytes for each.
    """

    first: "array[int]"  # [V + 1]: the pairs whose left id is i stand at first[i] … first[i + 1] - 1
    right: "array[int]"  # [M] id
    rank: "array[int]"  # [M]
    product: "array[int]"  # [M] id of the merged piece

    @classmethod
    def of(cls, vocabulary_size: int, merges: Ints) -> "MergeTable":
        """The table of ``merges: [M, 4] int32``, left, right, rank and product; of equal pairs the one of highest rank
        counts.
        """
        left, right, rank, product = merges[np.lexsort((merges[:, 2], merges[:, 1], merges[:, 0]))].T
        last = np.ones(len(merges), np.bool_)
        last[:-1] = (left[1:] != left[:-1]) | (right[1:] != right[:-1])
        first = np.searchsorted(left[last], np.arange(vocabulary_size + 1))
        return cls(
            *(array("i", each.astype("i").tobytes()) for each in (first, right[last], rank[last], product[last]))
        )

    def rule(self) -> MergeRule:
        """The rule for ``merge_by_rank``."""
        first, rights, ranks, products = self

        def merge(left: int, right: int) -> tuple[int, int] | None:
            end = first[left + 1]
            i = bisect_left(rights, right, first[left], end)
            return (ranks[i], products[i]) if i < end and rights[i] == right else None

        return merge


def read_merges(
    pairs: Iterable[tuple[str, str]], vocabulary: Vocabulary, origin: str, *, distinct: bool = False
) -> MergeTable:
    """The merges of a model file, in the order of their ranks.

    A merge whose product is a control token is left out: text never becomes one. Of two equal merges the last one
    counts, as in the ``tokenizers`` package.

    Args:
        origin: what the file calls them, for messages.
        distinct: refuse equal merges.

    Raises:
        ModelFileError: they speak of pieces that the vocabulary lacks, or are not distinct.
    """
    id_of = vocabulary.id_of
    found = array("i")
    for rank, (left, right) in enumerate(pairs):
        try:
            found.extend((id_of[left], id_of[right], rank, id_of[left + right]))
        except KeyError as missing:
            raise ModelFileError(
                f"merge {rank} of {origin}, {shown(left + ' ' + right)}, needs {shown(missing.args[0])}, which is not "
                "in the vocabulary; "
                f"both pieces and their product must be. {CONVERT_AGAIN}"
            ) from None
    merges = np.array(found, np.int32).reshape(-1, 4)
    # As np.unique, which would load all of NumPy's masked arrays.
    pairs_in_order = np.sort(merges[:, 0].astype(np.int64) << 32 | merges[:, 1])
    different = len(merges) - int(np.count_nonzero(pairs_in_order[1:] == pairs_in_order[:-1]))
    if distinct and different != len(merges):
        raise ModelFileError(
            f"{origin} has {len(merges)} entries, but only {different} different ones; a merge has one rank. "
            f"{CONVERT_AGAIN}"
        )
    return MergeTable.of(len(vocabulary.pieces), merges[vocabulary.types[merges[:, 3]] != CONTROL])


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
    characters = {piece: i for piece, i in vocabulary.id_of.items() if len(piece) == 1}
    merges = read_merges(_read_pairs(metadata), vocabulary, MERGES, distinct=True)
    return WordModel(
        known.steps(),
        BytePairEncoding(characters, merges, whole_words=whole_words, fallback=refuse_missing_bytes),
        lambda token_id: piece_bytes(pieces[token_id]),
        begins_with_bos=known.begins_with_bos,
        keeps_bytes=True,
        notes=(NO_NAME,) if name is None else (),
    )


def _read_pairs(metadata: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """One pair after the other: all of them as objects would take more memory than the table."""
    for rank, merge in enumerate(each_string(metadata, MERGES)):
        left, space, right = merge.partition(" ")
        if not space or " " in right:
            raise ModelFileError(
                f"merge {rank} of {MERGES} is {shown(merge)}; a merge is two pieces with one space between. "
                f"{CONVERT_AGAIN}"
            )
        yield left, right

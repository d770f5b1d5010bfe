"""The text model of tokenizers that cut text into words first: normalize, cut, encode each word.

In: text without special tokens. Out: ids; and ids back to bytes.
"""

from collections.abc import Callable, Sequence
from functools import lru_cache

from cutaway.tokenizer.words import WordStep, cut_words, without_last_rewrites

CACHED_WORDS = 65_536
CACHED_WORD_LENGTH = 64  # in characters: longer words are rare, and an unbounded word would make an unbounded cache


def unchanged(text: str) -> str:
    """The normalization that does nothing."""
    return text


class WordModel:
    """A pipeline of normalization, pre-tokenization and a model of single words.

    Args:
        steps: cut normalized text into words.
        encode_word: a word → its ids, by the word alone.
        token_bytes: id → the bytes that the token stands for in text.
        normalize: text → normalized text.
        adds_space: whether decoding takes a space from the beginning of the text.
        begins_with_bos: whether text begins with BOS where the file doesn't say.
        keeps_bytes: whether the ids of a text stand for all of its bytes: none is dropped, none unknown.
        notes: what had to be assumed, or isn't done.
    """

    def __init__(
        self,
        steps: Sequence[WordStep],
        encode_word: Callable[[str], list[int]],
        token_bytes: Callable[[int], bytes],
        *,
        normalize: Callable[[str], str] = unchanged,
        adds_space: bool = False,
        begins_with_bos: bool = False,
        keeps_bytes: bool = False,
        notes: tuple[str, ...] = (),
    ) -> None:
        self._steps, rewrite = without_last_rewrites(steps)
        self._encode_word: Callable[[str], list[int]] = lambda word: encode_word(rewrite(word))
        self._encode_short_word = lru_cache(maxsize=CACHED_WORDS)(self._encode_word)
        self.token_bytes = token_bytes
        self.normalize = normalize
        self.adds_space = adds_space
        self.begins_with_bos = begins_with_bos
        self.keeps_bytes = keeps_bytes
        self.notes = notes

    def encode(self, text: str, at_start: bool = True) -> list[int]:
        """Normalized text without special tokens to ids.

        Args:
            at_start: the text begins the whole text; a special token may stand before it if not.

        Raises:
            InvalidRequestError: the text has a character that the vocabulary has no token for.
        """
        ids: list[int] = []
        for word in cut_words(text, self._steps, at_start):
            ids += self._encode_short_word(word) if len(word) <= CACHED_WORD_LENGTH else self._encode_word(word)
        return ids

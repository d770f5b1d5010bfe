"""A tokenizer's vocabulary as the grammar engine takes it: each token's bytes, and which are special.

In: a ``Tokenizer``. Out: an ``LLTokenizer`` of llguidance, with one token more than the vocabulary has: id V stands for
the end of the answer, so that ending is a question of its own, whatever tokens a model ends with, and how many.
"""

from typing import TYPE_CHECKING, Final

from cutaway.tokenizer.tokenizer import Tokenizer

if TYPE_CHECKING:
    from llguidance import LLTokenizer

LONGEST_CUT: Final = 256
"""Bytes of a text without choice that are cut as the tokenizer would. Only the first of its tokens is ever used."""


class VocabularyBytes:
    """What ``llguidance.TokenizerWrapper`` wants of a tokenizer."""

    bos_token_id: None = None

    def __init__(self, tokenizer: Tokenizer) -> None:
        V = tokenizer.vocab_size
        self.eos_token_id = V
        self.tokens = [*(tokenizer.token_bytes(token_id) for token_id in range(V)), b"<end of answer>"]
        self.special_token_ids = [*filter(tokenizer.is_special, range(V)), V]
        self.longest_match: LLTokenizer | None = None  # set when it is made
        self._tokenizer = tokenizer

    def __call__(self, data: bytes) -> list[int]:
        """The ids of a text without choice, cut as the tokenizer cuts it, so that the model sees its own tokens.

        It must not raise, and its ids must have these very bytes: what can't be cut so is cut by longest matches.
        """
        head, rest = data[:LONGEST_CUT], data[LONGEST_CUT:]
        ids = self._encode(head)
        if ids is None:
            return self._by_longest_matches(data)
        return ids + self._by_longest_matches(rest) if rest else ids

    def _encode(self, data: bytes) -> list[int] | None:
        """The tokenizer's ids of a text that goes on another one, None where they are not its bytes alone."""
        for before in ("", "\n"):  # behind a new line, a tokenizer that puts a space before texts puts it elsewhere
            try:
                ids = self._tokenizer.encode(before + data.decode(), add_bos=False)
            except ValueError:  # not UTF-8, or a character that the vocabulary lacks
                return None
            lengths = [len(self.tokens[token_id]) for token_id in ids]
            skipped = 0
            while skipped < len(ids) and sum(lengths[skipped:]) > len(data):
                skipped += 1
            if b"".join(self.tokens[token_id] for token_id in ids[skipped:]) == data:
                return ids[skipped:]
        return None

    def _by_longest_matches(self, data: bytes) -> list[int]:
        if self.longest_match is None:
            return []
        return self.longest_match.greedy_tokenize(data.decode(errors="ignore"))


def grammar_vocabulary(tokenizer: Tokenizer) -> "LLTokenizer":
    """The vocabulary, made once for each model: about 0.2 s for 49,152 tokens."""
    from llguidance import LLTokenizer, TokenizerWrapper

    vocabulary = VocabularyBytes(tokenizer)
    made = LLTokenizer(TokenizerWrapper(vocabulary))
    vocabulary.longest_match = made
    return made


def packed_words(V: int) -> int:
    """int32 words of a mask with a bit for each of V ids."""
    return -(-V // 32)

"""One answer's place in a grammar: which tokens may come next, and whether any may.

In: the tokens of the answer, one by one. Out: a mask for each next one.
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING

import numpy as np

from cutaway.errors import InvalidRequestError
from cutaway.grammar.vocabulary import packed_words
from cutaway.ops.cpu.arrays import Ints

if TYPE_CHECKING:
    from llguidance import LLMatcher


class GrammarState:
    """Invariant: ``allowed`` and ``finished`` are those after the last token that was given.

    It depends on the grammar and the answer's tokens alone, so keys and values may be computed again at any time.
    """

    def __init__(self, matcher: "LLMatcher", V: int, end_ids: Iterable[int] = ()) -> None:
        """matcher: this state's own. end_ids: of tokens that are no text; they are allowed where the answer may end."""
        self._matcher, self._V = matcher, V
        self._bits = np.zeros(packed_words(V + 1), np.int32)
        self._end_ids = tuple(end_ids)
        self.allowed: Ints = self._bits[: packed_words(V)]
        """[ceil(V / 32)] int32: bit i % 32 of word i // 32 is 1 if token i may come next. Overwritten by the next."""
        self.accepts = False
        """Whether the answer may end here."""
        self.finished = False
        """Whether nothing but the end may come."""
        self._look()

    def advance(self, token_id: int) -> None:
        """The answer goes on with this token; ``allowed`` becomes the next one's.

        Raises InvalidRequestError where the token was not allowed, or the grammar is too complex to go on.
        """
        if not self._matcher.consume_token(token_id):
            raise self._error()
        self._look()

    def finished_by(self, token_id: int) -> bool:
        """``advance``, and whether it is ``finished`` then."""
        self.advance(token_id)
        return self.finished

    def _look(self) -> None:
        bits = self._bits
        self._matcher.unsafe_compute_mask_ptr(bits.ctypes.data, bits.nbytes)  # without the GIL
        if self._matcher.is_error():
            raise self._error()
        word, bit = self._V // 32, self._V % 32
        self.accepts = bool(int(bits[word]) >> bit & 1)
        bits[word] &= np.int32((1 << bit) - 1)  # the bits from V on are nobody's
        self.finished = not bits.any()
        if self.finished and not self.accepts:
            raise InvalidRequestError(
                "structured_outputs has come to a place where no token of this vocabulary goes on. Simplify the form.",
                "structured_outputs",
            )
        if self.accepts:
            for token_id in self._end_ids:
                bits[token_id // 32] |= np.uint32(1 << token_id % 32).astype(np.int32)

    def _error(self) -> InvalidRequestError:
        reason = first_line(self._matcher.get_error())
        return InvalidRequestError(
            f"structured_outputs is too complex to go on, or its last token was not allowed ({reason}). Simplify the "
            "form.",
            "structured_outputs",
        )


def first_line(message: str) -> str:
    """The gist of an error of llguidance, which goes on with the grammar and the state."""
    lines = [line.strip() for line in message.split("<state>")[0].splitlines() if line.strip()]
    for line in lines:
        if line.startswith("error: "):  # of an expression, which is shown before
            return line.removeprefix("error: ")[:300]
    return lines[0][:300] if lines else "no reason given"

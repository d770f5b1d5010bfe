"""Stop strings in text that arrives in pieces: found wherever the pieces are cut, and never shown in part.

In: pieces of text. Out: the text that is certain, and the match that ends it. Each stop string is followed by an
automaton whose state is the length of its longest beginning that the text ends with: one step a character.
Source: Knuth, Morris, Pratt, "Fast Pattern Matching in Strings" (1977).
"""

from collections.abc import Sequence
from typing import NamedTuple

from cutaway.errors import InvalidRequestError
from cutaway.tokenizer.legal_text import check_legal


class StopMatch(NamedTuple):
    """The stop string that ended the text, and the characters of the text that is left."""

    stop: str
    text_length: int


class StopStrings:
    """The search for stop strings in one text.

    The match is the one that is complete first, character by character: no more text is ever needed to decide.
    Of several that are complete with the same character, it is the longest, which begins first.

    Args:
        stops: the stop strings; none is allowed, and so are doubled ones.
        include: leave the stop string at the end of the text. Then nothing is ever held back.

    Raises:
        InvalidRequestError: a stop string is empty or has a lone surrogate.
    """

    def __init__(self, stops: Sequence[str], *, include: bool = False) -> None:
        for stop in stops:
            if not stop:
                raise InvalidRequestError(
                    "a stop string is empty; it must have at least 1 character. Leave it out.", field="stop"
                )
            check_legal(stop, "stop")
        self.match: StopMatch | None = None
        self._include = include
        self._followers = [_Follower(stop) for stop in sorted(set(stops), key=lambda stop: (-len(stop), stop))]
        self._length = 0  # of the text so far
        self._held = ""

    def push(self, piece: str, may_stop: bool = True) -> str:
        """The text that became certain with this piece; nothing any more after the match.

        Args:
            piece: the text's continuation.
            may_stop: whether a stop string may be complete within this piece. One that began in earlier pieces
                counts, whatever was allowed there.
        """
        if self.match is not None:
            return ""
        text = self._held + piece
        for end, character in enumerate(piece, len(self._held) + 1):
            complete = [follower.stop for follower in self._followers if follower.step(character)]
            if complete and may_stop:
                stop = complete[0]  # the longest
                kept = end if self._include else end - len(stop)
                self.match = StopMatch(stop, self._length - len(self._held) + kept)
                self._held = ""
                return text[:kept]
        self._length += len(piece)
        certain = len(text) - (0 if self._include else max((f.state for f in self._followers), default=0))
        self._held = text[certain:]
        return text[:certain]

    def flush(self) -> str:
        """End the text: what was held back for a stop string that didn't come."""
        rest, self._held = self._held, ""
        return rest


class _Follower:
    """The automaton of one stop string; ``state`` is the length of its longest proper beginning that the text
    ends with.
    """

    def __init__(self, stop: str) -> None:
        self.stop = stop
        self.state = 0
        # fallback[n]: the longest proper beginning of the stop string that its first n characters end with.
        self._fallback = [0, 0]
        for n in range(1, len(stop)):
            self._fallback.append(self._next(self._fallback[n], stop[n]))

    def step(self, character: str) -> bool:
        """Follow one character of the text; whether the stop string is complete with it."""
        self.state = self._next(self.state, character)
        complete = self.state == len(self.stop)
        if complete:
            self.state = self._fallback[self.state]
        return complete

    def _next(self, state: int, character: str) -> int:
        while state and self.stop[state] != character:
            state = self._fallback[state]
        return state + (self.stop[state] == character)

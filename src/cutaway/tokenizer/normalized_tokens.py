"""Added tokens that are looked for in normalized text (``"normalized": true``), and which of the control tokens there
the template wrote.

In: text, marked text (provenance.py). Out: spans of the normalized text. Normalization may join, split or replace
characters, so marks don't survive it: a wide letter has none and becomes one of a control token, and a letter with an
accent of its own becomes one character, or stays two where it is marked. Instead, each control token that the template
spelled is replaced by one character that nothing else contains, and the text is normalized with and without them: what
then stands between the same neighbours is the token.
"""

import re
from collections.abc import Callable, Iterable, Iterator

from cutaway.tokenizer.added_tokens import AddedToken, AddedTokens, Span
from cutaway.tokenizer.provenance import END_MARK

LAST_PRIVATE = 0x10FFFD  # of the characters without a meaning, which no normalization changes


class NormalizedTokens:
    """The search for such tokens.

    Args:
        tokens: as the file spells them.
        normalize: text → normalized text.
    """

    def __init__(self, tokens: Iterable[AddedToken], normalize: Callable[[str], str]) -> None:
        kept = [(token, normalize(token.text)) for token in tokens]
        kept = [(token, text) for token, text in kept if text]
        self._normalize = normalize
        self._search = AddedTokens(token._replace(text=text) for token, text in kept)
        control = sorted((token.text for token, _ in kept if token.special), key=len, reverse=True)
        self._control = re.compile("|".join(map(re.escape, control))) if control else None
        self._within = {text: self._within_text(text) for text in control}
        self._alphabet = str.maketrans(dict.fromkeys("".join(self._within.values()), END_MARK))

    def split(self, marked: str | None, plain: str, text: str) -> Iterator[Span]:
        """Cut normalized text into spans, in order.

        Args:
            marked: the text before normalization, with marks in place of characters that the user wrote; None: control
                tokens are found whoever wrote them.
            plain: the same without marks.
            text: ``normalize(plain)``.
        """
        return self._search.split(text if marked is None else self._marks(marked, plain, text), text)

    def _marks(self, marked: str, plain: str, text: str) -> str:
        """The normalized text, with an end mark for each character of control tokens that is outside the ones that the
        template spelled. A token whose last character the user's first one changes is none, and neither are those
        behind it.
        """
        written = [*self._control.finditer(marked)] if self._control else []
        if not written:
            return ""
        place = _unused_in(plain)
        ends = [0, *(match.end() for match in written)]
        starts = [*(match.start() for match in written), len(plain)]
        between = [plain[end:start] for end, start in zip(ends, starts, strict=True)]
        segments = self._normalize(place.join(between)).split(place)
        if len(segments) != len(between):
            return ""
        marks: list[str] = []
        position = 0
        for segment, token in zip(segments, [*(self._within[match[0]] for match in written), ""], strict=True):
            if not text.startswith(segment + token, position):
                break
            marks += segment.translate(self._alphabet), token
            position += len(segment) + len(token)
        return "".join(marks) + END_MARK * (len(text) - position)

    def _within_text(self, token: str) -> str:
        """The token, normalized where it is neither the beginning nor the end of the text."""
        place = _unused_in(token)
        return place.join(self._normalize(f"{place}{token}{place}").split(place)[1:-1])


def _unused_in(text: str) -> str:
    """A character that the text doesn't contain."""
    present = set(text)
    return next(character for code in range(LAST_PRIVATE, 0, -1) if (character := chr(code)) not in present)

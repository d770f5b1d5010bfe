"""Added tokens are cut out of the text before it is cut into words, and become their ids at once. They are the control
tokens, which steer the model, and tokens that the vocabulary keeps in one piece.

In: text. Out: spans of text and of added tokens, in order. At each place the longest added token wins.
Source: the ``added_tokens`` of the ``tokenizers`` package.
"""

import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import regex  # type: ignore[import-untyped]

_SPACE_BEFORE = regex.compile(r"(?r)\s*")  # from right to left
_SPACE_AFTER = regex.compile(r"\s*")
_WORD_CHARACTER = regex.compile(r"\w")


class AddedToken(NamedTuple):
    """``special``: a control token. ``lstrip``, ``rstrip``: white space before or behind it belongs to it.
    ``single_word``: not found beside a letter, digit or underscore. ``normalized``: looked for in normalized text.
    """

    text: str
    token_id: int
    special: bool
    lstrip: bool = False
    rstrip: bool = False
    single_word: bool = False
    normalized: bool = False


class Span(NamedTuple):
    """A stretch of the text: an added token's, or text (``token_id`` None)."""

    start: int
    stop: int
    token_id: int | None


class AddedTokens:
    """The search for added tokens: by their first two characters, then by their lengths, the longest first."""

    def __init__(self, tokens: Iterable[AddedToken]) -> None:
        self._tokens = {token.text: token for token in tokens}
        lengths: dict[str, set[int]] = {}
        for text in self._tokens:
            lengths.setdefault(text[:2], set()).add(len(text))
        self._lengths = {beginning: sorted(found, reverse=True) for beginning, found in lengths.items()}
        first = "".join(sorted({text[0] for text in self._tokens}))
        self._first = re.compile(f"[{re.escape(first)}]") if first else None

    @property
    def takes_spaces(self) -> bool:
        """Whether white space beside one of them can become part of it, however much there is."""
        return any(token.lstrip or token.rstrip for token in self._tokens.values())

    def split(self, marked: str, plain: str) -> Iterator[Span]:
        """Cut text into spans, in order; empty ones are left out.

        Args:
            marked: the text with marks in place of characters that the user wrote (provenance.py), or ``plain``.
                Control tokens are found as they are spelled, mark by mark; others are found in marked text, too.
            plain: the text, character for character.
        """
        end = 0  # of the last span
        searched = 0  # of the last token found, without the white space behind it
        for match in self._first.finditer(plain) if self._first else ():
            i = match.start()
            token = self._longest_at(i, marked, plain) if i >= searched else None
            if token is None:
                continue
            searched = i + len(token.text)
            if token.single_word and (_is_word(plain[i - 1 : i]) or _is_word(plain[searched : searched + 1])):
                continue
            start, stop = i, searched
            if token.lstrip:
                start = max(end, _SPACE_BEFORE.match(plain, 0, i).start())
            if token.rstrip:
                stop = _SPACE_AFTER.match(plain, searched).end()
            if start > end:
                yield Span(end, start, None)
            yield Span(start, stop, token.token_id)
            end = stop
        if end < len(plain):
            yield Span(end, len(plain), None)

    def _longest_at(self, i: int, marked: str, plain: str) -> AddedToken | None:
        for n in (*self._lengths.get(plain[i : i + 2], ()), *self._lengths.get(plain[i], ())):
            token = self._tokens.get(plain[i : i + n])
            if token is not None and (not token.special or marked[i : i + n] == token.text):
                return token
        return None


def _is_word(character: str) -> bool:
    return _WORD_CHARACTER.match(character) is not None

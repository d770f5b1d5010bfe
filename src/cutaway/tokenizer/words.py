"""Cutting text into words: the steps of pre-tokenization, each of which cuts or rewrites the pieces that the step
before it made. No token ever crosses the edge of a word.

In: a piece of text. Out: words. A step is a function from pieces to pieces, so that any sequence of them is one, too.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import regex  # type: ignore[import-untyped]

WordStep: TypeAlias = Callable[[list[str], bool], list[str]]
"""One step of pre-tokenization: (pieces, whether the first begins the whole text) → pieces."""


@dataclass(frozen=True)
class RewriteStep:
    """A step that rewrites each piece and cuts none, so that it may as well be done to one word at a time."""

    rewrite: Callable[[str], str]

    def __call__(self, pieces: list[str], at_start: bool) -> list[str]:
        """The pieces, rewritten; as many as there were."""
        return [self.rewrite(piece) for piece in pieces]


def isolate(pattern: str) -> WordStep:
    """The step that makes each match of the pattern a piece, and what lies between matches, too."""
    compiled = regex.compile(pattern)

    def step(pieces: list[str], at_start: bool) -> list[str]:
        words: list[str] = []
        for piece in pieces:
            end = 0
            for match in compiled.finditer(piece):
                start, stop = match.span()
                if start > end:
                    words.append(piece[end:start])
                if stop > start:
                    words.append(piece[start:stop])
                end = stop
            if end < len(piece):
                words.append(piece[end:])
        return words

    return step


def cut_words(text: str, steps: Iterable[WordStep], at_start: bool = True) -> list[str]:
    """The words of a text: the steps, one after the other."""
    pieces = [text] if text else []
    for step in steps:
        pieces = step(pieces, at_start)
    return pieces


def without_last_rewrites(steps: Sequence[WordStep]) -> tuple[list[WordStep], Callable[[str], str]]:
    """The steps without the rewriting ones at the end, and these as one function of a word: what is done to one word
    at a time can be remembered with the word's ids.
    """
    kept = list(steps)
    rewrites: list[Callable[[str], str]] = []
    while kept and isinstance(step := kept[-1], RewriteStep):
        rewrites.append(step.rewrite)
        kept.pop()

    def rewrite(word: str) -> str:
        for each in reversed(rewrites):
            word = each(word)
        return word

    return kept, rewrite

"""The patterns of ``tokenizer.json``: a text as it is, or a regular expression in the syntax of Oniguruma.

In: a ``pattern`` object. Out: a pattern of the ``regex`` package that matches the same.
"""

from collections.abc import Callable, Iterator
from math import prod
from typing import Any, Final

import regex  # type: ignore[import-untyped]

from cutaway.errors import ModelFileError
from cutaway.tokenizer.huggingface.component import Component

LONGEST_PATTERN: Final = 20_000  # characters; the longest of a real model has some three thousand
MOST_GROUPS: Final = 100  # nested ones take a level of the compiler's recursion each
MOST_REPEATS: Final = 10_000
"""The product of all counts {n}: repeats within repeats are laid out in memory when a pattern is compiled."""
SECONDS: Final = 4.0
CHARACTERS_A_SECOND: Final = 20_000
"""A pattern gets the seconds, and one more for so many characters: a sound one needs a hundredth of that, while a
hostile one may take longer than the universe is old."""

# As in Oniguruma, $ matches before every line end, and sets may stand within sets.
ONIGURUMA = regex.MULTILINE | regex.VERSION1

# Classes of Oniguruma that the ``regex`` package has otherwise, or not at all; ² ³ ¹ ¼ ½ ¾ are of the class of words
# outside of sets only.
WORD_IN_SET = r"\w--[\u200c\u200d]"
WORD = r"\w\xb2\xb3\xb9\xbc-\xbe--[\u200c\u200d]"
HEXADECIMAL = {"h": "[0-9a-fA-F]", "H": "[^0-9a-fA-F]"}
OUTSIDE = {"w": f"[{WORD}]", "W": f"[^{WORD}]", **HEXADECIMAL}
IN_SET = {"w": f"[{WORD_IN_SET}]", "W": f"[^{WORD_IN_SET}]", **HEXADECIMAL}
COUNTS = regex.compile(r"\{(\d*),?(\d*)\}")
NOT_ONIGURUMAS = regex.compile(r"\(\?(?:R|&|P[>=]|[+-]?\d)|(?<!\\[pPxoNg])\{(?![\d,]+\})[^{}]*(?:\}|$)")
"""What the ``regex`` package takes for a recursion or an inexact match."""
PARTS = regex.compile(r"\\.|\[:\^?\w+:\]|.", regex.DOTALL)


def from_oniguruma(source: str) -> str:
    """The pattern, with its classes as the ``regex`` package writes them."""
    depth = 0  # of sets
    parts: list[str] = []
    for part in PARTS.findall(source):
        if part == "[":
            depth += 1
        elif part == "]" and depth:
            depth -= 1
        elif part[0] == "\\":
            part = (IN_SET if depth else OUTSIDE).get(part[1:], part)
        parts.append(part)
    return "".join(parts)


class Pattern:
    """A compiled pattern that gives up on a text on which it takes too long.

    Raises:
        ModelFileError: by its methods, which else are those of a compiled pattern.
    """

    def __init__(self, compiled: Any, place: str) -> None:
        self._compiled = compiled
        self._place = place

    def finditer(self, text: str) -> Iterator[Any]:
        """The matches. Raises ModelFileError where they take longer than any sound pattern would."""
        try:
            yield from self._compiled.finditer(text, timeout=_seconds(text))
        except (TimeoutError, MemoryError) as error:
            raise self._too_slow(text) from error

    def sub(self, replacement: Callable[[Any], str], text: str) -> str:
        """The text with each match replaced. Raises ModelFileError as ``finditer``."""
        try:
            return str(self._compiled.sub(replacement, text, timeout=_seconds(text)))
        except (TimeoutError, MemoryError) as error:
            raise self._too_slow(text) from error

    def _too_slow(self, text: str) -> ModelFileError:
        return ModelFileError(
            f"{self._place} of tokenizer.json takes too much time or memory on a text of {len(text)} characters: it is "
            "no pattern of a sound model. Use another file of this model, as a GGUF."
        )


def _seconds(text: str) -> float:
    return SECONDS + len(text) / CHARACTERS_A_SECOND


def read_pattern(component: Component) -> Pattern:
    """The compiled pattern of a component.

    Raises:
        ModelFileError: it has none, or it can't be compiled, or would take too much time or memory.
    """
    given = component.child("pattern")
    if given is None:
        component.refuse("has no pattern")
    if "String" in given.fields:
        return Pattern(regex.compile(regex.escape(given.text("String"), literal_spaces=True)), given.place)
    source = given.text("Regex")
    repeats = prod(max(1, *(int(count[:9] or 1) for count in counts)) for counts in COUNTS.findall(source))
    for number, limit, of in (
        (len(source), LONGEST_PATTERN, "characters"),
        (source.count("("), MOST_GROUPS, "groups"),
        (repeats, MOST_REPEATS, "repeats, one within the other"),
    ):
        if number > limit:
            given.refuse(f"is {source[:80]!r}, which has {number} {of}; it must have at most {limit}")
    if other := NOT_ONIGURUMAS.search(source):
        given.refuse(f"is {source[:80]!r}, which has {other[0][:20]!r}")
    try:
        return Pattern(regex.compile(from_oniguruma(source), ONIGURUMA), given.place)
    except (regex.error, OverflowError, MemoryError, RecursionError) as error:
        given.refuse(f"is {source[:200]!r} ({error})")

"""User text and template text stay distinguishable through a chat template, so that user text can't become a
control token.

In: the strings of the messages and the texts of the control tokens. Out: the same strings with every
character that occurs in some control token replaced by a *mark*: a lone surrogate, which legal text can't
contain. Whatever the template does with them (concatenate, slice, trim, join the parts of a token from
several fields), no user character in the rendered text is equal to a character of a control token; so a
control token found there was written by the template, every character of it. Afterwards the marks become the
characters again.

Marking is one character for one, so lengths and positions are those of the plain text. ``MarkedText``
compares, hashes, searches and trims as the plain text would, so that a template renders what it would have
rendered from plain strings. Where a template finds a way around ``MarkedText``, it meets marks instead of
characters: the rendering may then differ, but never to the user's advantage. That is why this is not done the
other way round, with plain strings and a record of origins beside them: a lost record would turn user text
into control tokens. Numbers in messages are not marked.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property, lru_cache
from typing import Any, SupportsIndex

import numpy as np
import numpy.typing as npt

from cutaway.errors import ModelFileError

FIRST_MARK, LAST_MARK = 0xD800, 0xDFFE
END_MARK = "\udfff"  # stands for no character, but for the end of a text that is to be continued
CHARACTERS_THAT_JSON_ESCAPES = frozenset('"\\') | {chr(code) for code in range(0x20)}


class Marks:
    """The two-way table between the characters of control tokens and their marks."""

    def __init__(self, control_texts: Iterable[str]) -> None:
        alphabet = sorted(_closed_under_case(frozenset("".join(control_texts))))
        if len(alphabet) > LAST_MARK - FIRST_MARK + 1:
            raise ModelFileError(
                f"the control tokens use {len(alphabet)} different characters; chat templates work with "
                f"up to {LAST_MARK - FIRST_MARK + 1}. Pass plain text to this model, or use another file of it."
            )
        if escaped := CHARACTERS_THAT_JSON_ESCAPES.intersection(alphabet):
            raise ModelFileError(
                f"a control token contains {min(escaped)!r}; chat templates work with control tokens "
                "free of quotation marks, backslashes and control characters. Pass plain text to this model, or use "
                "another file of it."
            )
        self._to_mark = {ord(character): FIRST_MARK + i for i, character in enumerate(alphabet)}
        self._to_plain = {mark: code for code, mark in self._to_mark.items()}

    def mark(self, text: str) -> "MarkedText":
        """Text from outside, wholly marked."""
        return MarkedText(text.translate(self._to_mark), self)

    def unmark(self, text: str) -> str:
        """The text with characters in place of marks."""
        return str.__str__(text) if text.isascii() else text.translate(self._to_plain)


class MarkedText(str):
    """Text in which marks stand for some characters, and which behaves like the plain text.

    The methods are those that templates may call; each returns what the plain string's method returns, with
    the marks kept.
    """

    marks: Marks

    def __new__(cls, text: str, marks: Marks) -> "MarkedText":
        self = super().__new__(cls, text)
        self.marks = marks
        return self

    @cached_property
    def plain(self) -> str:
        """The text with characters in place of marks."""
        return self.marks.unmark(self)

    def __str__(self) -> str:
        return self  # str(x) keeps the type: templates call it on everything they print

    def __repr__(self) -> str:
        return self.marks.mark(repr(self.plain))

    def __hash__(self) -> int:
        return hash(self.plain)

    def __eq__(self, other: object) -> bool:
        return bool(self.plain == plain(other))

    def __ne__(self, other: object) -> bool:
        return bool(self.plain != plain(other))

    def __lt__(self, other: str) -> bool:
        return bool(self.plain < plain(other))

    def __le__(self, other: str) -> bool:
        return bool(self.plain <= plain(other))

    def __gt__(self, other: str) -> bool:
        return bool(self.plain > plain(other))

    def __ge__(self, other: str) -> bool:
        return bool(self.plain >= plain(other))

    def __contains__(self, other: str) -> bool:  # type: ignore[override]
        return plain(other) in self.plain

    def __iter__(self) -> Iterator[str]:
        return (self._keep(i, i + 1) for i in range(len(self)))

    def __getitem__(self, index: Any) -> "MarkedText":
        return MarkedText(super().__getitem__(index), self.marks)

    def __int__(self) -> int:
        return int(self.plain)

    def __float__(self) -> float:
        return float(self.plain)

    # -- questions: answered by the plain text

    def startswith(self, *args: Any) -> bool:
        return self.plain.startswith(*map(plain, args))

    def endswith(self, *args: Any) -> bool:
        return self.plain.endswith(*map(plain, args))

    def find(self, *args: Any) -> int:
        return self.plain.find(*map(plain, args))

    def rfind(self, *args: Any) -> int:
        return self.plain.rfind(*map(plain, args))

    def index(self, *args: Any) -> int:
        return self.plain.index(*map(plain, args))

    def count(self, *args: Any) -> int:
        return self.plain.count(*map(plain, args))

    def isalnum(self) -> bool:
        return self.plain.isalnum()

    def isalpha(self) -> bool:
        return self.plain.isalpha()

    def isdigit(self) -> bool:
        return self.plain.isdigit()

    def isnumeric(self) -> bool:
        return self.plain.isnumeric()

    def isspace(self) -> bool:
        return self.plain.isspace()

    def islower(self) -> bool:
        return self.plain.islower()

    def isupper(self) -> bool:
        return self.plain.isupper()

    # -- cutting: places found in the plain text, cut out of the marked one

    def strip(self, chars: str | None = None) -> "MarkedText":
        return self.lstrip(chars).rstrip(chars)

    def lstrip(self, chars: str | None = None) -> "MarkedText":
        return self._keep(len(self) - len(self.plain.lstrip(plain(chars))), len(self))

    def rstrip(self, chars: str | None = None) -> "MarkedText":
        return self._keep(0, len(self.plain.rstrip(plain(chars))))

    def removeprefix(self, prefix: str) -> "MarkedText":
        return self._keep(len(self) - len(self.plain.removeprefix(plain(prefix))), len(self))

    def removesuffix(self, suffix: str) -> "MarkedText":
        return self._keep(0, len(self.plain.removesuffix(plain(suffix))))

    def split(self, sep: str | None = None, maxsplit: SupportsIndex = -1) -> list[str]:
        return self._cut(self.plain.split(plain(sep), maxsplit), sep)

    def rsplit(self, sep: str | None = None, maxsplit: SupportsIndex = -1) -> list[str]:
        return self._cut(self.plain.rsplit(plain(sep), maxsplit), sep)

    def splitlines(self, keepends: bool = False) -> list[str]:
        return self._cut(self.plain.splitlines(keepends), None)

    def partition(self, sep: str) -> tuple[str, str, str]:
        head, middle, _ = self.plain.partition(plain(sep))
        start, end = len(head), len(head) + len(middle)
        return self._keep(0, start), self._keep(start, end), self._keep(end, len(self))

    def rpartition(self, sep: str) -> tuple[str, str, str]:
        head, middle, _ = self.plain.rpartition(plain(sep))
        start, end = len(head), len(head) + len(middle)
        return self._keep(0, start), self._keep(start, end), self._keep(end, len(self))

    # -- case: the alphabet of marks is closed under it, so an unmarked character never turns into one that
    # needs a mark

    def upper(self) -> "MarkedText":
        return self.mapped(str.upper)

    def lower(self) -> "MarkedText":
        return self.mapped(str.lower)

    def title(self) -> "MarkedText":
        return self.mapped(str.title)

    def capitalize(self) -> "MarkedText":
        return self.mapped(str.capitalize)

    def casefold(self) -> "MarkedText":
        return self.mapped(str.casefold)

    def swapcase(self) -> "MarkedText":
        return self.mapped(str.swapcase)

    def mapped(self, change_case: Callable[[str], str]) -> "MarkedText":
        """Each character's case changed, its origin kept; if the length changes ("ß" → "SS"), all counts as
        the user's.
        """
        result = change_case(self.plain)
        marked = self.marks.mark(result)
        if len(result) != len(self):
            return marked
        codes = _codes(self)
        is_mark = (codes >= FIRST_MARK) & (codes <= LAST_MARK)
        kept = np.where(is_mark, _codes(marked), _codes(result))
        return MarkedText(kept.tobytes().decode("utf-32-le", "surrogatepass"), self.marks)

    def _keep(self, start: int, end: int) -> "MarkedText":
        return self[start:end]

    def _cut(self, pieces: Sequence[str], separator: str | None) -> list[str]:
        """The pieces of the plain text, in order, cut out of the marked text.

        Between pieces lies the separator or, if it is None, white space, in which a piece can't begin.
        """
        cuts: list[str] = []
        position = 0
        for piece in pieces:
            start = self.plain.find(piece, position) if separator is None else position
            cuts.append(self._keep(start, start + len(piece)))
            position = start + len(piece) + len(separator or "")
        return cuts


# What a template may call on text. ``join`` and ``replace`` can make much out of little, so the sandbox has
# its own.
TEXT_METHODS = frozenset(
    name for name in vars(MarkedText) if not name.startswith("_") and name not in ("marks", "plain", "mapped")
)


def plain(value: Any) -> Any:
    """The plain text of marked text; a tuple's items likewise; anything else as it is."""
    if isinstance(value, MarkedText):
        return value.plain
    return tuple(map(plain, value)) if isinstance(value, tuple) else value


def _codes(text: str) -> npt.NDArray[np.uint32]:
    return np.frombuffer(text.encode("utf-32-le", "surrogatepass"), "<u4")


def _closed_under_case(alphabet: frozenset[str]) -> frozenset[str]:
    """The alphabet and every character that a change of case could turn into one of it, in any number of
    steps.
    """
    closed = set(alphabet)
    while added := {
        character
        for character, forms in _case_forms().items()
        if character not in closed and not closed.isdisjoint(forms)
    }:
        closed |= added
    return frozenset(closed)


@lru_cache(maxsize=1)
def _case_forms() -> dict[str, frozenset[str]]:
    """Every character that has other cases → the characters of these."""
    changes = (str.lower, str.upper, str.title, str.casefold)
    last_with_case = 0x1F000  # the scripts with case end at U+1E943; a test looks at the rest
    forms: dict[str, frozenset[str]] = {}
    for character in map(chr, range(last_with_case)):
        others = {change(character) for change in changes}
        if others != {character}:
            forms[character] = frozenset("".join(others))
    return forms

"""Text that comes in pieces, read character by character by a parser that is written as if all of it were there.

In: characters. Out: what the parser makes of them. A parser is a generator that waits for the next character, so that
where the pieces are cut can make no difference. Every character is read once, but for those of a few literals.
"""

from collections.abc import Generator
from typing import Final, TypeAlias, TypeVar

Result = TypeVar("Result")
Parse: TypeAlias = Generator[None, str, Result]
"""It is sent characters, at the end "" again and again, and returns a result."""

END: Final = ""
SPACE: Final = " \t\r\n"
"""White space, as JSON has it."""


class Characters:
    """The characters of a text, with those that were put back."""

    def __init__(self) -> None:
        self._ahead: list[str] = []  # the next one last

    def next(self) -> Parse[str]:
        """The next character; END for ever where there are no more."""
        if self._ahead:
            return self._ahead.pop()
        return (yield)

    def put_back(self, text: str) -> None:
        """Let these be read again, before what comes then."""
        self._ahead += reversed(text)

    def space(self) -> Parse[str]:
        """The white space that comes next."""
        found: list[str] = []
        while (character := (yield from self.next())) and character in SPACE:
            found.append(character)
        self.put_back(character)
        return "".join(found)

    def literal(self, *literals: str) -> Parse[str | None]:
        """The first of the literals that comes next; None where none does, and then nothing was read."""
        read = ""
        left = list(literals)
        while left:
            if read in left:
                return read
            character = yield from self.next()
            left = [each for each in left if character and each.startswith(read + character)]
            read += character
        self.put_back(read)
        return None

    def closing(self, literal: str) -> Parse[bool]:
        """Whether the literal comes next, or as much of it as there is before the end; else nothing was read. For what
        closes something that is whole without it: of an answer that is cut there, a part of it says nothing.
        """
        read = ""
        for expected in literal:
            character = yield from self.next()
            if character == END:
                return True
            read += character
            if character != expected:
                self.put_back(read)
                return False
        return True

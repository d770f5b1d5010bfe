"""Step 1 of the walk: what the model reads, token by token.

In: a tokenizer and ids. Out: for each token its position, id and piece; the characters that are cut across tokens.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from cutaway.tokenizer.tokenizer import Tokenizer


@dataclass(frozen=True)
class CutCharacter:
    """A character whose bytes are spread over several tokens."""

    character: str
    first: int  # position of the token that begins it
    last: int  # and of the one that ends it


@dataclass(frozen=True)
class SeenToken:
    """A token in its place."""

    position: int
    id: int
    piece: str  # on one line, bytes of a cut character as <0xNN>
    special: bool  # a control token: it steers the model and is no text


def see_tokens(tokenizer: Tokenizer, ids: Sequence[int]) -> tuple[SeenToken, ...]:
    """The tokens of a sequence from its first position on."""
    return tuple(
        SeenToken(position, int(each), tokenizer.piece(each), tokenizer.is_special(each))
        for position, each in enumerate(ids)
    )


def cut_characters(pieces: Sequence[bytes]) -> tuple[CutCharacter, ...]:
    """The characters of a text in UTF-8 that lie in more than one of its pieces. What is no UTF-8 is no character."""
    data = b"".join(pieces)
    owner = [number for number, piece in enumerate(pieces) for _ in piece]  # of each byte
    found: list[CutCharacter] = []
    start = 0
    # Bytes that are no UTF-8 become one surrogate each, so that places stay right.
    for character in data.decode("utf-8", errors="surrogateescape"):
        size = 1 if "\udc80" <= character <= "\udcff" else len(character.encode("utf-8"))
        first, last = owner[start], owner[start + size - 1]
        if first != last:
            found.append(CutCharacter(character, first, last))
        start += size
    return tuple(found)


def find_ids(ids: Sequence[int], wanted: Sequence[int]) -> tuple[int, int] | None:
    """The last place of ``wanted`` among ``ids``, as (first, end); None if it is nowhere or empty."""
    count = len(wanted)
    for first in range(len(ids) - count, -1, -1):
        if count and list(ids[first : first + count]) == list(wanted):
            return first, first + count
    return None

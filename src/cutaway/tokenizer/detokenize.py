"""Ids to text, at once or as they come, never showing half a character.

In: the bytes of tokens. Out: text, in which every maximal invalid sequence became one U+FFFD. The streamed
pieces join to exactly the text of the whole, for any bytes.
Source: the Unicode Standard, section 3.9, "U+FFFD Substitution of Maximal Subparts" and table 3-7, "Well-Formed
UTF-8 Byte Sequences".
"""

import codecs
from collections.abc import Callable, Iterable

LONGEST_TAIL = 3  # bytes of an unfinished character

# What the second byte of a character may be, where its first byte restricts it; and every later byte.
SECOND_BYTES = {0xE0: (0xA0, 0xBF), 0xED: (0x80, 0x9F), 0xF0: (0x90, 0xBF), 0xF4: (0x80, 0x8F)}
OTHER_BYTES = (0x80, 0xBF)


class StreamingDetokenizer:
    """Text from ids, one id at a time; holds back the bytes of an unfinished character, which are at most 3.

    Args:
        text_bytes: id → the bytes it adds to the text (none for a skipped special token).
        drop_space: leave out one space at the very beginning of the text: the vocabulary's encoder puts it
            before every text.
        prompt_tail: the unfinished character at the end of the text before (``unfinished_tail``). If the
            first bytes continue it, it is part of the text; if not, it leaves no trace, not even U+FFFD: every
            U+FFFD stands for at least one byte that was pushed.
    """

    def __init__(
        self, text_bytes: Callable[[int], bytes], *, drop_space: bool = False, prompt_tail: bytes = b""
    ) -> None:
        self._text_bytes = text_bytes
        self._drop_space = drop_space
        self._prompt_tail = prompt_tail
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def push(self, token_id: int) -> str:
        """The text that became certain with this id; may be empty."""
        data = self._text_bytes(token_id)
        if self._drop_space and data:
            data = data.removeprefix(b" ")
            self._drop_space = False
        if self._prompt_tail and data:
            if _continues(self._prompt_tail, data[0]):
                data = self._prompt_tail + data
            self._prompt_tail = b""
        return self._decoder.decode(data)

    def flush(self) -> str:
        """End the text: an unfinished character becomes U+FFFD, unless all of it is the prompt's."""
        self._prompt_tail = b""
        rest = self._decoder.decode(b"", final=True)
        self._decoder.reset()
        return rest


def unfinished_tail(pieces_from_the_end: Iterable[bytes]) -> bytes:
    """The bytes of the unfinished character at the end of a text, at most 3; none if it ends with a whole one.

    A byte that begins a character begins one whatever came before, so only the last 3 bytes are read.

    Args:
        pieces_from_the_end: the text's pieces, the last one first; no more are taken than needed.
    """
    tail = b""
    for piece in pieces_from_the_end:
        tail = (piece[-LONGEST_TAIL:] + tail)[-LONGEST_TAIL:]
        if len(tail) == LONGEST_TAIL:
            break
    for start, first in enumerate(tail):
        beginning = tail[start:]
        if len(beginning) < _character_bytes(first) and all(
            _continues(beginning[:n], byte) for n, byte in enumerate(beginning) if n
        ):
            return beginning
    return b""


def _character_bytes(first: int) -> int:
    """The bytes of a character by its first byte; 0 for a byte that begins none of several bytes."""
    if 0xC2 <= first <= 0xDF:
        return 2
    if 0xE0 <= first <= 0xEF:
        return 3
    return 4 if 0xF0 <= first <= 0xF4 else 0


def _continues(beginning: bytes, byte: int) -> bool:
    """Whether the byte may follow the beginning of a character."""
    low, high = SECOND_BYTES.get(beginning[0], OTHER_BYTES) if len(beginning) == 1 else OTHER_BYTES
    return low <= byte <= high


def readable(data: bytes) -> str:
    """Bytes for display on one line: parts of characters as ``<0xNN>``, control characters as escapes."""
    text = data.decode("utf-8", errors="surrogateescape")  # an undecodable byte 0xNN becomes U+DCNN
    return "".join(_readable_character(character) for character in text)


def _readable_character(character: str) -> str:
    if "\udc80" <= character <= "\udcff":
        return f"<0x{ord(character) - 0xDC00:02X}>"
    return character if character.isprintable() else character.encode("unicode_escape").decode("ascii")

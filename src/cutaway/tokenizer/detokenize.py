"""Ids to text, at once or as they come, never showing half a character.

In: the bytes of tokens. Out: text, in which every maximal invalid sequence became one U+FFFD. The streamed
pieces join to exactly the text of the whole, for any bytes.
Source: the Unicode Standard, section 3.9, "U+FFFD Substitution of Maximal Subparts".
"""

import codecs
from collections.abc import Callable


class StreamingDetokenizer:
    """Text from ids, one id at a time; holds back the bytes of an unfinished character, which are at most 3.

    Args:
        text_bytes: id → the bytes it adds to the text (none for a skipped special token).
    """

    def __init__(self, text_bytes: Callable[[int], bytes]) -> None:
        self._text_bytes = text_bytes
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def push(self, token_id: int) -> str:
        """The text that became certain with this id; may be empty."""
        return self._decoder.decode(self._text_bytes(token_id))

    def flush(self) -> str:
        """End the text: an unfinished character becomes U+FFFD. The next ``push`` begins a new text."""
        rest = self._decoder.decode(b"", final=True)
        self._decoder.reset()
        return rest


def readable(data: bytes) -> str:
    """Bytes for display on one line: parts of characters as ``<0xNN>``, control characters as escapes."""
    text = data.decode("utf-8", errors="surrogateescape")  # an undecodable byte 0xNN becomes U+DCNN
    return "".join(_readable_character(character) for character in text)


def _readable_character(character: str) -> str:
    if "\udc80" <= character <= "\udcff":
        return f"<0x{ord(character) - 0xDC00:02X}>"
    return character if character.isprintable() else character.encode("unicode_escape").decode("ascii")

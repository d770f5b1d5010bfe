"""SentencePiece's precompiled character map: which characters normalization replaces, and by what.

In: the map, as model files have it, and text. Out: normalized text. The map is a double-array trie over UTF-8 bytes,
whose values are places in a list of replacements, each ended by a zero byte:

    4 bytes: n, the size of the trie | n bytes: units of 32 bits | the replacements

A unit's bits 0–7 are the byte that leads to it, bit 8 says that a key ends here, bit 9 widens the offset in bits 10–30
by 8 bits; in a unit that holds a value, bit 31 is set and bits 0–30 are the value.
Source: SentencePiece (``normalizer.cc``); Yata's darts-clone for the trie.
"""

from collections.abc import Iterator

import numpy as np
import regex  # type: ignore[import-untyped]

from cutaway.errors import ModelFileError

HEAD = 4  # bytes that hold the trie's size
LONGEST_REPLACEMENT = 256  # bytes; compatibility normalization makes at most 33 of a character
GRAPHEME_BYTES = 6  # a grapheme of fewer bytes is looked up whole by the ``tokenizers`` package


class CharacterMap:
    """The map of a model file.

    Raises:
        ModelFileError: the bytes are no such map.
    """

    def __init__(self, data: bytes) -> None:
        size = int.from_bytes(data[:HEAD], "little")
        if len(data) < HEAD or size % 4 or not 0 < size <= len(data) - HEAD:
            raise ModelFileError(
                f"the precompiled character map has {len(data)} bytes and a trie of {size}, which must fit and be a "
                "multiple of 4. Convert the model again, or use another file of it."
            )
        self._units: list[int] = np.frombuffer(data, "<u4", size // 4, HEAD).tolist()
        self._replacements = data[HEAD + size :]
        longest = max(map(len, self._replacements.split(b"\0")))
        if longest > LONGEST_REPLACEMENT:
            raise ModelFileError(
                f"the precompiled character map replaces a character by {longest} bytes; it must be at most "
                f"{LONGEST_REPLACEMENT}. Convert the model again, or use another file of it."
            )

    def longest(self, text: str) -> str:
        """The text with the longest match at each place replaced: what SentencePiece does."""
        data = text.encode("utf-8")
        out: list[bytes] = []
        i = copied = 0
        while i < len(data):
            found = max(self._matches(data, i), default=None)
            if found is None:
                i += 1
                while i < len(data) and data[i] & 0xC0 == 0x80:  # to the next character
                    i += 1
            else:
                stop, value = found
                out += (data[copied:i], self._replacement(value))
                i = copied = stop
        return b"".join([*out, data[copied:]]).decode("utf-8", "replace")

    def by_grapheme(self, text: str) -> str:
        """The text with each short grapheme, else each character, replaced if a key begins it; the shortest key's
        replacement stands for all of it: what the ``tokenizers`` package does.
        """
        return "".join(map(self._of_grapheme, regex.findall(r"\X", text)))

    def _of_grapheme(self, grapheme: str) -> str:
        data = grapheme.encode("utf-8")
        whole = self._first(data) if len(data) < GRAPHEME_BYTES else None
        if whole is not None:
            return whole
        parts = ((character, self._first(character.encode("utf-8"))) for character in grapheme)
        return "".join(character if found is None else found for character, found in parts)

    def _first(self, data: bytes) -> str | None:
        match = next(self._matches(data, 0), None)
        return None if match is None else self._replacement(match[1]).decode("utf-8", "replace")

    def _matches(self, data: bytes, start: int) -> Iterator[tuple[int, int]]:
        """(end, value) of the keys that begin at ``start``, the shortest first."""
        units = self._units
        node = _offset(units[0])
        for stop in range(start, len(data)):
            byte = data[stop]
            node ^= byte
            if byte == 0 or node >= len(units) or units[node] & 0x8000_00FF != byte:
                return
            unit = units[node]
            node ^= _offset(unit)
            if unit >> 8 & 1 and node < len(units):
                yield stop + 1, units[node] & 0x7FFF_FFFF

    def _replacement(self, value: int) -> bytes:
        end = self._replacements.find(b"\0", value)
        return self._replacements[value : end if end >= 0 else None]


def _offset(unit: int) -> int:
    return (unit >> 10) << ((unit & 1 << 9) >> 6)

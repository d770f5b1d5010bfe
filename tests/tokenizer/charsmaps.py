"""A writer of SentencePiece's precompiled character maps, for tests: a double-array trie, filled the slow way."""

import struct
from collections.abc import Mapping
from typing import Any

# Some of what NFKC and SentencePiece's own rules do: ligatures, full-width letters, white space, controls, composition.
NMT_LIKE = {
    "ﬁ": "fi", "Ａ": "A", "Ｂ": "B", "\u3000": " ", "\t": " ", "\n": " ", "\u00a0": " ", "\x00": "", "\u200d": "",
    "½": "1⁄2", "e\u0301": "é", "e": "e", "Ⅷ": "VIII", "…": "...", "ย": "ย", "한": "한",
}  # fmt: skip


def charsmap(rules: Mapping[str, str]) -> bytes:
    """The map of these rules."""
    replacements, places = b"", {}
    for key, replacement in rules.items():
        places[key.encode()] = len(replacements)
        replacements += replacement.encode() + b"\0"
    root: dict[int, Any] = {}
    for key, place in places.items():
        node = root
        for byte in key:
            node = node.setdefault(byte, {})
        node[-1] = place
    units: dict[int, int] = {}
    bases: set[int] = set()

    def place_children(node: Mapping[int, Any], position: int) -> int:
        """The unit's offset bits: where its children are, so that each child's place is free; and the children."""
        labels = [max(label, 0) for label in node]  # a value's place is the one of byte 0
        base = next(
            base
            for base in range(1, 1 << 20)
            if base not in bases and all((base ^ label) not in units and base ^ label for label in labels)
        )
        bases.add(base)
        for label in labels:
            units[base ^ label] = 0  # taken
        for label, child in node.items():
            if label < 0:
                units[base] = child | 1 << 31
            else:
                at = base ^ label
                units[at] = label | (1 << 8 if -1 in child else 0) | place_children(child, at)
        return (base ^ position) << 10

    units[0] = 0
    units[0] = place_children(root, 0)
    size = max(units) + 256
    trie = struct.pack(f"<{size}I", *(units.get(i, 0) for i in range(size)))
    return struct.pack("<I", len(trie)) + trie + replacements

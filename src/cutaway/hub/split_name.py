"""The names of a GGUF in parts: ``NAME-00001-of-0000N.gguf`` to ``NAME-0000N-of-0000N.gguf``.

In: a file's name. Out: which part of how many it is, and the names of the others. Source: llama.cpp, ``gguf-split``.
"""

import re
from dataclasses import dataclass
from typing import Final

_PART: Final = re.compile(
    r"(?P<before>(?P<stem>.*)-)(?P<number>\d{5})(?P<behind>-of-(?P<count>\d{5})\.gguf)", re.DOTALL | re.IGNORECASE
)


@dataclass(frozen=True)
class SplitName:
    """The name of part ``number`` of ``count``; ``whole`` is the name that they share."""

    whole: str
    number: int
    count: int
    before: str
    behind: str

    def part(self, number: int) -> str:
        """The name of another part."""
        return f"{self.before}{number:05}{self.behind}"


def split_name(name: str) -> SplitName | None:
    """The name, taken apart; None where it is not one of a part."""
    match = _PART.fullmatch(name)
    if match is None:
        return None
    whole = f"{match['stem']}.gguf"
    return SplitName(whole, int(match["number"]), int(match["count"]), match["before"], match["behind"])

"""Special tokens are cut out of the text before it is cut into words, and become their ids at once.

In: text. Out: runs of text and special tokens, in order. At each place the longest special token wins.
"""

import re
from collections.abc import Collection, Iterator


class SpecialTokens:
    """The search for special tokens: by their first two characters, then by their lengths, the longest first.

    Args:
        control: texts that are found as they are spelled, mark by mark.
        user_defined: texts that are found in marked text, too.
    """

    def __init__(self, control: Collection[str], user_defined: Collection[str]) -> None:
        self._control = frozenset(control)
        self._user_defined = frozenset(user_defined)
        texts = self._control | self._user_defined
        lengths: dict[str, set[int]] = {}
        for text in texts:
            lengths.setdefault(text[:2], set()).add(len(text))
        self._lengths = {beginning: sorted(found, reverse=True) for beginning, found in lengths.items()}
        first = "".join(sorted({text[0] for text in texts}))
        self._first = re.compile(f"[{re.escape(first)}]") if first else None

    def split(self, marked: str, plain: str) -> Iterator[tuple[str, bool]]:
        """Cut text into (run of plain text, is it a special token?) in order; empty runs are left out.

        Args:
            marked: the text with marks in place of characters that the user wrote (provenance.py), or ``plain``.
            plain: the text, character for character.
        """
        start = 0
        for match in self._first.finditer(plain) if self._first else ():
            i = match.start()
            if i < start:  # within the special token before
                continue
            for n in (*self._lengths.get(plain[i : i + 2], ()), *self._lengths.get(plain[i], ())):
                if marked[i : i + n] in self._control or plain[i : i + n] in self._user_defined:
                    if i > start:
                        yield plain[start:i], False
                    yield plain[i : i + n], True
                    start = i + n
                    break
        if start < len(plain):
            yield plain[start:], False

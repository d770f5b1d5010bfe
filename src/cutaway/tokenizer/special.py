"""Special tokens are cut out of the text before it is cut into words, and become their ids at once.

In: text. Out: runs of text and ids of special tokens, in order. At each place the longest special token wins.
"""

import re
from collections.abc import Callable, Iterable, Iterator


def special_pattern(texts: Iterable[str], expression: Callable[[str], str] = re.escape) -> "re.Pattern[str] | None":
    """The pattern that finds special tokens, longest first; None if there are none.

    Args:
        texts: the tokens' texts.
        expression: a token's text → the regular expression that finds it.
    """
    longest_first = sorted(texts, key=len, reverse=True)
    return re.compile("|".join(map(expression, longest_first))) if longest_first else None


def split_special(text: str, pattern: "re.Pattern[str] | None") -> Iterator[tuple[str, bool]]:
    """Cut text into (run, is it a special token?) in order; empty runs are left out."""
    start = 0
    for match in pattern.finditer(text) if pattern else ():
        if match.start() > start:
            yield text[start : match.start()], False
        yield match.group(), True
        start = match.end()
    if start < len(text):
        yield text[start:], False

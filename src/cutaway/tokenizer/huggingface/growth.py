"""How much longer a text may become by what a ``tokenizer.json`` replaces in it.

In: a text before and after. Out: nothing, or an error: a few short replacements, one after the other, could make
gigabytes of a line.
"""

from typing import Final

from cutaway.errors import ModelFileError

MOST_GROWTH: Final = 32
"""Compatibility normalization makes 18 characters of one, and nothing makes more."""
ALWAYS_ALLOWED: Final = 4096  # characters, however short the text is


def longest_rewrite(text: str) -> int:
    """The characters that may become of a text."""
    return ALWAYS_ALLOWED + MOST_GROWTH * len(text)


def check_length(rewritten: str, longest: int, what: str) -> None:
    """Raises ModelFileError for a text that has become longer."""
    if len(rewritten) > longest:
        raise ModelFileError(
            f"the {what} of tokenizer.json makes a text longer than {longest} characters of one that may become so "
            "long at most. The file is damaged or hostile: use another file of this model."
        )

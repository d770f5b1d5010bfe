"""Pre-tokenization: text is cut into words by a regular expression, and no token ever crosses the edge of a
word.

In: the name in a file's ``tokenizer.ggml.pre`` and text. Out: words whose concatenation is the text.
"""

import warnings

import regex  # type: ignore[import-untyped]

from cutaway.errors import ModelFileError

# Contractions, words, numbers and punctuation with one leading space, then white space; the last blank before
# a word is left to that word. Source: the GPT-2 release.
GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"

# SmolLM first cuts out every single digit, then cuts what lies between digits as GPT-2 does. In one pass that
# is the GPT-2 pattern with single digits, in which white space before a digit counts as white space at the
# end.
SMOLLM = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+|\s+(?![^\s\p{N}])|\s+"

PATTERNS: dict[str, str] = {"gpt-2": GPT2, "smollm": SMOLLM}


def word_pattern(name: str | None) -> "regex.Pattern[str]":
    """The pattern whose matches are the words, by the name that the model file gives.

    Raises:
        ModelFileError: the name is not one of ``PATTERNS``.
    """
    if name is None:
        warnings.warn(
            "the model file doesn't name its pre-tokenizer (tokenizer.ggml.pre); gpt-2 is assumed. If that "
            "is wrong, the model reads wrong pieces and answers badly: convert the model again.",
            stacklevel=3,
        )
        name = "gpt-2"
    if name not in PATTERNS:
        raise ModelFileError(
            f"tokenizer.ggml.pre is {name!r}; known pre-tokenizers: {', '.join(sorted(PATTERNS))}. "
            "Use a model with one of these."
        )
    return regex.compile(PATTERNS[name])

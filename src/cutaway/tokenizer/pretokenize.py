"""Pre-tokenization: text is cut into words by a regular expression, and no token ever crosses the edge of a
word.

In: the name in a file's ``tokenizer.ggml.pre``. Out: a pattern for the ``regex`` package; its matches are the words,
which join to the text.
"""

import warnings
from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

from cutaway.errors import ModelFileError

# Contractions, words, numbers and punctuation with one leading space, then white space; the last blank before
# a word is left to that word. Source: the GPT-2 release.
GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"

# SmolLM first cuts out every single digit, then cuts what lies between digits as GPT-2 does. In one pass that
# is the GPT-2 pattern with single digits, in which white space before a digit counts as white space at the
# end.
SMOLLM = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+|\s+(?![^\s\p{N}])|\s+"

# Qwen 2: contractions in either case, words with any one character before them that is neither letter, digit nor
# line end, single digits, punctuation with the line ends behind it, line ends with the white space before them.
# Source: the tokenizer.json of the Qwen 2 release. Its tokenizer also composes characters first (normal form C);
# that is not done here, so that decoding gives the text that was encoded.
QWEN2 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)

# Llama 3: the same with up to three digits. Source: the tokenizer.json of the Llama 3 release.
LLAMA3 = QWEN2.replace(r"|\p{N}|", r"|\p{N}{1,3}|")


class PreTokenizer(NamedTuple):
    """What a name in ``tokenizer.ggml.pre`` means.

    ``pattern``: its matches are the words. ``ignores_merges``: a word that is a token is this token, whatever
    merges would make of it. ``begins_with_bos``: whether text begins with BOS where the file doesn't say.
    """

    pattern: str
    ignores_merges: bool = False
    begins_with_bos: bool = False


PRE_TOKENIZERS: Mapping[str, PreTokenizer] = MappingProxyType(
    {
        "gpt-2": PreTokenizer(GPT2),
        "smollm": PreTokenizer(SMOLLM),
        "qwen2": PreTokenizer(QWEN2),
        "llama-bpe": PreTokenizer(LLAMA3, ignores_merges=True, begins_with_bos=True),
    }
)


def pre_tokenizer(name: str | None) -> PreTokenizer:
    """The pre-tokenizer by the name that the model file gives.

    Raises:
        ModelFileError: the name is not one of ``PRE_TOKENIZERS``.
    """
    if name is None:
        warnings.warn(
            "the model file doesn't name its pre-tokenizer (tokenizer.ggml.pre); gpt-2 is assumed. If that "
            "is wrong, the model reads wrong pieces and answers badly: convert the model again.",
            stacklevel=3,
        )
        name = "gpt-2"
    if name not in PRE_TOKENIZERS:
        raise ModelFileError(
            f"tokenizer.ggml.pre is {name!r}; known pre-tokenizers: {', '.join(sorted(PRE_TOKENIZERS))}. "
            "Use a model with one of these."
        )
    return PRE_TOKENIZERS[name]

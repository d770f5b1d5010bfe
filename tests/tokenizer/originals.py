"""Pre-tokenizers as the models' own tokenizer.json files compose them, for the `tokenizers` package."""

from typing import Any

import tokenizers
from tokenizers import pre_tokenizers


def split(*patterns: str) -> Any:
    """The pre-tokenizer of the `tokenizers` package that isolates the matches of each pattern."""
    splits = [pre_tokenizers.Split(tokenizers.Regex(pattern), behavior="isolated") for pattern in patterns]
    return pre_tokenizers.Sequence([*splits, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])


GPT2_WORDS = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
CL100K = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
    r"|\s+(?!\S)|\s+"
)
O200K = (
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
    r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
    r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)

# The pre-tokenizers as the models' own tokenizer.json files compose them, where that is another way than ours, and
# their patterns for another regular expression engine.
ORIGINALS = {
    "gpt-2": GPT2_WORDS,
    "smollm": pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), GPT2_WORDS]),
    "falcon": pre_tokenizers.Sequence(
        [
            pre_tokenizers.Punctuation(behavior="contiguous"),
            GPT2_WORDS,
            pre_tokenizers.Split(tokenizers.Regex("[0-9][0-9][0-9]"), behavior="isolated"),
        ]
    ),
    "deepseek-coder": pre_tokenizers.Sequence(
        [
            *(
                pre_tokenizers.Split(tokenizers.Regex(pattern), behavior="isolated")
                for pattern in ("[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", "[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+")
            ),
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    ),
    "llama-bpe": split(CL100K),
    "dbrx": split(CL100K),
    "qwen2": split(CL100K.replace("{1,3}", "")),
    "qwen35": split(
        CL100K.replace("{1,3}", "")
        .replace(r"?\p{L}+", r"?[\p{L}\p{M}]+")
        .replace(r"\s\p{L}\p{N}", r"\s\p{L}\p{M}\p{N}")
    ),
    "gpt-4o": split(O200K),
    "tekken": split(O200K.replace("(?i:'s|'t|'re|'ve|'m|'ll|'d)?", "").replace("{1,3}", "")),
    "bloom": split(r" ?[^(\s|[.,!?…。，、।۔،])]+"),
    "deepseek-v3": split(
        r"\p{N}{1,3}",
        "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+",
        r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*"
        r"|\s*[\r\n]+|\s+(?!\S)|\s+",
    ),
}

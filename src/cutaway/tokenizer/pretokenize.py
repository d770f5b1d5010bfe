"""The named pre-tokenizers of GGUF files: how text is cut into words before any merge.

In: the name in a file's ``tokenizer.ggml.pre``. Out: patterns for the ``regex`` package. The first cuts the text into
its matches and what lies between them, the second cuts these pieces in the same way, and so on.

A name stands for the ``pre_tokenizer`` of one model's ``tokenizer.json``; the names are those of llama.cpp's converter
(``convert_hf_to_gguf_update.py``), and where it changes a model's own pattern, the model's own stands here. What such
a file does to characters before it cuts (Qwen and Command R compose them to normal form C) is not done to texts for
GGUF files, so that decoding gives the text that was encoded.
"""

import warnings
from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

from cutaway.errors import ModelFileError
from cutaway.tokenizer.byte_alphabet import to_byte_alphabet
from cutaway.tokenizer.words import RewriteStep, WordStep, isolate

ASSUMED = "gpt-2"
NO_NAME = (
    "the model file doesn't name its pre-tokenizer (tokenizer.ggml.pre); gpt-2 is assumed. If that is wrong, the model "
    "reads wrong pieces and answers badly: convert the model again."
)

# Contractions, words, numbers and punctuation with one leading space, then white space; the last blank before
# a word is left to that word. Source: the GPT-2 release.
GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"

DIGIT = r"\p{N}"
DIGITS_BY_THREE = r"\p{N}{1,3}"
CONTRACTION = "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
WHITE_SPACE = r"\s*[\r\n]+|\s+(?!\S)|\s+"  # line ends with the white space before them; then as GPT-2

# Llama 3, as OpenAI's cl100k: contractions in either case, words with any one character before them that is neither
# letter, digit nor line end, numbers of at most three digits, punctuation with the line ends behind it.
LLAMA3 = rf"{CONTRACTION}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|{DIGITS_BY_THREE}| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|{WHITE_SPACE}"
QWEN2 = LLAMA3.replace(DIGITS_BY_THREE, DIGIT)

# Qwen 3.5: marks belong to the letters before them.
QWEN35 = (
    rf"{CONTRACTION}|[^\r\n\p{{L}}\p{{N}}]?[\p{{L}}\p{{M}}]+|{DIGIT}| ?[^\s\p{{L}}\p{{M}}\p{{N}}]+[\r\n]*|{WHITE_SPACE}"
)
SEED_CODER = rf"{CONTRACTION}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|{DIGIT}| ?[^\s\p{{L}}\p{{N}}\r\n]+|{WHITE_SPACE}"
BAILING = r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+"

# OpenAI's o200k: a word is a run of capitals and then of small letters, so that "GmbHs" is cut where a new one begins.
UPPER, LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
BEFORE_WORD = r"[^\r\n\p{L}\p{N}]?"
GPT4O = (
    rf"{BEFORE_WORD}{UPPER}*{LOWER}+{CONTRACTION}?|{BEFORE_WORD}{UPPER}+{LOWER}*{CONTRACTION}?"
    rf"|{DIGITS_BY_THREE}| ?[^\s\p{{L}}\p{{N}}]+[\r\n/]*|{WHITE_SPACE}"
)
TEKKEN = GPT4O.replace(f"{CONTRACTION}?", "").replace(DIGITS_BY_THREE, DIGIT)

# What the `tokenizers` package takes for punctuation: ASCII's symbols too, and of Unicode's what an old version had.
# Some became it later, and two are it no longer.
NEWER_PUNCTUATION = (
    "\u061d\u09fd\u0a76\u0c77\u0c84\u1b4e\u1b4f\u1b7d-\u1b7f\u2e43-\u2e4f\u2e52-\u2e5d\u2e60-\u2e63\U00010d6e"
    "\U00010ead\U00010ed0\U00010f55-\U00010f59\U00010f86-\U00010f89\U000113d4\U000113d5\U000113d7\U000113d8"
    "\U0001144b-\U0001144f\U0001145a\U0001145b\U0001145d\U00011660-\U0001166c\U000116b9\U0001183b"
    "\U00011944-\U00011946\U000119e2\U00011a3f-\U00011a46\U00011a9a-\U00011a9c\U00011a9e-\U00011aa2"
    "\U00011b00-\U00011b09\U00011be1\U00011c41-\U00011c45\U00011c70\U00011c71\U00011ef7\U00011ef8"
    "\U00011f43-\U00011f4f\U00011fff\U00012ff1\U00012ff2\U00016d6d-\U00016d6f\U00016e97-\U00016e9a\U00016fe2"
    "\U0001e5ff\U0001e95e\U0001e95f"
)
FORMER_PUNCTUATION = "\u166d\U000111c9"
PUNCTUATION = rf"(?![{NEWER_PUNCTUATION}])[\p{{P}}$+<=>^~|`{FORMER_PUNCTUATION}]"

FALCON = (rf"(?:{PUNCTUATION})+", GPT2, "[0-9][0-9][0-9]")
BLOOM = r" ?[^(\s|.,!?…。，、।۔،)]+"

CJK = "[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+"
DEEPSEEK_CODER = (r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", CJK, DIGIT)

# DeepSeek LLM lists the letters that have case (and some other scripts' ones), and ASCII, full-width and general
# punctuation.
CASED_LETTERS = (
    "A-Za-z\xb5\xc0-\xd6\xd8-\xf6\xf8-\u01ba\u01bc-\u01bf\u01c4-\u0293\u0295-\u02af\u0370-\u0373\u0376\u0377"
    "\u037b-\u037d\u037f\u0386\u0388-\u038a\u038c\u038e-\u03a1\u03a3-\u03f5\u03f7-\u0481\u048a-\u052f"
    "\u0531-\u0556\u10a0-\u10c5\u13a0-\u13f5\u13f8-\u13fd\u1c90-\u1cba\u1cbd-\u1cbf\u1d00-\u1d2b\u1d6b-\u1d77"
    "\u1d79-\u1d9a\u1e00-\u1f15\u1f18-\u1f1d\u1f20-\u1f45\u1f48-\u1f4d\u1f50-\u1f57\u1f59\u1f5b\u1f5d"
    "\u1f5f-\u1f7d\u1f80-\u1fb4\u1fb6-\u1fbc\u1fbe\u1fc2-\u1fc4\u1fc6-\u1fcc\u1fd0-\u1fd3\u1fd6-\u1fdb"
    "\u1fe0-\u1fec\u1ff2-\u1ff4\u1ff6-\u1ffc\u2102\u2107\u210a-\u2113\u2115\u2119-\u211d\u2124\u2126\u2128"
    "\u212a-\u212d\u212f-\u2134\u2139\u213c-\u213f\u2145-\u2149\u214e\u2183\u2184\u2c00-\u2c7b\u2c7e-\u2ce4"
    "\u2ceb-\u2cee\u2cf2\u2cf3\ua640-\ua66d\ua680-\ua69b\ua722-\ua76f\ua771-\ua787\ua78b-\ua78e\uab70-\uabbf"
    "\ufb00-\ufb06\ufb13-\ufb17\uff21-\uff3a\uff41-\uff5a\U00010400-\U0001044f\U000104b0-\U000104d3"
    "\U000104d8-\U000104fb\U00010c80-\U00010cb2\U00010cc0-\U00010cf2\U000118a0-\U000118df"
    "\U0001e900-\U0001e943"
)
# Groups of three from the right. The originals say \b; in Oniguruma, the engine that they are read by, its letters are
# these: with the fractions and powers of Latin-1, without the joiners.
GROUPS_OF_DIGITS = r"\d{1,3}(?=(?:\d{3})*(?:[\u200c\u200d]|(?![\w²³¹¼½¾])))"
DEEPSEEK_LLM = (
    r"[\r\n]",
    rf"\s?[{CASED_LETTERS}]+",
    "\\s?[!-/:-~\uff01-\uff0f\uff1a-\uff5e\u2018-\u201f\u3000-\u3002]+",
    r"\s+$",
    CJK,
    r"\p{N}+",
)
DEEPSEEK_V3 = (
    DIGITS_BY_THREE,
    "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+",
    r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*"""
    rf"|{WHITE_SPACE}",
)


class PreTokenizer(NamedTuple):
    """What a name in ``tokenizer.ggml.pre`` means.

    ``patterns``: cut the text, one after the other. ``ignores_merges``: a word that is a token is this token, whatever
    merges would make of it. ``begins_with_bos``: whether text begins with BOS where the file doesn't say.
    """

    patterns: tuple[str, ...]
    ignores_merges: bool = False
    begins_with_bos: bool = False

    def steps(self) -> list[WordStep]:
        """The steps that make words in the byte alphabet of a text."""
        return [*map(isolate, self.patterns), RewriteStep(to_byte_alphabet)]


_FAMILIES: Mapping[PreTokenizer, tuple[str, ...]] = {
    PreTokenizer((GPT2,)): (
        "gpt-2",
        "phi-2",
        "mpt",
        "olmo",
        "jais",
        "gigachat",
        "exaone4",
        "trillion",
        "granite-docling",
        "a.x-4.0",
        "mellum",
        "jina-es",
        "jina-de",
        "jina-v2-es",
        "jina-v2-de",
        "modern-bert",
    ),
    PreTokenizer((DIGIT, GPT2)): (
        "smollm",
        "starcoder",
        "refact",
        "command-r",
        "codeshell",
        "exaone",
        "minerva-7b",
        "mellum2",
    ),
    PreTokenizer((LLAMA3,), ignores_merges=True, begins_with_bos=True): (
        "llama-bpe",
        "llama3",
        "llama-v3",
        "falcon3",
        "falcon-h1",
        "pixtral",
        "midm-2.0",
        "lfm2",
    ),
    PreTokenizer((LLAMA3,)): ("dbrx", "smaug-bpe", "glm4", "chatglm-bpe"),
    PreTokenizer((QWEN2,)): (
        "qwen2",
        "deepseek-r1-qwen",
        "kormo",
        "megrez",
        "stablelm2",
        "hunyuan",
        "solar-open",
        "grok-2",
    ),
    PreTokenizer((QWEN35,)): ("qwen35",),
    PreTokenizer((SEED_CODER,)): ("seed-coder",),
    PreTokenizer((BAILING,)): ("bailingmoe", "bailingmoe2", "llada-moe"),
    PreTokenizer((GPT4O,)): ("gpt-4o", "llama4", "kanana2", "minimax-m2"),
    PreTokenizer((TEKKEN,), ignores_merges=True, begins_with_bos=True): ("tekken",),
    PreTokenizer((GROUPS_OF_DIGITS, GPT4O)): ("tiny_aya",),
    PreTokenizer(FALCON): ("falcon",),
    PreTokenizer((BLOOM,)): ("bloom", "poro-chat", "gpt3-finnish"),
    PreTokenizer((BLOOM, DIGIT)): ("viking",),
    PreTokenizer(DEEPSEEK_LLM): ("deepseek-llm",),
    PreTokenizer(DEEPSEEK_CODER): ("deepseek-coder",),
    PreTokenizer(DEEPSEEK_V3): ("deepseek-v3", "hunyuan-dense", "joyai-llm"),
}

PRE_TOKENIZERS: Mapping[str, PreTokenizer] = MappingProxyType(
    {name: known for known, names in _FAMILIES.items() for name in names}
)


def pre_tokenizer(name: str | None) -> PreTokenizer:
    """The pre-tokenizer by the name that the model file gives; where it gives none, GPT-2's, with a warning.

    Raises:
        ModelFileError: the name is not one of ``PRE_TOKENIZERS``.
    """
    if name is None:
        warnings.warn(NO_NAME, stacklevel=3)
        name = ASSUMED
    if name not in PRE_TOKENIZERS:
        raise ModelFileError(
            f"tokenizer.ggml.pre is {name!r:.80}; known pre-tokenizers: {', '.join(sorted(PRE_TOKENIZERS))}. "
            "Use a model with one of these."
        )
    return PRE_TOKENIZERS[name]

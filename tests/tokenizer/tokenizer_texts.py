"""Strategies for texts that tokenizers get wrong: odd white space, contractions, digits, rare scripts."""

import random
import unicodedata
from collections.abc import Collection, Sequence

from hypothesis import strategies as st

LONG = "CUTAWAY_LONG_TESTS"

# Bytes that SmolLM2's vocabulary has no token for, as far as UTF-8 text can contain them.
SMOLLM2_LACKS = frozenset([0x04, 0x06, 0x13, 0x14, 0x16, 0x1D, 0xF1, 0xF2])

# fmt: off
_fragments = st.sampled_from([
    "'s", "'S", "'ll", "'", "n't", " ", "  ", "\t", "\n", "\r\n", "\n\n", "\u00a0", "\u2029 ", "\u3000",
    "\u0085", "\x1c", "the", " The", "naïve", "Äpfel", "нещо", "中文", "한국어", "हिन्दी", "ไทย", "עברית",
    "🦙", "e\u0301", "😀", "👩\u200d👩\u200d👧", "\ufeff", "\x00", "1", "42", "٣", "½", "Ⅷ", "3.14", " 7",
    "#include <a.h>", "_x", "--", "...", "https://x.y/z?q=1", "=" * 9, "a" * 30,
])
# fmt: on


def assigned(text: str) -> bool:
    """Is every character in this Python's Unicode? About newer characters libraries differ."""
    return all(unicodedata.category(character) not in ("Cn", "Cs") for character in text)


def in_every_unicode(text: str) -> bool:
    """Is every character in Unicode since long? About newer ones, the versions of libraries differ."""
    return all(unicodedata.ucd_3_2_0.category(character) != "Cn" for character in text)


texts = st.one_of(
    st.lists(_fragments, max_size=12).map("".join),
    st.text(st.characters(exclude_categories=["Cs", "Cn"]), max_size=40),
    st.lists(
        st.one_of(_fragments, st.text(st.characters(exclude_categories=["Cs", "Cn"]), max_size=4)),
        max_size=10,
    ).map("".join),
).filter(assigned)

smollm2_texts = texts.filter(lambda text: SMOLLM2_LACKS.isdisjoint(text.encode()))


def random_text(noise: random.Random, specials: Sequence[str] = (), lacking: Collection[int] = ()) -> str:
    """A text of runs: each from one place of Unicode, ordinary words and marks, special tokens, or bytes as far as they
    are UTF-8.

    Args:
        lacking: bytes that the vocabulary has no token for; characters with one are left out.
    """
    runs: list[str] = []
    for _ in range(noise.randrange(1, 12)):
        kind = noise.randrange(6)
        if kind == 0:
            runs.append(noise.choice([" ", "\n", "\t", "'s", "'", " 1", "23", ". ", *specials]) * noise.randrange(1, 6))
        elif kind == 1:
            runs.append("".join(noise.choices(" etaoinshrdlu'ETA012\n", k=noise.randrange(1, 30))))
        elif kind == 2:
            runs.append(noise.randbytes(noise.randrange(1, 40)).decode("utf-8", "ignore"))
        else:
            start = noise.randrange(0x20, [0x7F, 0x800, 0x3400, 0x20000][noise.randrange(4)])
            runs.append("".join(chr(start + noise.randrange(64)) for _ in range(noise.randrange(1, 8))))
    text = "".join(character for run in runs for character in run if assigned(character))
    return "".join(character for character in text if not set(lacking) & set(character.encode()))

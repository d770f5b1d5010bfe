"""Strategies for texts that tokenizers get wrong: odd white space, contractions, digits, rare scripts."""

import unicodedata

from hypothesis import strategies as st

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


texts = st.one_of(
    st.lists(_fragments, max_size=12).map("".join),
    st.text(st.characters(exclude_categories=["Cs", "Cn"]), max_size=40),
    st.lists(
        st.one_of(_fragments, st.text(st.characters(exclude_categories=["Cs", "Cn"]), max_size=4)),
        max_size=10,
    ).map("".join),
).filter(assigned)

smollm2_texts = texts.filter(lambda text: SMOLLM2_LACKS.isdisjoint(text.encode()))

"""The byte alphabet is a bijection, and equal to the one of the `tokenizers` package."""

import tokenizers.pre_tokenizers
from hypothesis import given
from hypothesis import strategies as st

from cutaway.tokenizer.byte_alphabet import BYTE_TO_CHARACTER, CHARACTER_TO_BYTE, piece_bytes


def test_same_characters_as_the_reference() -> None:
    assert set(BYTE_TO_CHARACTER) == set(tokenizers.pre_tokenizers.ByteLevel.alphabet())
    assert len(CHARACTER_TO_BYTE) == 256


@given(st.text())
def test_same_spelling_as_the_reference(text: str) -> None:
    pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    spelled = "".join(piece for piece, _ in pre_tokenizer.pre_tokenize_str(text))
    assert "".join(BYTE_TO_CHARACTER[byte] for byte in text.encode()) == spelled
    assert piece_bytes(spelled) == text.encode()


def test_a_piece_outside_the_alphabet_is_its_own_text() -> None:
    assert piece_bytes("a b") == b"a b"
    assert piece_bytes("▁Ö") == "▁Ö".encode()

"""The GPT-2 byte alphabet: the 256 byte values as 256 printable characters, so that any bytes can be written
as text.

In: bytes, or a vocabulary piece in this alphabet. Out: the other form. Byte-level vocabularies store their
pieces so. Source: Radford et al., "Language Models are Unsupervised Multitask Learners" (2019), with the code
released beside it.
"""

PRINTABLE_BYTES = frozenset([*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)])


def _alphabet() -> str:
    """256 characters, indexed by byte: printable Latin-1 as itself, the others as U+0100, U+0101, … in byte
    order.
    """
    others = iter(range(0x100, 0x200))
    return "".join(chr(byte if byte in PRINTABLE_BYTES else next(others)) for byte in range(256))


BYTE_TO_CHARACTER: str = _alphabet()
CHARACTER_TO_BYTE: dict[str, int] = {character: byte for byte, character in enumerate(BYTE_TO_CHARACTER)}


_ASCII = {byte: BYTE_TO_CHARACTER[byte] for byte in range(0x80)}


def to_byte_alphabet(text: str) -> str:
    """The text's UTF-8 bytes, each as its character."""
    if text.isascii():
        return text.translate(_ASCII)
    return "".join([BYTE_TO_CHARACTER[byte] for byte in text.encode("utf-8")])


def piece_bytes(piece: str) -> bytes:
    """The bytes that a vocabulary piece stands for.

    A piece with a character from outside the alphabet was not written in it; it stands for its own UTF-8.
    """
    try:
        return bytes([CHARACTER_TO_BYTE[character] for character in piece])
    except KeyError:
        return piece.encode("utf-8")

"""Text that can be encoded: any Unicode text without lone surrogates. All text from outside passes here."""

from cutaway.errors import InvalidRequestError


def check_legal(text: str, field: str) -> None:
    """Refuse text with a lone surrogate: half of a UTF-16 pair, which is no character and has no UTF-8 form.

    Raises:
        InvalidRequestError: with the field and the position.
    """
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise InvalidRequestError(
            f"{field} has a lone surrogate, U+{ord(text[error.start]):04X}, at position {error.start}; "
            "it is half a character: send the whole pair or leave it out",
            field=field,
        ) from None

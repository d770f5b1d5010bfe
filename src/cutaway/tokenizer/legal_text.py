"""Text that can be encoded: any Unicode text without lone surrogates. All text from outside passes here."""

from typing import Any

from cutaway.errors import InvalidRequestError


def check_legal(text: Any, field: str) -> None:
    """Refuse what is no text, and text with a lone surrogate: half of a UTF-16 pair, which is no character and has no
    UTF-8 form.

    Raises:
        InvalidRequestError: with the field, and the position of a surrogate.
    """
    if not isinstance(text, str):
        raise InvalidRequestError(f"{field} is {type(text).__name__}; it must be a text", field=field)
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise InvalidRequestError(
            f"{field} has a lone surrogate, U+{ord(text[error.start]):04X}, at position {error.start}; "
            "it is half a character: send the whole pair or leave it out",
            field=field,
        ) from None

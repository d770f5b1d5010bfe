"""JSON as it comes in: strict and bounded.

In: the bytes of a body. Out: Python values, or an ApiError that says what is wrong and where.
"""

import json
from typing import Any, Final

from cutaway.server.http.errors import ApiError
from cutaway.tokenizer.strict_json import finite, no_constant, once

MOST_DEPTH: Final = 64
"""Of lists and objects within each other."""


def parse_json(body: bytes) -> Any:
    """The value of a body; ApiError 400 for what is no JSON, or nested too deeply."""
    try:
        value = json.loads(
            body.decode("utf-8"), parse_constant=no_constant, parse_float=finite, object_pairs_hook=_object
        )
    except UnicodeDecodeError as error:
        raise ApiError(
            400, f"the body is no UTF-8: byte {error.start} is {body[error.start]:#04x}. Encode JSON as UTF-8."
        ) from None
    except RecursionError:
        raise _too_deep() from None
    except ValueError as error:
        raise ApiError(400, f"the body is no JSON: {error}. Send one JSON object.", code="invalid_json") from None
    if _deeper(value, MOST_DEPTH):
        raise _too_deep()
    return value


def _too_deep() -> ApiError:
    return ApiError(
        400, f"the body has lists or objects nested more than {MOST_DEPTH} levels deep, the limit. Send a flatter one."
    )


def _deeper(value: Any, most: int) -> bool:
    """Whether containers are nested more than so many levels; level by level, so that no depth is too much for it."""
    level = [value] if isinstance(value, dict | list) else []
    for _ in range(most):
        if not level:
            return False
        level = [
            child
            for each in level
            for child in (each.values() if isinstance(each, dict) else each)
            if isinstance(child, dict | list)
        ]
    return bool(level)


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = once(pairs)
    for key in found:
        if not key.isascii() and any("\ud800" <= character <= "\udfff" for character in key):
            raise ValueError(f"the key {key[:100]!r} has half a character, a lone surrogate")
    return found

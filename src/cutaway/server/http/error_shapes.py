"""Which shape an error has: that of the API whose path was asked.

In: an error, a path. Out: the reply. An error within a stream has the same shape.
Source: Anthropic's API reference, "Errors": ``{"type": "error", "error": {"type", "message"}}``.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

from fastapi.responses import Response

from cutaway.server.http.errors import ApiError
from cutaway.server.http.write_json import json_bytes

ANTHROPIC_PATH: Final = "/v1/messages"
ANTHROPIC_KINDS: Final[Mapping[int, str]] = MappingProxyType(
    {
        401: "authentication_error",
        403: "permission_error",
        404: "not_found_error",
        413: "request_too_large",
        429: "rate_limit_error",
        500: "api_error",
        503: "overloaded_error",
    }
)
"""Status → ``type``; of the others it is "invalid_request_error"."""


def is_anthropics(path: str) -> bool:
    """Whether a path belongs to Anthropic's API."""
    return path == ANTHROPIC_PATH or path.startswith(f"{ANTHROPIC_PATH}/")


def anthropic_body(error: ApiError) -> dict[str, Any]:
    """The error in Anthropic's shape. It has no field for the parameter: the message names it."""
    kind = ANTHROPIC_KINDS.get(error.status_code, "invalid_request_error")
    return {"type": "error", "error": {"type": kind, "message": error.named_message()}}


def error_response(error: ApiError, path: str) -> Response:
    """The reply with status and headers."""
    body = anthropic_body(error) if is_anthropics(path) else error.body()
    return Response(json_bytes(body), error.status_code, error.headers, "application/json")

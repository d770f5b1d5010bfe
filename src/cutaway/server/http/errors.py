"""Errors in OpenAI's shape: a status, and what is wrong with which parameter.

In: errors of the engine, of the request's shape, of the router. Out:
``{"error": {"message", "type", "param", "code"}}``.
The message states value, limit and remedy; ``param`` is the path of the field, as ``messages[0].content``.
"""

import logging
from collections.abc import Mapping, Sequence
from math import ceil
from typing import Any

from fastapi.exceptions import HTTPException, RequestValidationError
from fastapi.requests import Request
from fastapi.responses import Response

from cutaway.errors import CapacityError, CutawayError, InvalidRequestError, QueueFullError
from cutaway.sampling.params_checks import shown
from cutaway.server.http.write_json import json_bytes

KINDS: Mapping[int, str] = {
    401: "authentication_error",
    404: "not_found_error",
    429: "rate_limit_error",
    499: "client_closed_request",
    500: "server_error",
    501: "not_implemented_error",
    503: "service_unavailable_error",
}
"""Status → ``type``; of the others it is "invalid_request_error"."""


class ApiError(HTTPException):
    """An answer that is an error."""

    def __init__(
        self,
        status: int,
        message: str,
        param: str | None = None,
        code: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        """param: the path of the field. code: a word for programs."""
        super().__init__(status, message, dict(headers) if headers else None)
        self.message, self.param, self.code = message, param, code

    def body(self) -> dict[str, Any]:
        """The reply."""
        kind = KINDS.get(self.status_code, "invalid_request_error")
        return {"error": {"message": self.message, "type": kind, "param": self.param, "code": self.code}}

    def response(self) -> Response:
        """The reply with status and headers."""
        return Response(json_bytes(self.body()), self.status_code, self.headers, "application/json")


def loading() -> ApiError:
    """The model is not there yet."""
    return ApiError(503, "the model is being loaded. Try again in a moment.", None, "loading", {"Retry-After": "1"})


def shutting_down() -> ApiError:
    """The server ends, and with it what still runs."""
    return ApiError(503, "the server is shutting down. Send the request to another, or again later.", None, "shutdown")


def from_cutaway(error: BaseException) -> ApiError:
    """An error of the engine as one of HTTP. What is nobody's input is told in the log alone."""
    if isinstance(error, ApiError):
        return error
    if isinstance(error, QueueFullError):
        wait = 1 if error.retry_after is None else max(1, ceil(error.retry_after))
        return ApiError(429, str(error), None, "queue_full", {"Retry-After": str(wait)})
    if isinstance(error, InvalidRequestError):
        return ApiError(400, str(error), error.field, "invalid_value")
    if isinstance(error, CapacityError):
        return ApiError(400, str(error), None, "capacity_exceeded")
    if isinstance(error, CutawayError):
        return ApiError(500, str(error), None, type(error).__name__)
    logging.getLogger("cutaway.server").error("a request failed", exc_info=error)
    return ApiError(
        500, f"the server has failed at this request ({type(error).__name__}); its log says where. Try again."
    )


def from_validation(errors: Sequence[Mapping[str, Any]]) -> ApiError:
    """The first of the faults that a schema found."""
    first = errors[0]
    param = path(first["loc"][1:])  # the first part says that it is the body
    given = first.get("input")
    if first["type"] == "missing":
        return ApiError(400, f"{param or 'the body'} is missing; it is required. Add it.", param, "missing")
    wanted = first["msg"].replace("Input should be", "it must be", 1)
    if param is None:
        return ApiError(400, f"the body is {shown(given)}; it must be a JSON object.", None, "invalid_type")
    return ApiError(400, f"{param} is {shown(given)}; {wanted}.", param, "invalid_type")


def path(parts: Sequence[str | int]) -> str | None:
    """The path of a field: names with dots, places in brackets."""
    joined = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in parts)
    return joined.removeprefix(".") or None


async def answer_http_error(request: Request, error: Exception) -> Response:
    """The handler of ApiError, and of the framework's own errors."""
    if isinstance(error, ApiError):
        return error.response()
    assert isinstance(error, HTTPException)
    return ApiError(error.status_code, f"{error.detail}.").response()


async def answer_validation_error(request: Request, error: Exception) -> Response:
    """The handler of what a schema refuses."""
    assert isinstance(error, RequestValidationError)
    return from_validation(error.errors()).response()


async def answer_no_route(request: Request, error: Exception) -> Response:
    """The handler of a path that isn't there."""
    if isinstance(error, ApiError):
        return error.response()
    return ApiError(404, f"there is no {request.url.path[:200]}. GET /openapi.json lists what is.").response()


async def answer_no_method(request: Request, error: Exception) -> Response:
    """The handler of a method that a path doesn't have."""
    allow = getattr(error, "headers", None) or {}
    there = allow.get("Allow") or allow.get("allow") or "another method"
    message = f"{request.url.path[:200]} takes no {request.method}; it takes {there}."
    return ApiError(405, message, None, None, allow).response()

"""Errors in OpenAI's shape: a status, and what is wrong with which parameter.

In: errors of the engine, of the request's shape, of the router. Out:
``{"error": {"message", "type", "param", "code"}}``.
The message states value, limit and remedy; ``param`` is the path of the field, as ``messages[0].content``.
"""

import logging
from collections.abc import Iterable, Mapping, Sequence
from math import ceil
from typing import Any

from fastapi.exceptions import HTTPException

from cutaway.errors import MOST_SHOWN, CapacityError, CutawayError, InvalidRequestError, QueueFullError
from cutaway.sampling.params_checks import shown

KINDS: Mapping[int, str] = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    429: "rate_limit_error",
    499: "client_closed_request",
    500: "server_error",
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
        """param: the path of the field, cut where a client's own names make it long. code: a word for programs."""
        super().__init__(status, message, dict(headers) if headers else None)
        self.message, self.code = message, code
        self.param = param if param is None or len(param) <= MOST_SHOWN else f"{param[:MOST_SHOWN]}…"

    def body(self) -> dict[str, Any]:
        """The reply."""
        kind = KINDS.get(self.status_code, "invalid_request_error")
        return {"error": {"message": self.message, "type": kind, "param": self.param, "code": self.code}}

    def named_message(self) -> str:
        """The message with the parameter's path, for shapes that have no field for it."""
        return self.message if self.param is None or self.param in self.message else f"{self.param}: {self.message}"


def wrong_value(place: str, value: Any, wanted: str) -> ApiError:
    """A value that is none of those wanted. place: the field's path."""
    return ApiError(400, f"{place} is {shown(value)}; it must be {wanted}.", place, "invalid_value")


def loading() -> ApiError:
    """The model is not there yet."""
    return ApiError(503, "the model is being loaded. Try again in a moment.", None, "loading", {"Retry-After": "1"})


def broken() -> ApiError:
    """The engine has found its own memory in disorder and takes no request any more."""
    return ApiError(503, "the engine has lost track of its memory. Start the server again.", None, "broken")


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
        return ApiError(400, str(error), error.field, "capacity_exceeded")
    if isinstance(error, CutawayError):
        return ApiError(500, str(error), None, type(error).__name__)
    logging.getLogger("cutaway.server").error("a request failed", exc_info=error)
    return ApiError(
        500, f"the server has failed at this request ({type(error).__name__}); its log says where. Try again."
    )


def renamed(error: BaseException, names: Iterable[tuple[str, str]]) -> ApiError:
    """The error about a field that another API calls otherwise. names: the beginnings of paths, here and there; the
    first that fits counts.
    """
    found = from_cutaway(error)
    if found.param is None:
        return found
    for here, there in names:
        if found.param.startswith(here):
            param = there + found.param.removeprefix(here)
            message = found.message.replace(found.param, param)
            return ApiError(found.status_code, message, param, found.code, found.headers)
    return found


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

"""The handlers that turn what a request met into a reply.

In: errors of routes, of schemas, of the router. Out: replies in the shape of the path's API.
"""

from fastapi.exceptions import HTTPException, RequestValidationError
from fastapi.requests import Request
from fastapi.responses import Response

from cutaway.server.http.error_shapes import error_response
from cutaway.server.http.errors import ApiError, from_validation


async def answer_http_error(request: Request, error: Exception) -> Response:
    """The handler of ApiError, and of the framework's own errors."""
    if isinstance(error, ApiError):
        return error_response(error, request.url.path)
    assert isinstance(error, HTTPException)
    return error_response(ApiError(error.status_code, f"{error.detail}."), request.url.path)


async def answer_validation_error(request: Request, error: Exception) -> Response:
    """The handler of what a schema refuses."""
    assert isinstance(error, RequestValidationError)
    return error_response(from_validation(error.errors()), request.url.path)


async def answer_no_route(request: Request, error: Exception) -> Response:
    """The handler of a path that isn't there."""
    if isinstance(error, ApiError):
        return error_response(error, request.url.path)
    path = request.url.path
    return error_response(ApiError(404, f"there is no {path[:200]}. GET /openapi.json lists what is."), path)


async def answer_no_method(request: Request, error: Exception) -> Response:
    """The handler of a method that a path doesn't have."""
    allow = getattr(error, "headers", None) or {}
    there = allow.get("Allow") or allow.get("allow") or "another method"
    message = f"{request.url.path[:200]} takes no {request.method}; it takes {there}."
    return error_response(ApiError(405, message, None, None, allow), request.url.path)

"""The application: routes, and the layers that a request passes before them.

In: a service. Out: an ASGI application.
"""

from typing import Any

from fastapi import FastAPI
from fastapi.exceptions import HTTPException, RequestValidationError
from fastapi.middleware.cors import CORSMiddleware

from cutaway import __version__
from cutaway.server.http.auth import ApiKeys
from cutaway.server.http.body_limit import BodyLimit
from cutaway.server.http.error_schema import ErrorReply
from cutaway.server.http.errors import (
    answer_http_error,
    answer_no_method,
    answer_no_route,
    answer_validation_error,
)
from cutaway.server.http.request_log import RequestLog
from cutaway.server.local import health, metrics, not_there, slots, tokens
from cutaway.server.openai import chat, completions, models
from cutaway.server.service import Service

ROUTERS = (
    health.router,
    models.router,
    chat.router,
    completions.router,
    tokens.router,
    slots.router,
    metrics.router,
    not_there.router,
)


def create_app(service: Service) -> FastAPI:
    """The application of one service."""
    settings = service.settings
    responses: dict[int | str, dict[str, Any]] = {
        "4XX": {"model": ErrorReply, "description": "What is wrong with the request"},
        "5XX": {"model": ErrorReply, "description": "Why the server can't answer"},
    }
    app = FastAPI(
        title="Cutaway",
        version=__version__,
        docs_url=None,  # these pages load scripts from elsewhere
        redoc_url=None,
        redirect_slashes=False,
        responses=responses,
    )
    app.state.service = service
    for router in ROUTERS:
        app.include_router(router)
    for kind, handler in (
        (HTTPException, answer_http_error),
        (RequestValidationError, answer_validation_error),
        (404, answer_no_route),
        (405, answer_no_method),
    ):
        app.add_exception_handler(kind, handler)
    # The last that is added is the first that a request meets.
    app.add_middleware(BodyLimit, most=settings.max_body_size)
    app.add_middleware(ApiKeys, keys=settings.api_keys)
    if settings.cors_origins:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=list(settings.cors_origins),
            allow_methods=["GET", "POST"],
            allow_headers=["*"],
            expose_headers=["X-Request-Id", "Retry-After"],
        )
    app.add_middleware(RequestLog)
    return app

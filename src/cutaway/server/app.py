"""The application: routes, and the layers that a request passes before them.

In: a service. Out: an ASGI application.
"""

from fastapi import FastAPI
from fastapi.exceptions import HTTPException, RequestValidationError
from fastapi.middleware.cors import CORSMiddleware

from cutaway import __version__
from cutaway.server.anthropic import messages_route
from cutaway.server.http.auth import ApiKeys
from cutaway.server.http.body_limit import BodyLimit
from cutaway.server.http.body_time import BodyTime
from cutaway.server.http.error_handlers import (
    answer_http_error,
    answer_no_method,
    answer_no_route,
    answer_validation_error,
)
from cutaway.server.http.error_schema import ErrorReply, described
from cutaway.server.http.hosts import ANY, AllowedHosts, host_name, is_loopback
from cutaway.server.http.request_log import RequestLog
from cutaway.server.local import health, ledger, metrics, slots, tokenizer_info, tokens
from cutaway.server.openai import chat, completions, embeddings, models, responses
from cutaway.server.openai.response_store import ResponseStore
from cutaway.server.page import files
from cutaway.server.service import Service

ROUTERS = (
    health.router,
    models.router,
    chat.router,
    completions.router,
    embeddings.router,
    responses.router,
    messages_route.router,
    tokens.router,
    tokenizer_info.router,
    slots.router,
    ledger.router,
    metrics.router,
    files.router,
)
OPEN_PATHS = frozenset({"/health", *files.FILES})
"""What is answered without a key: whether the server is there, and files that everybody has who has this package."""


def create_app(service: Service) -> FastAPI:
    """The application of one service."""
    settings = service.settings
    app = FastAPI(
        title="Cutaway",
        version=__version__,
        docs_url=None,  # these pages load scripts from elsewhere
        redoc_url=None,
        redirect_slashes=False,
        responses=described(ErrorReply),
    )
    app.state.service = service
    app.state.responses = ResponseStore()
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
    app.add_middleware(BodyTime, ending=service.ending)
    app.add_middleware(ApiKeys, keys=settings.api_keys, open_paths=OPEN_PATHS)
    if settings.cors_origins:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=list(settings.cors_origins),
            allow_methods=["GET", "POST", "DELETE"],
            allow_headers=["*"],
            expose_headers=["X-Request-Id", "Retry-After"],
        )
    hosts = {host_name(host) for host in settings.allowed_hosts}
    if ANY not in hosts and (hosts or is_loopback(settings.host)):
        app.add_middleware(AllowedHosts, names=hosts)
    app.add_middleware(RequestLog)
    return app

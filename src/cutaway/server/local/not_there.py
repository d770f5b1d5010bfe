"""Routes of the APIs' that are not there yet, told by name and not as unknown paths.

In: any request for one. Out: 501.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from fastapi import APIRouter
from fastapi.requests import Request
from fastapi.responses import Response

from cutaway.server.http.errors import ApiError
from cutaway.server.http.route import Route

NOT_THERE: Final[Mapping[str, str]] = MappingProxyType(
    {
        "/v1/responses": "Use /v1/chat/completions.",
        "/v1/messages": "Use /v1/chat/completions.",
        "/v1/embeddings": "No embeddings are made here.",
    }
)
"""Path → what to do instead."""

router = APIRouter(include_in_schema=False, route_class=Route)


async def answer_not_there(request: Request) -> Response:
    """501."""
    path = request.url.path
    raise ApiError(501, f"{path} is not supported yet. {NOT_THERE[path]}", None, "not_supported")


for each in NOT_THERE:
    router.add_api_route(each, answer_not_there, methods=["GET", "POST", "DELETE"])

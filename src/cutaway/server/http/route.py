"""The server's kind of route: its body is JSON by our own reader, and whatever fails has an answer in OpenAI's shape.

In: a request. Out: the parsed body, which the route's schema then checks; a reply.

A page in a browser may send a text to any server of this machine without asking, but not JSON: so a body must be said
to be JSON.
"""

from collections.abc import Callable, Coroutine
from typing import Any

from fastapi.exceptions import HTTPException, RequestValidationError
from fastapi.requests import Request
from fastapi.responses import Response
from fastapi.routing import APIRoute

from cutaway.server.http.errors import ApiError, from_cutaway
from cutaway.server.http.read_json import parse_json


class JsonRequest(Request):
    """A request whose body is read by ``parse_json``."""

    async def body(self) -> bytes:
        """The body, of which it is said that it is JSON."""
        kind = self.headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind != "application/json" and not (kind.startswith("application/") and kind.endswith("+json")):
            raise ApiError(
                415,
                f"the content type is {kind[:100] or 'missing'}; it must be application/json. Send the header "
                "Content-Type: application/json.",
            )
        return await super().body()

    async def json(self) -> Any:
        """The parsed body."""
        return parse_json(await self.body())


class Route(APIRoute):
    """A route of such requests."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """The handler that is called with each request."""
        handle = super().get_route_handler()

        async def answer(request: Request) -> Response:
            try:
                return await handle(JsonRequest(request.scope, request.receive))
            except (HTTPException, RequestValidationError):
                raise
            except Exception as error:
                # Here and not outside of the middleware, so that it too has a line in the log, and its headers.
                raise from_cutaway(error) from error

        return answer

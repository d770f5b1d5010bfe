"""The server's kind of route: its body is JSON by our own reader, and whatever fails has an answer in OpenAI's shape.

In: a request. Out: the parsed body, which the route's schema then checks; a reply.

A page in a browser may send a text to any server of this machine without asking, but not JSON: so a body must be said
to be JSON.
"""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Final

from fastapi.exceptions import HTTPException, RequestValidationError
from fastapi.requests import Request
from fastapi.responses import Response
from fastapi.routing import APIRoute
from starlette.requests import ClientDisconnect

from cutaway.server.http.disconnect import ClientLeftError
from cutaway.server.http.errors import ApiError, from_cutaway
from cutaway.server.http.read_json import parse_json

LARGE: Final = 64 << 10  # bytes


class JsonRequest(Request):
    """A request whose body is read by ``parse_json``."""

    async def body(self) -> bytes:
        """The body, of which it is said that it is JSON. ClientLeftError where the client leaves before its end."""
        kind = self.headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind != "application/json" and not (kind.startswith("application/") and kind.endswith("+json")):
            raise ApiError(
                415,
                f"the content type is {kind[:100] or 'missing'}; it must be application/json. Send the header "
                "Content-Type: application/json.",
            )
        try:
            return await super().body()
        except ClientDisconnect:
            raise ClientLeftError from None

    async def json(self) -> Any:
        """The parsed body."""
        body = await self.body()
        # A large one would keep the event loop from all other requests.
        return await asyncio.to_thread(parse_json, body) if len(body) > LARGE else parse_json(body)


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

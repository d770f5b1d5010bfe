"""The limit of a body's size: no client makes the server keep more than that.

In: a request. Out: the same, or 413. A client that writes all of its request before it reads would find the connection
broken, and no reply; so the rest of a body that is not much larger is read and thrown away first.
"""

import asyncio
from contextlib import suppress
from typing import Final

from cutaway.server.http.asgi import App, Message, Receive, Scope, Send, header
from cutaway.server.http.error_shapes import error_response
from cutaway.server.http.errors import ApiError

MOST_WASTED: Final = 16 << 20  # bytes that are thrown away
PATIENCE: Final = 1.0  # seconds in which nothing comes


class BodyLimit:
    """Middleware that refuses bodies of more than ``most`` bytes."""

    def __init__(self, app: App, most: int) -> None:
        self._app, self._most = app, most

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, or refuse it."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        announced = header(scope, b"content-length")
        if announced is not None and announced.isdigit() and int(announced) > self._most:
            # Who asks first whether to send it gets the answer to that; of what is larger, a part would be no help.
            if header(scope, b"expect") is None and int(announced) <= MOST_WASTED:
                await waste(receive)
            refusal = self._too_large(f"{int(announced)} bytes")
            await error_response(refusal, scope["path"])(scope, receive, send)
            return
        count = 0

        async def counted() -> Message:
            nonlocal count
            message = await receive()
            count += len(message.get("body", b""))
            if count > self._most:
                if message.get("more_body", False):
                    await waste(receive)
                raise self._too_large(f"more than {self._most} bytes")
            return message

        await self._app(scope, counted, send)

    def _too_large(self, size: str) -> ApiError:
        return ApiError(
            413,
            f"the body has {size}; the server takes {self._most} at most. Send less, or raise --max-body-size.",
            None,
            "body_too_large",
            {"Connection": "close"},  # the rest of the body, if there is more, is not read
        )


async def waste(receive: Receive) -> None:
    """Read the rest of a body and keep nothing: up to its end, or to where it is too much, while it keeps coming."""
    count, more = 0, True
    with suppress(TimeoutError, asyncio.TimeoutError, ApiError):  # the last: it is too slow, or the server ends
        while more and count <= MOST_WASTED:
            message = await asyncio.wait_for(receive(), PATIENCE)
            count += len(message.get("body", b""))
            more = message.get("more_body", False)  # nor is there more where the client has left

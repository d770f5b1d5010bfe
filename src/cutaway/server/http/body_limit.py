"""The limit of a body's size: no client makes the server keep more than that.

In: a request. Out: the same, or 413, at once where its length is announced.
"""

from cutaway.server.http.asgi import App, Message, Receive, Scope, Send, header
from cutaway.server.http.error_shapes import error_response
from cutaway.server.http.errors import ApiError


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
            refusal = self._too_large(f"{int(announced)} bytes")
            await error_response(refusal, scope["path"])(scope, receive, send)
            return
        count = 0

        async def counted() -> Message:
            nonlocal count
            message = await receive()
            count += len(message.get("body", b""))
            if count > self._most:
                raise self._too_large(f"more than {self._most} bytes")
            return message

        await self._app(scope, counted, send)

    def _too_large(self, size: str) -> ApiError:
        return ApiError(
            413,
            f"the body has {size}; the server takes {self._most} at most. Send less, or raise --max-body-size.",
            None,
            "body_too_large",
            {"Connection": "close"},  # the rest of the body is not read
        )

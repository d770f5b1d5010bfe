"""The time that a body may take: no client holds a place by sending its request drop by drop.

In: a request. Out: the same, or 408. The limit grows with what has come, so that a large body on a slow line is none.
"""

import asyncio
import time
from collections.abc import Callable
from typing import Final

from cutaway.server.http.asgi import App, Message, Receive, Scope, Send
from cutaway.server.http.errors import ApiError

PATIENCE: Final = 30.0  # seconds
SLOWEST: Final = 16 << 10  # bytes for which there is one second more


class BodyTime:
    """Middleware that waits for a body no longer than that."""

    def __init__(self, app: App, patience: float = PATIENCE, clock: Callable[[], float] = time.monotonic) -> None:
        self._app, self._patience, self._clock = app, patience, clock

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on. Whoever reads the body meets the refusal."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        begin, count, whole = self._clock(), 0, False

        async def timed() -> Message:
            nonlocal count, whole
            if whole:
                return await receive()  # which tells when the client leaves
            left = begin + self._patience + count / SLOWEST - self._clock()
            try:
                message = await asyncio.wait_for(receive(), max(left, 0))
            except asyncio.TimeoutError:
                raise self._too_slow(count) from None
            count += len(message.get("body", b""))
            whole = not message.get("more_body", False)
            return message

        await self._app(scope, timed, send)

    def _too_slow(self, count: int) -> ApiError:
        return ApiError(
            408,
            f"after {self._patience + count / SLOWEST:.0f} s {count} bytes of the body have come, and not its end; it "
            f"may take {self._patience:g} s, and a second more for each {SLOWEST} bytes. Send it again, faster.",
            None,
            "body_too_slow",
            {"Connection": "close"},
        )

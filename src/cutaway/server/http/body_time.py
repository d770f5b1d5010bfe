"""The time that a body may take: no client holds a place by sending its request drop by drop.

In: a request. Out: the same, or 408; or 503 where the server's end comes first. The limit grows with what has come, so
that a large body on a slow line is none.
"""

import asyncio
import time
from collections.abc import Callable
from typing import Final

from cutaway.server.http.asgi import App, Message, Receive, Scope, Send
from cutaway.server.http.errors import ApiError, shutting_down

PATIENCE: Final = 30.0  # seconds
SLOWEST: Final = 16 << 10  # bytes for which there is one second more


class BodyTime:
    """Middleware that waits for a body no longer than that."""

    def __init__(self, app: App, ending: asyncio.Event, clock: Callable[[], float] = time.monotonic) -> None:
        """ending: is set when nothing is waited for any more."""
        self._app, self._ending, self._clock = app, ending, clock

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
            left = begin + PATIENCE + count / SLOWEST - self._clock()
            coming, ending = asyncio.ensure_future(receive()), asyncio.ensure_future(self._ending.wait())
            try:
                await asyncio.wait({coming, ending}, timeout=max(left, 0), return_when=asyncio.FIRST_COMPLETED)
                if not coming.done():
                    raise shutting_down() if ending.done() else self._too_slow(count)
                message = coming.result()
            finally:
                coming.cancel()
                ending.cancel()
            count += len(message.get("body", b""))
            whole = not message.get("more_body", False)
            return message

        await self._app(scope, timed, send)

    def _too_slow(self, count: int) -> ApiError:
        return ApiError(
            408,
            f"after {PATIENCE + count / SLOWEST:.0f} s {count} bytes of the body have come, and not its end; it "
            f"may take {PATIENCE:g} s, and a second more for each {SLOWEST} bytes. Send it again, faster.",
            None,
            "body_too_slow",
            {"Connection": "close"},
        )

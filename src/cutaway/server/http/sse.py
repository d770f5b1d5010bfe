"""Server-sent events: a reply that grows, one event for each chunk.

In: an async iterator of chunks. Out: ``data: {…}`` for each, ``data: [DONE]`` at the end; or an event with an error,
and no more. Where no chunk comes for a while, a comment: proxies end connections that are silent. When the client
leaves, the iterator is closed.
Source: the HTML standard, section 9.2, "Server-sent events"; "[DONE]" is OpenAI's.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from typing import Any, Final

from fastapi.responses import Response

from cutaway.server.http.asgi import Receive, Scope, Send, state
from cutaway.server.http.disconnect import ClientLeftError, while_connected
from cutaway.server.http.errors import from_cutaway
from cutaway.server.http.write_json import json_bytes

DONE: Final = b"data: [DONE]\n\n"
COMMENT: Final = b": the server is at work\n\n"
SILENCE: Final = 15.0  # seconds without a chunk, after which there is a comment
HEADERS: Final = ((b"content-type", b"text/event-stream; charset=utf-8"), (b"cache-control", b"no-cache"))


def event(value: Any) -> bytes:
    """One event. JSON has no line ends of its own, so it is one line."""
    return b"data: " + json_bytes(value) + b"\n\n"


class EventStream(Response):
    """The reply. Every write waits until the client has read most of what was written before."""

    def __init__(
        self, chunks: AsyncGenerator[dict[str, Any], None], end: Callable[[], None], silence: float = SILENCE
    ) -> None:
        """end: is called at the end, however it comes."""
        super().__init__()
        self._chunks, self._end, self._silence = chunks, end, silence
        self._spoke = False  # since the last look
        self._whole = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the events until they end or the client leaves."""
        try:
            async with aclosing(self._chunks):
                await while_connected(receive, self._send(send))
        except ClientLeftError:
            if not self._whole:
                state(scope)["facts"]["client_left"] = True
        finally:
            self._end()

    async def _send(self, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": list(HEADERS)})
        commenting = asyncio.ensure_future(self._comment(send))
        try:
            async for chunk in self._chunks:
                self._spoke = True
                await send({"type": "http.response.body", "body": event(chunk), "more_body": True})
            last = DONE
        except Exception as error:
            last = event(from_cutaway(error).body())
        finally:
            commenting.cancel()
            await asyncio.wait({commenting})
        self._whole = True
        await send({"type": "http.response.body", "body": last, "more_body": False})

    async def _comment(self, send: Send) -> None:
        while True:
            await asyncio.sleep(self._silence)
            if not self._spoke:
                await send({"type": "http.response.body", "body": COMMENT, "more_body": True})
            self._spoke = False

"""Server-sent events: a reply that grows, one event for each chunk.

In: an async iterator of chunks, and the form that an API gives to events. Out: an event for each, and what the API has
at the end; or an event with an error, and no more. Where no chunk comes for a while, something without meaning: proxies
end connections that are silent. When the client leaves, the iterator is closed.
Source: the HTML standard, section 9.2, "Server-sent events"; "[DONE]" is OpenAI's, names of events are Anthropic's.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing
from typing import Any, Final, NamedTuple

from fastapi.responses import Response

from cutaway.server.http.asgi import Receive, Scope, Send, state
from cutaway.server.http.disconnect import ClientLeftError, while_connected
from cutaway.server.http.error_shapes import anthropic_body
from cutaway.server.http.errors import ApiError, from_cutaway
from cutaway.server.http.write_json import json_bytes, written

DONE: Final = b"data: [DONE]\n\n"
COMMENT: Final = b": the server is at work\n\n"
SILENCE: Final = 15.0  # seconds without a chunk, after which there is a comment
HEADERS: Final = ((b"content-type", b"text/event-stream; charset=utf-8"), (b"cache-control", b"no-cache"))


def event(value: Any) -> bytes:
    """One event. JSON has no line ends of its own, so it is one line."""
    return b"data: " + json_bytes(value) + b"\n\n"


def named_event(value: Mapping[str, Any]) -> bytes:
    """One event with its name, which is the value's type."""
    name: str = value["type"]
    return b"event: " + name.encode("ascii") + b"\n" + event(value)


class Form(NamedTuple):
    """How an API writes events."""

    event: Callable[[dict[str, Any]], bytes]
    error: Callable[[ApiError], bytes]  # the last event, where something failed
    silence: bytes  # what means nothing
    end: bytes  # behind the last event


def _openai_error(error: ApiError) -> bytes:
    return event(error.body())


def _anthropic_error(error: ApiError) -> bytes:
    return named_event(anthropic_body(error))


CHUNKS: Final = Form(event, _openai_error, COMMENT, DONE)
"""OpenAI's chats and completions."""

NAMED_EVENTS: Final = Form(named_event, _anthropic_error, named_event({"type": "ping"}), b"")
"""Anthropic's messages."""

TYPED_EVENTS: Final = Form(named_event, _openai_error, COMMENT, b"")
"""OpenAI's responses."""


class EventStream(Response):
    """The reply. Every write waits until the client has read most of what was written before."""

    def __init__(
        self,
        chunks: AsyncGenerator[dict[str, Any], None],
        end: Callable[[], None],
        silence: float = SILENCE,
        form: Form = CHUNKS,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        """end: is called at the end, however it comes. headers: besides those of every stream."""
        super().__init__()
        self._head = [*HEADERS, *((name.encode(), value.encode()) for name, value in (headers or {}).items())]
        self._chunks, self._end, self._silence, self._form = chunks, end, silence, form
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
        await send({"type": "http.response.start", "status": 200, "headers": self._head})
        commenting = asyncio.ensure_future(self._comment(send))
        try:
            async for chunk in self._chunks:
                self._spoke = True
                data = await written(self._form.event, chunk)
                await send({"type": "http.response.body", "body": data, "more_body": True})
            last = self._form.end
        except Exception as error:
            last = self._form.error(from_cutaway(error))
        finally:
            commenting.cancel()
            await asyncio.wait({commenting})
        self._whole = True
        await send({"type": "http.response.body", "body": last, "more_body": False})

    async def _comment(self, send: Send) -> None:
        while True:
            await asyncio.sleep(self._silence)
            if not self._spoke:
                await send({"type": "http.response.body", "body": self._form.silence, "more_body": True})
            self._spoke = False

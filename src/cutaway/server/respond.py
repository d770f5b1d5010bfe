"""How a reply is sent, whichever API it belongs to: whole, or as events while it grows.

In: a coroutine that checks a request and lets it wait for its turn. Out: the HTTP response. The work for it ends with
it, or when the client leaves.
"""

from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Coroutine
from typing import Any, ClassVar, Final

from fastapi.requests import Request
from fastapi.responses import Response

from cutaway.server.http.disconnect import while_connected
from cutaway.server.http.sse import CHUNKS, EventStream, Form
from cutaway.server.http.write_json import json_bytes, written
from cutaway.server.work import Work

TAP_BYTES: Final = "cutaway-tap-bytes"
"""The header with the bytes that tapped tensors will have, at most."""
STREAMED: Final[dict[int | str, dict[str, Any]]] = {
    200: {
        "content": {"text/event-stream": {}},
        "description": "The answer, whole or as it comes",
    }
}
"""For the OpenAPI document: that an answer may be a stream."""


class Sendable(ABC):
    """A reply that has begun."""

    work: Work

    @abstractmethod
    async def whole(self) -> dict[str, Any]:
        """The reply when all is there."""


class Streamable(Sendable):
    """A reply that may be sent as it comes."""

    form: ClassVar[Form] = CHUNKS  # of its events

    @property
    @abstractmethod
    def streams(self) -> bool:
        """Whether it is."""

    @abstractmethod
    def chunks(self) -> AsyncGenerator[dict[str, Any], None]:
        """The reply as it comes."""


async def respond(request: Request, begin: Coroutine[Any, Any, Sendable]) -> Response:
    """The response. What ``begin`` raises comes before any stream."""
    reply = await while_connected(request.receive, begin)
    # What taps will cost is told before they are computed.
    headers = {TAP_BYTES: str(reply.work.tap_bytes)} if reply.work.tap_bytes else {}
    if isinstance(reply, Streamable) and reply.streams:
        return EventStream(reply.chunks(), reply.work.end, form=reply.form, headers=headers)
    try:
        whole = await while_connected(request.receive, reply.whole())
        return Response(await written(json_bytes, whole), media_type="application/json", headers=headers)
    finally:
        reply.work.end()

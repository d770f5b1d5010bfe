"""What OpenAI's replies have in common: the head, what comes beside the answers, and how one is sent.

In: the engine's work for a request. Out: an HTTP response, whole or as events.
"""

import time
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Coroutine, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Generic, TypeVar

from fastapi.requests import Request
from fastapi.responses import Response

from cutaway.server.http.disconnect import while_connected
from cutaway.server.http.sse import EventStream
from cutaway.server.http.write_json import json_response
from cutaway.server.openai.reply_fields import ReplyFields
from cutaway.server.openai.usage import usage
from cutaway.server.service import ServedModel
from cutaway.server.work import Work

Body = TypeVar("Body", bound=ReplyFields)


@dataclass(frozen=True)
class Reply(ABC, Generic[Body]):
    """How one request is replied to."""

    model: ServedModel
    work: Work
    body: Body
    ignored: Sequence[str]  # fields

    @abstractmethod
    async def whole(self) -> dict[str, Any]:
        """The reply when all is there."""

    @abstractmethod
    def chunks(self) -> AsyncGenerator[dict[str, Any], None]:
        """The reply as it comes."""

    def head(self, kind: str) -> dict[str, Any]:
        """What the reply and each of its chunks begin with. kind: of object."""
        return {
            "id": self.work.name,
            "object": kind,
            "created": int(time.time()),
            "model": self.body.model or self.model.names[0],
            "system_fingerprint": self.model.fingerprint,
        }

    def chunk_head(self, kind: str) -> dict[str, Any]:
        """The same for chunks: where the usage is asked for, those that don't have it say so."""
        return {**self.head(kind), **({"usage": None} if self.body.wants_usage else {})}

    def beside(self, *, with_usage: bool) -> dict[str, Any]:
        """What comes beside the answers, when they have ended."""
        found: dict[str, Any] = {"usage": self.usage()} if with_usage else {}
        if self.body.return_parameters:
            found["cutaway"] = {
                "parameters": asdict(self.work.params),
                "seeds": [stream.seed for stream in self.work.streams],
                "ignored": list(self.ignored),
                "statistics": [asdict(stream.statistics()) for stream in self.work.streams],
            }
        return found

    def usage(self) -> dict[str, Any]:
        """The tokens."""
        return usage(stream.statistics() for stream in self.work.streams)


async def respond(request: Request, begin: Coroutine[Any, Any, Reply[Any]]) -> Response:
    """The response. begin: checks the request and lets it wait for its turn; what it raises comes before any stream."""
    reply = await while_connected(request.receive, begin)
    if reply.body.stream:
        return EventStream(reply.chunks(), reply.work.end)
    try:
        return json_response(await while_connected(request.receive, reply.whole()))
    finally:
        reply.work.end()

"""What OpenAI's replies to chats and completions have in common: the head, and what comes beside the answers.

In: the engine's work for a request. Out: parts of a reply.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from cutaway.server.answers.beside import beside
from cutaway.server.openai.reply_fields import ReplyFields
from cutaway.server.openai.taps import Tapped
from cutaway.server.openai.usage import usage
from cutaway.server.respond import Streamable
from cutaway.server.service import ServedModel
from cutaway.server.work import Work

Body = TypeVar("Body", bound=ReplyFields)


@dataclass(frozen=True)
class Reply(Streamable, Generic[Body]):
    """How one request is replied to."""

    model: ServedModel
    work: Work
    body: Body
    ignored: Sequence[str]  # fields

    @property
    def streams(self) -> bool:
        """Whether it is sent as it comes."""
        return bool(self.body.stream)

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
        said = beside(self.work, self.body, self.ignored)
        if self.body.taps:
            said["taps"] = [Tapped(output.taps or {}) for output in self.work.outputs()]
        return {**found, "cutaway": said} if said else found

    def usage(self) -> dict[str, Any]:
        """The tokens."""
        return usage(stream.statistics() for stream in self.work.streams)

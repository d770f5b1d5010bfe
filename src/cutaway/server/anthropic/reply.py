"""The reply to a conversation: whole, or as events.

In: the engine's work for it. Out: Anthropic's ``message``, or the events that make it.
Source: Anthropic's API reference, "Messages", "Streaming Messages".
"""

import json
from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, ClassVar, Final

from cutaway.engine.outputs import Statistics
from cutaway.server.answers.beside import beside
from cutaway.server.answers.pieces import Answer, answer_pieces, call_id
from cutaway.server.answers.prompt import AnswerRules
from cutaway.server.anthropic.schema import MessagesRequest
from cutaway.server.http.sse import NAMED_EVENTS, Form
from cutaway.server.respond import Streamable
from cutaway.server.service import ServedModel
from cutaway.server.work import Work
from cutaway.tokenizer.answers.events import CallArguments, CallBegin, CallEnd, Content, Event, Reasoning

KIND_OF: Final[Mapping[type, str]] = MappingProxyType(
    {Reasoning: "thinking", Content: "text", CallArguments: "tool_use"}
)
"""The block that an event adds to."""


@dataclass(frozen=True)
class MessageReply(Streamable):
    """How one conversation is replied to."""

    form: ClassVar[Form] = NAMED_EVENTS
    model: ServedModel
    work: Work
    body: MessagesRequest
    ignored: Sequence[str]  # fields
    rules: AnswerRules

    @property
    def streams(self) -> bool:
        """Whether it is sent as it comes."""
        return bool(self.body.stream)

    async def whole(self) -> dict[str, Any]:
        """The message when all is there."""
        (output,) = await self.work.run()
        parser = self.rules.parser()
        events = parser.feed(output.outputs[0].text) + parser.finish()
        answer = Answer()
        answer.add(events)
        called = answer.ends_with_calls(output.outputs[0].finish_reason)
        message = {**self._message(), "content": self._blocks(events), **self._stop(called), "usage": self._usage()}
        return {**message, **self._beside()}

    async def chunks(self) -> AsyncGenerator[dict[str, Any], None]:
        """Its beginning, each block with its pieces, its end."""
        index, kind = -1, ""
        begun, called = False, False
        async for piece in answer_pieces(self.work, self.rules.parser):
            if not begun:
                begun = True
                yield {"type": "message_start", "message": {**self._message(), "usage": self._usage()}}
            for event in piece.events:
                if isinstance(event, CallBegin) or KIND_OF[type(event)] != kind:
                    for closing in _closing(index, kind):
                        yield closing
                    index, kind = index + 1, "tool_use" if isinstance(event, CallBegin) else KIND_OF[type(event)]
                    yield {"type": "content_block_start", "index": index, "content_block": self._empty(event)}
                if (delta := _delta(event)) is not None:
                    yield {"type": "content_block_delta", "index": index, "delta": delta}
            called = piece.ends_with_calls
        for closing in _closing(index, kind):
            yield closing
        yield {"type": "message_delta", "delta": self._stop(called), "usage": self._usage(), **self._beside()}
        yield {"type": "message_stop"}

    def _message(self) -> dict[str, Any]:
        """The message before anything of it is there."""
        return {
            "id": self.work.name,
            "type": "message",
            "role": "assistant",
            "model": self.body.model or self.model.names[0],
            "content": [],
            "stop_reason": None,
            "stop_sequence": None,
        }

    def _stop(self, called: bool) -> dict[str, Any]:
        """Why it has ended. called: with whole calls."""
        (given,) = self.work.outputs()[0].outputs
        if called:
            return {"stop_reason": "tool_use", "stop_sequence": None}
        if given.finish_reason == "length":
            asked = len(given.token_ids) == self.work.params.max_tokens
            return {"stop_reason": "max_tokens" if asked else "model_context_window_exceeded", "stop_sequence": None}
        if isinstance(given.stop_reason, str):
            return {"stop_reason": "stop_sequence", "stop_sequence": given.stop_reason}
        return {"stop_reason": "end_turn", "stop_sequence": None}

    def _beside(self) -> dict[str, Any]:
        """What comes beside the answer, when it has ended."""
        said = beside(self.work, self.body, self.ignored)
        return {"cutaway": said} if said else {}

    def _usage(self) -> dict[str, Any]:
        return usage(self.work.streams[0].statistics())

    def _blocks(self, events: Iterable[Event]) -> list[dict[str, Any]]:
        """The blocks of a whole answer, as a client puts them together from the events of a stream."""
        blocks: list[dict[str, Any]] = []
        for event in events:
            if isinstance(event, CallEnd):
                continue
            if isinstance(event, CallBegin) or not blocks or blocks[-1]["type"] != KIND_OF[type(event)]:
                blocks.append(self._empty(event))
            block = blocks[-1]
            if isinstance(event, CallArguments):
                block["input"] = _object(event.text)
            elif isinstance(event, Content | Reasoning):
                block[block["type"]] += event.text
        return blocks

    def _empty(self, event: Event) -> dict[str, Any]:
        """The block that begins with an event."""
        if isinstance(event, CallBegin):
            return {"type": "tool_use", "id": call_id(self.work.name, 0, event.call), "name": event.name, "input": {}}
        if isinstance(event, Reasoning):
            return {"type": "thinking", "thinking": "", "signature": ""}
        return {"type": "text", "text": ""}


def usage(statistics: Statistics) -> dict[str, int]:
    """The tokens. Those of the prompt that were cached are counted apart."""
    return {
        "input_tokens": statistics.prompt_tokens - statistics.cached_tokens,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": statistics.cached_tokens,
        "output_tokens": statistics.generated_tokens,
    }


def _closing(index: int, kind: str) -> list[dict[str, Any]]:
    """The events that end a block; none before the first."""
    if index < 0:
        return []
    stop = {"type": "content_block_stop", "index": index}
    if kind != "thinking":
        return [stop]
    signature = {"type": "signature_delta", "signature": ""}  # nobody signs thoughts here
    return [{"type": "content_block_delta", "index": index, "delta": signature}, stop]


def _delta(event: Event) -> dict[str, Any] | None:
    if isinstance(event, Content):
        return {"type": "text_delta", "text": event.text}
    if isinstance(event, Reasoning):
        return {"type": "thinking_delta", "thinking": event.text}
    if isinstance(event, CallArguments):
        return {"type": "input_json_delta", "partial_json": event.text}
    return None


def _object(arguments: str) -> dict[str, Any]:
    """A call's arguments; nothing of those that were cut or that the model spoilt: ``stop_reason`` tells which."""
    try:
        found = json.loads(arguments)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}

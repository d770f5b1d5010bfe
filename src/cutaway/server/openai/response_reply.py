"""A response: whole, or as events.

In: the engine's work for it. Out: OpenAI's ``response``, or the typed events that make it.
Source: OpenAI's API reference, "The response object", "Streaming events".
"""

import time
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, ClassVar, Final

from cutaway.engine.outputs import FinishReason, Statistics
from cutaway.server.answers.beside import beside
from cutaway.server.answers.pieces import answer_pieces, call_id
from cutaway.server.answers.prompt import AnswerRules
from cutaway.server.http.errors import from_cutaway
from cutaway.server.http.sse import TYPED_EVENTS, Form
from cutaway.server.openai.response_schema import PLAIN_TEXT, ResponseRequest
from cutaway.server.respond import Streamable
from cutaway.server.service import ServedModel
from cutaway.server.work import Work
from cutaway.tokenizer.answers.events import CallArguments, CallBegin, Content, Event, Reasoning

Chunk = dict[str, Any]
KIND_OF: Final[Mapping[type, str]] = MappingProxyType(
    {Reasoning: "reasoning", Content: "message", CallBegin: "function_call", CallArguments: "function_call"}
)
"""The item that an event adds to."""

PREFIXES: Final[Mapping[str, str]] = MappingProxyType({"reasoning": "rs", "message": "msg", "function_call": "fc"})
PARTS: Final[Mapping[str, str]] = MappingProxyType({"reasoning": "reasoning_text", "message": "output_text"})
"""The part that an item of text has, after which its events are named, too."""


@dataclass
class _Item:
    """An item of the output, as it grows."""

    index: int
    kind: str
    id: str
    name: str = ""  # of a function
    call: str = ""  # the id of its call
    text: str = ""  # or the arguments

    def value(self, status: str) -> dict[str, Any]:
        """As it stands in the response."""
        head = {"id": self.id, "type": self.kind, "status": status}
        if self.kind == "function_call":
            return {**head, "call_id": self.call, "name": self.name, "arguments": self.text}
        content = [] if status == "in_progress" else [self.part()]
        if self.kind == "reasoning":
            return {**head, "summary": [], "content": content}
        return {**head, "role": "assistant", "content": content}

    def part(self) -> dict[str, Any]:
        """The only part of an item of text."""
        beside: dict[str, Any] = {"annotations": [], "logprobs": []} if self.kind == "message" else {}
        return {"type": PARTS[self.kind], "text": self.text, **beside}

    def begin(self) -> Iterator[Chunk]:
        """The events of its beginning."""
        yield {"type": "response.output_item.added", "output_index": self.index, "item": self.value("in_progress")}
        if self.kind != "function_call":
            yield {"type": "response.content_part.added", **self._place(), "part": self.part()}

    def add(self, text: str) -> Chunk:
        """The event of a piece."""
        self.text += text
        if self.kind == "function_call":
            return {"type": "response.function_call_arguments.delta", **self._place(), "delta": text}
        return {"type": f"response.{PARTS[self.kind]}.delta", **self._place(), "delta": text, **self._logprobs()}

    def end(self, status: str) -> Iterator[Chunk]:
        """The events of its end."""
        if self.kind == "function_call":
            done = {"name": self.name, "arguments": self.text}
            yield {"type": "response.function_call_arguments.done", **self._place(), **done}
        else:
            yield {"type": f"response.{PARTS[self.kind]}.done", **self._place(), "text": self.text, **self._logprobs()}
            yield {"type": "response.content_part.done", **self._place(), "part": self.part()}
        yield {"type": "response.output_item.done", "output_index": self.index, "item": self.value(status)}

    def _place(self) -> dict[str, Any]:
        place: dict[str, Any] = {"item_id": self.id, "output_index": self.index}
        return place if self.kind == "function_call" else {**place, "content_index": 0}

    def _logprobs(self) -> dict[str, Any]:
        return {"logprobs": []} if self.kind == "message" else {}


@dataclass(frozen=True)
class ResponseReply(Streamable):
    """How one request is replied to."""

    form: ClassVar[Form] = TYPED_EVENTS
    model: ServedModel
    work: Work
    body: ResponseRequest
    ignored: Sequence[str]  # fields
    rules: AnswerRules
    keep: Callable[[Mapping[str, Any]], None]  # is called with the response when it has ended
    created: int = field(default_factory=lambda: int(time.time()))

    @property
    def streams(self) -> bool:
        """Whether it is sent as it comes."""
        return bool(self.body.stream)

    async def whole(self) -> dict[str, Any]:
        """The response when all is there: that of the last event."""
        response: dict[str, Any] = {}
        async for chunk in self._events():
            response = chunk.get("response", response)
        return response

    async def chunks(self) -> AsyncGenerator[Chunk, None]:
        """The events, numbered; an error is one of them, the last."""
        number = 0
        try:
            async for chunk in self._events():
                yield {**chunk, "sequence_number": number}
                number += 1
        except Exception as error:
            found = from_cutaway(error)
            said = {"code": found.code or "server_error", "message": found.message, "param": found.param}
            yield {"type": "error", **said, "sequence_number": number, "error": found.body()["error"]}

    async def _events(self) -> AsyncGenerator[Chunk, None]:
        for kind in ("created", "in_progress"):
            yield {"type": f"response.{kind}", "response": self._response("in_progress", [])}
        items: list[_Item] = []
        reasoning_tokens = 0
        reason: FinishReason | None = None
        async for piece in answer_pieces(self.work, self.rules.parser):
            for event in piece.events:
                if isinstance(event, CallBegin) or not items or items[-1].kind != KIND_OF[type(event)]:
                    for chunk in items[-1].end("completed") if items else ():
                        yield chunk
                    items.append(self._item(len(items), event))
                    for chunk in items[-1].begin():
                        yield chunk
                if isinstance(event, Reasoning | Content | CallArguments):
                    yield items[-1].add(event.text)
            if piece.events and all(isinstance(event, Reasoning) for event in piece.events):
                reasoning_tokens += len(piece.token_ids)
            reason = piece.finish_reason
        if not items:
            items.append(self._item(0, Content("")))
            for chunk in items[-1].begin():
                yield chunk
        status = "completed" if reason == "stop" else "incomplete"
        for chunk in items[-1].end(status):
            yield chunk
        output = [item.value("completed") for item in items[:-1]] + [items[-1].value(status)]
        usage = usage_of(self.work.streams[0].statistics(), reasoning_tokens)
        response = self._response(status, output, usage)
        if said := beside(self.work, self.body, self.ignored):
            response["cutaway"] = said
        self.keep(response)
        yield {"type": f"response.{status}", "response": response}

    def _item(self, index: int, event: Event) -> _Item:
        kind = KIND_OF[type(event)]
        item = _Item(index, kind, f"{PREFIXES[kind]}_{self.work.name.removeprefix('resp_')}_{index}")
        if isinstance(event, CallBegin):
            item.name, item.call = event.name, call_id(self.work.name, 0, event.call)
        return item

    def _response(
        self, status: str, output: Sequence[Mapping[str, Any]], usage: Mapping[str, Any] | None = None
    ) -> dict[str, Any]:
        body, params = self.body, self.work.params
        return {
            "id": self.work.name,
            "object": "response",
            "created_at": self.created,
            "status": status,
            "background": False,
            "error": None,
            "incomplete_details": {"reason": "max_output_tokens"} if status == "incomplete" else None,
            "instructions": body.instructions,
            "max_output_tokens": body.max_output_tokens,
            "metadata": body.metadata or {},
            "model": body.model or self.model.names[0],
            "output": output,
            "parallel_tool_calls": body.parallel_tool_calls is not False,
            "previous_response_id": body.previous_response_id,
            "reasoning": {"effort": None, "summary": None},
            "store": body.keeps,
            "temperature": params.temperature,
            "text": {**PLAIN_TEXT, **(body.text or {})},
            "tool_choice": "auto" if body.tool_choice is None else body.tool_choice,
            "tools": body.tools or [],
            "top_p": params.top_p,
            "truncation": "disabled",
            "usage": usage,
        }


def usage_of(statistics: Statistics, reasoning_tokens: int) -> dict[str, Any]:
    """The tokens. reasoning_tokens: those that became thoughts and nothing else."""
    return {
        "input_tokens": statistics.prompt_tokens,
        "input_tokens_details": {"cached_tokens": statistics.cached_tokens},
        "output_tokens": statistics.generated_tokens,
        "output_tokens_details": {"reasoning_tokens": reasoning_tokens},
        "total_tokens": statistics.prompt_tokens + statistics.generated_tokens,
    }

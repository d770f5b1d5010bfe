"""The reply to a chat: whole, or as chunks.

In: the engine's work for it. Out: OpenAI's ``chat.completion``, or ``chat.completion.chunk`` objects.
"""

from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass
from typing import Any

from cutaway.engine.outputs import CompletionOutput
from cutaway.server.answers.pieces import answer_pieces, call_id, read_answer
from cutaway.server.answers.prompt import AnswerRules
from cutaway.server.openai.chat_schema import ChatRequest
from cutaway.server.openai.logprobs import Entries, chat_logprobs
from cutaway.server.openai.reply import Reply
from cutaway.tokenizer.answers.events import CallArguments, CallBegin, Content, Event, Reasoning


@dataclass(frozen=True)
class ChatReply(Reply[ChatRequest]):
    """How one chat is replied to."""

    rules: AnswerRules  # how its answers are read

    async def whole(self) -> dict[str, Any]:
        """The reply when all is there."""
        (output,) = await self.work.run()
        choices = [self._whole_choice(each) for each in output.outputs]
        reply = {**self.head("chat.completion"), "choices": choices, **self.beside(with_usage=True)}
        if self.body.return_token_ids:
            reply["prompt_token_ids"] = output.prompt_token_ids
        return reply

    def _whole_choice(self, given: CompletionOutput) -> dict[str, Any]:
        answer = read_answer(self.rules.parser(), given.text)
        message: dict[str, Any] = {"role": "assistant", "content": answer.content, "refusal": None}
        if answer.reasoning:
            message["reasoning_content"] = answer.reasoning
        if answer.calls:
            message["content"] = answer.content or None
            message["tool_calls"] = [
                {
                    "id": call_id(self.work.name, given.index, number),
                    "type": "function",
                    "function": {"name": call.name, "arguments": call.arguments},
                }
                for number, call in enumerate(answer.calls)
            ]
        called = answer.ends_with_calls(given.finish_reason)
        return {
            "index": given.index,
            "message": message,
            "logprobs": self._logprobs(given.token_ids, given.logprobs or ()),
            "finish_reason": "tool_calls" if called else given.finish_reason,
            **self._ids(given.token_ids),
        }

    async def chunks(self) -> AsyncGenerator[dict[str, Any], None]:
        """The reply as it comes: for each choice its role, its parts, its end; then what was asked for beside."""
        head = self.chunk_head("chat.completion.chunk")
        begun: set[int] = set()
        async for piece in answer_pieces(self.work, self.rules.parser):
            if piece.choice not in begun:
                first = {}
                if not begun and self.body.return_token_ids:
                    first["prompt_token_ids"] = self.work.outputs()[0].prompt_token_ids
                begun.add(piece.choice)
                yield {**head, **first, "choices": [_choice(piece.choice, {"role": "assistant", "content": ""})]}
            beside = {"logprobs": self._logprobs(piece.token_ids, piece.logprobs), **self._ids(piece.token_ids)}
            for event in piece.events:
                if delta := self._delta(piece.choice, event):
                    yield {**head, "choices": [_choice(piece.choice, delta, **beside)]}
                    beside = {"logprobs": None, **self._ids([])}
            if piece.finish_reason is not None:
                reason = "tool_calls" if piece.ends_with_calls else piece.finish_reason
                yield {**head, "choices": [_choice(piece.choice, {}, **{**beside, "finish_reason": reason})]}
        if last := self.beside(with_usage=self.body.wants_usage):
            yield {**head, "choices": [], **last}

    def _delta(self, choice: int, event: Event) -> dict[str, Any]:
        """What an event adds to a message; nothing for the end of a call."""
        if isinstance(event, Content):
            return {"content": event.text}
        if isinstance(event, Reasoning):
            return {"reasoning_content": event.text}
        if isinstance(event, CallBegin):
            begun = {"id": call_id(self.work.name, choice, event.call), "type": "function"}
            function = {"name": event.name, "arguments": ""}
            return {"tool_calls": [{"index": event.call, **begun, "function": function}]}
        if isinstance(event, CallArguments):
            return {"tool_calls": [{"index": event.call, "function": {"arguments": event.text}}]}
        return {}

    def _logprobs(self, tokens: Sequence[int], entries: Sequence[Entries]) -> dict[str, Any] | None:
        if not self.body.logprobs or not entries:
            return None
        content = chat_logprobs(self.model.llm.tokenizer, tokens, entries, self.body.top_logprobs or 0)
        return {"content": content, "refusal": None}

    def _ids(self, ids: Sequence[int]) -> dict[str, Any]:
        return {"token_ids": list(ids)} if self.body.return_token_ids else {}


def _choice(index: int, delta: dict[str, Any], **further: Any) -> dict[str, Any]:
    return {"index": index, "delta": delta, "logprobs": None, "finish_reason": None, **further}

"""The reply to a chat: whole, or as chunks.

In: the engine's work for it. Out: OpenAI's ``chat.completion``, or ``chat.completion.chunk`` objects.
"""

from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass
from typing import Any

from cutaway.server.openai.chat_schema import ChatRequest
from cutaway.server.openai.logprobs import Entries, chat_logprobs
from cutaway.server.openai.pieces import pieces
from cutaway.server.openai.reply import Reply


@dataclass(frozen=True)
class ChatReply(Reply[ChatRequest]):
    """How one chat is replied to."""

    async def whole(self) -> dict[str, Any]:
        """The reply when all is there."""
        (output,) = await self.work.run()
        choices = [
            {
                "index": each.index,
                "message": {"role": "assistant", "content": each.text, "refusal": None},
                "logprobs": self._logprobs(each.token_ids, each.logprobs or ()),
                "finish_reason": each.finish_reason,
                **self._ids(each.token_ids),
            }
            for each in output.outputs
        ]
        reply = {**self.head("chat.completion"), "choices": choices, **self.beside(with_usage=True)}
        if self.body.return_token_ids:
            reply["prompt_token_ids"] = output.prompt_token_ids
        return reply

    async def chunks(self) -> AsyncGenerator[dict[str, Any], None]:
        """The reply as it comes: for each choice its role, its text, its end; then what was asked for beside."""
        head = self.chunk_head("chat.completion.chunk")
        begun: set[int] = set()
        async for piece in pieces(self.work):
            if piece.choice not in begun:
                first = {}
                if not begun and self.body.return_token_ids:
                    first["prompt_token_ids"] = self.work.outputs()[0].prompt_token_ids
                begun.add(piece.choice)
                yield {**head, **first, "choices": [_choice(piece.choice, {"role": "assistant", "content": ""})]}
            beside = {"logprobs": self._logprobs(piece.token_ids, piece.logprobs), **self._ids(piece.token_ids)}
            if piece.text:
                yield {**head, "choices": [_choice(piece.choice, {"content": piece.text}, **beside)]}
                beside = {"logprobs": None, **self._ids([])}
            if piece.finish_reason is not None:
                end = _choice(piece.choice, {}, **{**beside, "finish_reason": piece.finish_reason})
                yield {**head, "choices": [end]}
        if last := self.beside(with_usage=self.body.wants_usage):
            yield {**head, "choices": [], **last}

    def _logprobs(self, tokens: Sequence[int], entries: Sequence[Entries]) -> dict[str, Any] | None:
        if not self.body.logprobs or not entries:
            return None
        content = chat_logprobs(self.model.llm.tokenizer, tokens, entries, self.body.top_logprobs or 0)
        return {"content": content, "refusal": None}

    def _ids(self, ids: Sequence[int]) -> dict[str, Any]:
        return {"token_ids": list(ids)} if self.body.return_token_ids else {}


def _choice(index: int, delta: dict[str, Any], **further: Any) -> dict[str, Any]:
    return {"index": index, "delta": delta, "logprobs": None, "finish_reason": None, **further}

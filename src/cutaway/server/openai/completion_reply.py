"""The reply to completions: whole, or as chunks.

In: the engine's work for them. Out: OpenAI's ``text_completion`` objects. The choices of all prompts are numbered on.
"""

from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from cutaway.engine.outputs import CompletionOutput, RequestOutput
from cutaway.server.openai.completion_schema import CompletionRequest
from cutaway.server.openai.logprobs import CompletionLogprobs
from cutaway.server.openai.pieces import pieces
from cutaway.server.openai.prompts import TextOrIds
from cutaway.server.openai.reply import Reply
from cutaway.server.openai.usage import usage

KIND: Final = "text_completion"


@dataclass(frozen=True)
class CompletionReply(Reply[CompletionRequest]):
    """How one request is replied to."""

    prompts: Sequence[TextOrIds]

    async def whole(self) -> dict[str, Any]:
        """The reply when all is there."""
        outputs = await self.work.run()
        numbered = enumerate(outputs)
        choices = [self._choice(number, output, each) for number, output in numbered for each in output.outputs]
        return {**self.head(KIND), "choices": choices, **self.beside(with_usage=True)}

    def _choice(self, number: int, output: RequestOutput, given: CompletionOutput) -> dict[str, Any]:
        nothing = self.body.echo_only
        tokens, entries = ([], []) if nothing else (given.token_ids, given.logprobs or [])
        text = "" if nothing else given.text
        logprobs = None
        if self.body.logprobs is not None:
            writer = self._writer(output)
            before = self._of_prompt(writer, number, output) if self.body.echo else None
            logprobs = writer.answer(tokens, entries)
            if before is not None:
                logprobs = {name: before[name] + values for name, values in logprobs.items()}
        return {
            "index": number * self.work.params.n + given.index,
            "text": self._echo(number) + text if self.body.echo else text,
            "logprobs": logprobs,
            "finish_reason": given.finish_reason,
            **self._ids(tokens, output),
        }

    async def chunks(self) -> AsyncGenerator[dict[str, Any], None]:
        """The reply as it comes; with ``echo``, each choice begins with its prompt."""
        head = self.chunk_head(KIND)
        writers: dict[int, CompletionLogprobs] = {}
        async for piece in pieces(self.work):
            index = piece.prompt * self.work.params.n + piece.choice
            begins = index not in writers
            if begins:
                output = self.work.streams[piece.prompt].output()
                writers[index] = self._writer(output)
            if begins and self.body.echo:
                beside = self._of_prompt(writers[index], piece.prompt, output)
                echo = _choice(index, self._echo(piece.prompt), beside, None, self._ids([], output))
                yield {**head, "choices": [echo]}
            text, tokens, entries = piece.text, piece.token_ids, piece.logprobs
            if self.body.echo_only:
                text, tokens, entries = "", [], []
            beside = writers[index].answer(tokens, entries) if entries else None
            ids = self._ids(tokens, output if begins and not self.body.echo else None)
            yield {**head, "choices": [_choice(index, text, beside, piece.finish_reason, ids)]}
        if last := self.beside(with_usage=self.body.wants_usage):
            yield {**head, "choices": [], **last}

    def _writer(self, output: RequestOutput) -> CompletionLogprobs:
        return CompletionLogprobs(
            self.model.llm.tokenizer,
            output.prompt_token_ids,
            skip_special=self.work.params.skip_special_tokens,
        )

    def _echo(self, number: int) -> str:
        """A prompt's text. A character that ids leave unfinished is left to the answer, which may finish it."""
        prompt = self.prompts[number]
        if isinstance(prompt, str):
            return prompt
        detokenizer = self.model.llm.tokenizer.detokenizer(skip_special=self.work.params.skip_special_tokens)
        return "".join(map(detokenizer.push, prompt))

    def _of_prompt(self, writer: CompletionLogprobs, number: int, output: RequestOutput) -> dict[str, Any] | None:
        scores = output.prompt_logprobs
        return None if scores is None else writer.prompt(scores, self._echo(number))

    def _ids(self, ids: Sequence[int], output: RequestOutput | None) -> dict[str, Any]:
        if not self.body.return_token_ids:
            return {}
        return {"token_ids": list(ids), **({"prompt_token_ids": output.prompt_token_ids} if output is not None else {})}

    def usage(self) -> dict[str, Any]:
        """The tokens; none of an answer where nothing but the prompt was asked for."""
        return usage((stream.statistics() for stream in self.work.streams), counts_answers=not self.body.echo_only)


def _choice(
    index: int, text: str, logprobs: dict[str, Any] | None, finish_reason: str | None, ids: dict[str, Any]
) -> dict[str, Any]:
    return {"index": index, "text": text, "logprobs": logprobs, "finish_reason": finish_reason, **ids}
